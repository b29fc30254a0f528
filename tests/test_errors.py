"""Errors say where, what and what to do; the command line prints them and no traceback."""

import subprocess
from collections.abc import Callable
from inspect import getmembers, isclass
from pathlib import Path

import pytest

from dragoman import errors
from dragoman.errors import ConfigError, DataError, DragomanError, FormatError, ModelError, RunError

KINDS = [ConfigError, DataError, ModelError, FormatError, RunError]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_says_where_and_what(kind: type[DragomanError]) -> None:
    error = kind(Path("some/file"), "not whole, got 3")
    assert isinstance(error, DragomanError)
    assert str(error) == "some/file: not whole, got 3"
    assert (error.where, error.what, error.hint) == (Path("some/file"), "not whole, got 3", None)
    assert error.report() == "error: some/file: not whole, got 3"


def test_a_hint_comes_after_a_blank_line() -> None:
    error = DataError("text.en:3", "not UTF-8", hint="convert it")
    assert error.report() == "error: text.en:3: not UTF-8\n\nhint: convert it"


def test_each_of_several_mistakes_has_a_line_that_says_where() -> None:
    error = ConfigError("recipe.toml", "one mistake\nanother")
    assert error.report().splitlines() == ["error: recipe.toml: one mistake", "error: recipe.toml: another"]


def test_a_callers_mistake_exits_with_2_and_a_failed_run_with_1() -> None:
    assert [kind.exit_code for kind in KINDS] == [2, 2, 2, 2, 1]


def test_the_drawing_shows_every_error() -> None:
    kinds = [name for name, kind in getmembers(errors, isclass) if issubclass(kind, Exception)]
    assert sorted(kinds) == sorted([DragomanError.__name__, *(kind.__name__ for kind in KINDS)])
    assert errors.__doc__ is not None
    for name in kinds:
        assert name in errors.__doc__


def test_the_command_line_prints_the_report_and_nothing_else(
    run_dragoman: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("a line\n" * (3 if name == "a.en" else 5))
    done = run_dragoman("prepare", "--source", "a.en", "--target", "a.de", "--out", "data", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    report = "error: a.en and a.de: line counts differ, got 3 and 5\n\nhint: line n of one file must translate line n"
    assert done.stderr.startswith(report)
    assert "Traceback" not in done.stderr
