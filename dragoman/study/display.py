"""What is seen of a study's trials while they run."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from dragoman.study.trial import last_step

SECONDS_BETWEEN_LINES = 15.0  # where stderr is no terminal


class Display:
    """Says what happens: on a terminal in one line that changes, elsewhere now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("starting") if console.is_terminal else None
        self._shown = time.monotonic()

    def __enter__(self) -> "Display":
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._status:
            self._status.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.out(text, highlight=False)

    def show(self, runs: Path, labels: Sequence[str], done: int, total: int) -> None:
        """Where the trials stand."""
        if time.monotonic() - self._shown < (1.0 if self._status else SECONDS_BETWEEN_LINES):
            return
        self._shown = time.monotonic()
        steps = {label: last_step(runs / label) for label in labels}
        standing = [
            f"{label} step {step['step']:,} loss {step['loss']:.2f}" if step else label for label, step in steps.items()
        ]
        text = f"{done} of {total} done; {', '.join(standing)}"
        if self._status:
            self._status.update(text)
        else:
            self.say(text)
