"""Parallel files, plain, gzip or xz, read as a stream of pairs: line n of one translates line n of the other."""

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, NamedTuple

from babel.localedata import exists

from dragoman.errors import DataError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


class Pair(NamedTuple):
    """Two lines as they stand on disk, with the place they come from."""

    source: bytes
    target: bytes
    files: tuple[Path, Path]
    line: int


def read_pairs(sources: Sequence[Path], targets: Sequence[Path]) -> Iterator[Pair]:
    """Every pair of every pair of files, in order."""
    if len(sources) != len(targets):
        raise DataError("--source and --target", f"{len(sources)} files against {len(targets)}, one each is needed")
    for files in zip(sources, targets, strict=True):
        lines = zip_longest(*map(read_lines, files))
        for number, (source, target) in enumerate(lines, start=1):
            if source is None or target is None:
                counts = [sum(1 for _ in read_lines(file)) for file in files]
                raise DataError(
                    f"{files[0]} and {files[1]}",
                    f"line counts differ, got {counts[0]} and {counts[1]}",
                    hint="line n of one file must translate line n of the other; nothing was written",
                )
            yield Pair(source, target, files, number)


def read_text_pairs(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """A whole pair of files as text, for what must be scored line by line."""
    pairs = list(read_pairs([source], [target]))
    if not pairs:
        raise DataError(f"{source} and {target}", "holds no pairs")
    sources = [decode_line(pair.source, source, pair.line) for pair in pairs]
    return sources, [decode_line(pair.target, target, pair.line) for pair in pairs]


def read_lines(path: Path) -> Iterator[bytes]:
    """Lines without their ends; only a line feed, alone or behind a carriage return, ends a line."""
    with open_text(path) as file:
        yield from split_lines(file)


def split_lines(file: Iterable[bytes]) -> Iterator[bytes]:
    """The same of a file that is open."""
    for number, line in enumerate(file):
        if number == 0:
            line = line.removeprefix(BYTE_ORDER_MARK)
        yield line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")


@contextmanager
def open_text(path: Path) -> Iterator[IO[bytes]]:
    """Open a file by its suffix; what goes wrong with it becomes an error that names it."""
    try:
        with _OPENERS.get(path.suffix, open)(path, "rb") as file:
            yield file
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise DataError(path, f"not a whole {path.suffix} file: {error}") from None
    except FileNotFoundError:
        raise no_such_file(path) from None
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}") from None


def no_such_file(path: Path) -> DataError:
    """What is said of a file that is not there: the nearest name in its folder, if there is one."""
    near = get_close_matches(path.name, [each.name for each in path.parent.glob("*") if each.is_file()], n=1)
    return DataError(path, "no such file", hint=f"did you mean {path.with_name(near[0])}?" if near else None)


def decode_line(line: bytes, path: Path, number: int) -> str:
    """A line as text, or an error that names file, line and byte."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}",
            f"not UTF-8, got byte 0x{line[error.start]:02x} at position {error.start + 1}",
            hint="convert the file (iconv -f ... -t UTF-8); `dragoman prepare` can drop such pairs: data.invalid=drop",
        ) from None


def language_of(path: Path) -> str | None:
    """The file's last suffix but compression, where it is a language that CLDR knows."""
    name = path.with_suffix("") if path.suffix in _OPENERS else path
    code = name.suffix.removeprefix(".").replace("-", "_")
    return code if code and code != "root" and exists(code) else None
