"""How heads look, against weights that were written by hand."""

from collections.abc import Sequence

import pytest
import torch

from dragoman.batch import Batch
from dragoman.models.interface import AttentionWeights
from dragoman.models.transformer import Transformer
from dragoman.study.looking import KINDS, Looks, lay_ground, watch
from tests.oracles import peaked

PAIRS = [([4, 5, 6, 5, 4], [6, 4]), ([5], [4, 4, 6, 5, 6]), ([6, 4], [5, 4, 6])]
LINKS = [{(0, 1), (3, 0)}, {(0, 2)}, set()]


def looks_of(weights: Sequence[Sequence[float]], kind: str, links: set[tuple[int, int]]) -> Looks:
    """Of a model that has one layer of one head with these weights, for one pair."""

    class Fixed(Transformer):
        def attention(self, batch: Batch) -> AttentionWeights:
            shown = torch.tensor([[weights]])
            pair = batch.source.ids.shape[1], batch.target.ids.shape[1]
            shapes = {"encoder": (pair[0], pair[0]), "decoder": (pair[1], pair[1]), "cross": (pair[1], pair[0])}
            return AttentionWeights(
                *([shown] if name == kind else [torch.zeros(1, 1, *shapes[name])] for name in KINDS)
            )

    model = peaked(0)
    model.__class__ = Fixed
    return watch(model, [([4, 5], [6])], [links])[kind][0][0]


def test_a_head_that_looks_at_the_diagonal_looks_nowhere_else() -> None:
    found = looks_of([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "encoder", set())
    assert found == Looks(0.0, 0.0, 1.0, None)


def test_a_head_that_looks_away_is_told_by_how_far() -> None:
    found = looks_of([[0.0, 0.0, 1.0], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]], "encoder", set())
    assert found.distance == pytest.approx((2 + 1 + 2) / 3)
    assert found.diagonal == pytest.approx(1 / 3)
    assert found.entropy == pytest.approx((0 + torch.tensor(2.0).log() / torch.tensor(3.0).log() + 0) / 3)


def test_between_two_sentences_the_diagonal_goes_from_corner_to_corner() -> None:
    # Two target positions against three source positions: the second stands at 1.5.
    found = looks_of([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], "cross", {(1, 0)})
    assert found.distance == pytest.approx((0 + 0.5) / 2)
    assert found.diagonal == 1.0


def test_agreement_is_the_weight_on_what_a_piece_is_linked_with() -> None:
    weights = [[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    assert looks_of(weights, "cross", {(1, 0)}).alignment == 0.75
    assert looks_of(weights, "cross", {(0, 0)}).alignment == 0.25
    assert looks_of(weights, "cross", set()).alignment is None


def test_sentences_in_company_look_as_they_do_alone() -> None:
    model = peaked(3, spread=0.3)
    together = watch(model, PAIRS, LINKS)
    alone = [watch(model, [pair], [links]) for pair, links in zip(PAIRS, LINKS, strict=True)]
    lengths = {"encoder": [6, 2, 3], "decoder": [3, 6, 4], "cross": [3, 6, 4]}
    for kind in KINDS:
        shape = [len(layer) for layer in together[kind]]
        assert shape == [3, 3, 3]  # two layers of three heads, and even weights
        distances = [each[kind][1][2].distance * length for each, length in zip(alone, lengths[kind], strict=True)]
        assert together[kind][1][2].distance == pytest.approx(sum(distances) / sum(lengths[kind]), rel=1e-5)
    linked = [alone[0]["cross"][0][0].alignment, alone[1]["cross"][0][0].alignment]
    assert None not in linked
    assert together["cross"][0][0].alignment == pytest.approx((2 * linked[0] + linked[1]) / 3, rel=1e-5)


def test_even_weights_choose_nothing() -> None:
    even = {kind: layers[-1] for kind, layers in watch(peaked(0), PAIRS, LINKS).items()}
    for heads in even.values():
        assert all(head == heads[0] for head in heads)
        assert heads[0].entropy == pytest.approx(1)
    assert even["cross"][0].alignment == pytest.approx((1 / 6 + 1 / 6 + 1 / 2) / 3)


def test_the_ground_is_what_the_model_sees() -> None:
    model = peaked(0, window=1)
    batch = Batch.of(*map(list, zip(*PAIRS, strict=True)))
    for kind, weights in zip(KINDS, model.attention(batch), strict=True):
        assert torch.equal(lay_ground(kind, batch, LINKS, 1).visible, weights[0][:, 0] > 0)
