"""What tests of the whole program share: the command line, called as a user calls it but in this process."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from dragoman.cli import main


class Ended(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


Call = Callable[..., Ended]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command in this process, which has imported everything already."""

    def call(*words: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["dragoman", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return Ended(int(end.value.code or 0), said.out, said.err)

    return call
