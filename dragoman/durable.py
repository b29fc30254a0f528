"""Files and folders that are whole or absent: written beside their place, flushed to the disk, renamed."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

STRAY = re.compile(r"\..+\.[0-9a-f]{8}")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder that takes its name only when everything in it is on the disk; FileExistsError if the name is taken."""
    out = out.absolute()
    missing = [parent for parent in out.parents if not parent.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # a file stands where a folder should
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(out.parent)) from None
    folder = beside(out)
    try:
        folder.mkdir()
    except OSError as error:
        error.filename = str(out)  # what the caller asked for
        raise
    try:
        yield folder
        for path in [*folder.iterdir(), folder]:
            flush(path)
        if out.exists() and any(out.iterdir()):
            raise FileExistsError(out)
        folder.rename(out)
        flush(out.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # what was made for nothing goes again; a folder that holds something stays
            for parent in missing:
                parent.rmdir()


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file, in place of one that may be there, in one rename."""
    new = beside(path)
    try:
        new.write_bytes(content.encode() if isinstance(content, str) else content)
        flush(new)
        new.replace(path)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        new.unlink(missing_ok=True)


def beside(path: Path) -> Path:
    """A hidden name beside a path, for what is not whole yet, or no longer."""
    return path.with_name(f".{path.name}.{token_hex(4)}")


def strays(folder: Path) -> list[Path]:
    """What processes that were killed left under such names."""
    return [path for path in folder.iterdir() if STRAY.fullmatch(path.name)]


def flush(path: Path) -> None:
    """Return when a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
