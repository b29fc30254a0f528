"""Learning curves and label smoothing are what was written and what is taught."""

import pytest
import torch

from dragoman.kernels.cross_entropy import smoothed_loss
from dragoman.plots.charts import COLOURS, Line
from dragoman.plots.curves import VALUES, Value, draw_panels, draw_smoothing, line_of, smoothed

EVENTS = [
    {"event": "started", "step": 0, "parameters": 7},
    {"event": "step", "step": 1, "loss": 5.0, "learning_rate": 0.1, "seconds": 30.0},
    {"event": "step", "step": 10, "loss": 4.0, "learning_rate": 0.2, "seconds": 90.0},
    {"event": "validation", "step": 11, "loss": None, "bleu": 3.0},
    {"event": "started", "step": 11, "parameters": 7},  # resumed
    {"event": "step", "step": 20, "loss": 3.0, "learning_rate": 0.1, "seconds": 150.0},
    {"event": "validation", "step": 20, "loss": 2.5, "bleu": 7.0},
]


def test_a_curve_is_what_the_journal_says_against_steps_and_minutes() -> None:
    assert line_of("run", EVENTS, Value.LOSS, "steps") == Line("run", [1, 10, 20], [5.0, 4.0, 3.0])
    assert line_of("run", EVENTS, Value.LEARNING_RATE, "minutes") == Line("run", [0.5, 1.5, 2.5], [0.1, 0.2, 0.1])
    assert line_of("run", EVENTS, Value.BLEU, "minutes") == Line("run", [1.5, 2.5], [3.0, 7.0])
    assert line_of("run", EVENTS, Value.VALIDATION_LOSS, "steps") == Line("run", [20], [2.5])
    assert line_of("run", EVENTS, Value.GRADIENT_NORM, "steps") == Line("run", [], [])
    assert set(VALUES) == set(Value)


def test_panels_share_their_steps_and_every_run_has_its_colour() -> None:
    lines = [Line(f"run {number}", [1, 2], [number, number]) for number in range(9)]
    figure = draw_panels([("loss", lines), ("BLEU", lines[:1])], "step")
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "BLEU"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "step"]
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].get_lines()}
    assert len(looks) == 9 > len(COLOURS)
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [line.name for line in lines]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_the_bars_are_what_the_loss_pulls_towards(smoothing: float) -> None:
    vocabulary, label = 7, 2
    logits = torch.randn(1, vocabulary, requires_grad=True)
    smoothed_loss(logits, torch.eye(vocabulary), torch.tensor([label]), smoothing, -1).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    taught = logits.detach().softmax(-1) - logits.grad  # the gradient is what is said less what should be
    assert smoothed(label, vocabulary, smoothing) == pytest.approx(taught[0].tolist(), abs=1e-6)
    bars = draw_smoothing(label, vocabulary, [smoothing]).axes[0].patches
    assert [bar.get_height() for bar in bars] == smoothed(label, vocabulary, smoothing)
