"""Score functions and sights, against numbers worked by hand."""

from math import exp, sqrt, tanh

import pytest
import torch
from torch import Tensor

from dragoman.models.alignment import Alignment, Score, Seen, masked_softmax

QUERY = torch.tensor([[[1.0, 2.0]]])
KEYS = torch.tensor([[[3.0, 4.0], [5.0, 6.0]]])
SWAP = torch.tensor([[0.0, 1.0], [1.0, 0.0]])


@torch.no_grad()
def scores(kind: str) -> list[float]:
    score = Score(kind, 2)  # type: ignore[arg-type]
    for name, parameter in score.named_parameters():
        parameter.copy_({"between.weight": SWAP, "energy.weight": torch.tensor([[1.0, 10.0]])}.get(name, torch.eye(2)))
    return score(QUERY, score.prepare(KEYS))[0, 0].tolist()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("dot", [11.0, 17.0]),
        ("scaled-dot", [11 / sqrt(2), 17 / sqrt(2)]),
        ("general", [1 * 4 + 2 * 3, 1 * 6 + 2 * 5]),
        ("additive", [tanh(4) + 10 * tanh(6), tanh(6) + 10 * tanh(8)]),
        ("concat", [tanh(4) + 10 * tanh(6), tanh(6) + 10 * tanh(8)]),
    ],
)
def test_score_functions_by_hand(kind: str, expected: list[float]) -> None:
    assert scores(kind) == pytest.approx(expected, rel=1e-6)


def look(alignment: Alignment, query_position: int, keys: int, empty: int = 0) -> Tensor:
    """The weights of one query that finds all keys equally good; the last ones belong to nobody."""
    zeros = torch.zeros(1, keys, 2)
    visible = torch.arange(keys)[None, None] < keys - empty
    seen = Seen(zeros, zeros, torch.arange(keys)[None], visible, torch.tensor([[query_position]]))
    with torch.no_grad():
        return alignment(torch.zeros(1, 1, 2), seen)[1][0, 0]


@pytest.mark.parametrize(
    ("position", "expected"),
    [(0, [1 / 2, 1 / 2, 0, 0, 0]), (2, [0, 1 / 3, 1 / 3, 1 / 3, 0]), (7, [0, 0, 1 / 2, 1 / 2, 0])],
)
def test_a_monotonic_window_goes_along_and_stays_at_the_end(position: int, expected: list[float]) -> None:
    weights = look(Alignment(2, "dot", "monotonic", 1), position, 5, empty=1)
    assert weights.tolist() == pytest.approx(expected)


def test_a_predicted_place_is_the_middle_of_a_bell() -> None:
    # A query of zeros predicts sigmoid(0) = 1/2 of the way: key 2 of 5. The bell is half a window wide.
    weights = look(Alignment(2, "dot", "predictive", 2), 0, 5)
    expected = [exp(-(distance**2) / (2 * (2 / 2) ** 2)) / 5 for distance in (-2, -1, 0, 1, 2)]
    assert weights.tolist() == pytest.approx(expected)


def test_all_of_a_sentence_is_seen_and_nothing_else() -> None:
    assert look(Alignment(2, "dot", "all", 1), 3, 7, empty=4).tolist() == pytest.approx([1 / 3] * 3 + [0] * 4)


def test_a_softmax_over_nothing_is_nothing() -> None:
    visible = torch.tensor([[[True, False, False]], [[False, False, False]]])
    assert masked_softmax(torch.randn(2, 1, 3), visible).tolist() == [[[1, 0, 0]], [[0, 0, 0]]]
