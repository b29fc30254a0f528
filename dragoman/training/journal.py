"""What a run says: a journal of JSON lines, TensorBoard events where that is installed, and a line on the terminal."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from dragoman.durable import replace_file

JOURNAL = "journal.jsonl"
STEPS_BETWEEN_LINES = 10
SECONDS_BETWEEN_LINES = 15.0  # where stderr is no terminal


class Journal:
    """Appends events to the journal; on resuming, what lies beyond the checkpoint is forgotten."""

    def __init__(self, run: Path, step: int, console: Console) -> None:
        self._console = console
        self._shown = 0.0
        _forget_after(run / JOURNAL, step)
        self._file = (run / JOURNAL).open("a", encoding="utf-8")
        self._events = _event_writer(run / "tensorboard", step)
        self._bar = Progress(
            BarColumn(20), TextColumn("{task.description}"), console=console, transient=True, auto_refresh=False
        )
        self._task = self._bar.add_task("starting", total=1.0)

    def __enter__(self) -> "Journal":
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        self._file.close()
        if self._events:
            self._events.close()

    def write(self, event: str, step: int, values: Mapping[str, Any]) -> None:
        """One line of the journal, and its numbers as TensorBoard scalars."""
        self._file.write(json.dumps({"event": event, "step": step, **values}, ensure_ascii=False) + "\n")
        self._file.flush()
        for name, value in values.items():
            if self._events and isinstance(value, int | float):
                self._events.add_scalar(f"{event}/{name}", value, step)

    def show_step(self, step: int, values: Mapping[str, float], spent: float) -> None:
        """Show where the run stands: on a terminal in one line that changes, elsewhere now and then."""
        if step % STEPS_BETWEEN_LINES == 0 or step < STEPS_BETWEEN_LINES:
            self.write("step", step, values)
        pause = 0.1 if self._console.is_terminal else SECONDS_BETWEEN_LINES
        if time.monotonic() - self._shown < pause:
            return
        self._shown = time.monotonic()
        text = (
            f"step {step:,}  loss {values['loss']:.3f}  {values['tokens_per_second']:,.0f} tokens/s  "
            f"rate {values['learning_rate']:.2e}"
        )
        if spent and values["seconds"]:
            left = round(values["seconds"] * (1 - spent) / spent)
            text += f"  {left // 60}:{left % 60:02} left"
        if self._console.is_terminal:
            self._bar.update(self._task, completed=min(1.0, spent), description=text, refresh=True)
        else:
            self.say(text)

    def warn(self, text: str, step: int) -> None:
        """A line for the reader that stands in the journal too."""
        self.write("warning", step, {"text": text})
        self.say(f"warning: {text}")

    def say(self, text: str) -> None:
        """A line for the reader."""
        self._console.out(text, highlight=False)


def read_journal(run: Path) -> list[dict[str, Any]]:
    """Every event of a run; a line that a crash cut short is passed over."""
    events = []
    for line in (run / JOURNAL).read_text(encoding="utf-8").split("\n"):
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


def _forget_after(journal: Path, step: int) -> None:
    if journal.is_file():
        kept = [event for event in read_journal(journal.parent) if event["step"] <= step]
        replace_file(journal, "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in kept))


def _event_writer(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # an extra: dragoman[tensorboard]
    except ImportError:
        return None
    return SummaryWriter(folder, purge_step=step + 1)
