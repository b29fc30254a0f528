"""Files and folders that are whole or absent: written beside their place, flushed to the disk, renamed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder that takes its name only when everything in it is on the disk; FileExistsError if the name is taken."""
    out = out.absolute()
    missing = [parent for parent in out.parents if not parent.exists()]
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = _beside(out)
    folder.mkdir()
    try:
        yield folder
        for path in [*folder.iterdir(), folder]:
            _flush(path)
        if out.exists() and any(out.iterdir()):
            raise FileExistsError(out)
        folder.rename(out)
        _flush(out.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # what was made for nothing goes again; a folder that holds something stays
            for parent in missing:
                parent.rmdir()


def replace_file(path: Path, text: str) -> None:
    """Write a file, in place of one that may be there, in one rename."""
    new = _beside(path)
    try:
        new.write_text(text, encoding="utf-8")
        _flush(new)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{token_hex(4)}")


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
