"""Lines in, lines out: windows over endless input, output that is whole or absent."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from dragoman.data.corpora import decode_line, no_such_file, read_lines, split_lines
from dragoman.decoding.steps import Step
from dragoman.decoding.translator import Translation
from dragoman.durable import beside, flush
from dragoman.errors import ConfigError

LINES_AT_ONCE = 1024  # a window of a stream: enough to batch by length, little enough for endless input


def windows(lines: Iterator[str], size: int) -> Iterator[tuple[int, list[str]]]:
    """Lines in windows, each with the number of lines before it."""
    before = 0
    while window := list(islice(lines, size)):
        yield before, window
        before += len(window)


@contextmanager
def open_input(path: Path | None) -> Iterator[Iterator[str]]:
    """The lines of a file, or of stdin, as text."""
    lines = read_lines(path) if path else split_lines(sys.stdin.buffer if sys.stdin else [])
    yield (decode_line(line, path or Path("stdin"), number) for number, line in enumerate(lines, start=1))


def check_files(input: Path | None, output: Path | None) -> None:
    """There is a text, and nobody wants theirs replaced by its translation."""
    if input and not input.exists():
        raise no_such_file(input)
    if input and output and output.exists() and output.samefile(input):
        raise ConfigError(output, "is the input too", hint="choose another --output")


def format_answers(
    answers: Sequence[Translation], before: int, n_best: int, made_with: Mapping[str, str] | None
) -> Iterator[str]:
    """A line a translation; of several, each with the number of its line and its score.

    Or an object a line, where it is told what the translations were made with.
    """
    for number, answer in enumerate(answers, start=before + 1):
        if made_with is not None:
            yield json.dumps(asdict(answer) | dict(made_with), ensure_ascii=False) + "\n"
        elif n_best == 1:
            yield f"{answer.text}\n"
        else:
            yield from (f"{number}\t{each.score:.6f}\t{each.text}\n" for each in answer.alternatives)


def format_steps(steps: Sequence[Step], made_with: Mapping[str, str] | None) -> Iterator[str]:
    """A line a step, or one object with all steps of a text and what they have written in the end."""
    if made_with is None:
        yield from (f"{step}\n" for step in steps)
    else:
        text = steps[-1].written if steps else ""
        found = {"text": text, "steps": [step._asdict() for step in steps], **made_with}
        yield json.dumps(found, ensure_ascii=False) + "\n"


@contextmanager
def open_output(path: Path | None) -> Iterator[Callable[[Iterable[str]], None]]:
    """Write to stdout as lines come, or to a file that has its name only when it is whole."""
    try:
        # A pipe or a device is written into; only a plain file is replaced.
        part = None if path is None or (path.exists() and not path.is_file()) else beside(path.resolve())
        file = (part or path).open("wb") if path else sys.stdout.buffer
    except OSError as error:
        raise ConfigError(path, f"cannot be written: {error.strerror}") from None

    def write(texts: Iterable[str]) -> None:
        for text in texts:
            file.write(text.encode())
        file.flush()

    try:
        yield write
        if path:
            file.close()
        if part and path:
            flush(part)
            part.replace(path.resolve())
    except BrokenPipeError:
        # Whoever read our output has gone: end quietly, and keep Python from flushing into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        if part:
            part.unlink(missing_ok=True)
