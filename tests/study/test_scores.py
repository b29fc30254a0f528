"""Scores of random vectors vary as the paper says; those of a model are its own."""

from math import log, sqrt

import pytest
import torch

from dragoman.batch import Batch
from dragoman.study.looking import entropy_share
from dragoman.study.scores import KEYS, QUERIES, ROUNDS, attentions, draw, jacobian_size, look_into
from tests.oracles import peaked

PAIRS = [([4, 5, 6, 5], [6, 4]), ([5], [4, 4, 6, 5, 6]), ([6, 6, 4], [5, 4, 6])]


@pytest.mark.parametrize("width", [3, 31, 127])
def test_the_variance_of_random_products_is_the_width(width: int) -> None:
    found = draw(width, torch.Generator().manual_seed(width))
    # The variance of the mean square over a round's grid of products, from the moments of standard normal vectors:
    # products in one row or column share a vector, (q k)^2 and (q k')^2 then covary by 2 d.
    same = 2 * width**2 + 6 * width
    shared = (QUERIES + KEYS - 2) * 2 * width
    deviation = sqrt((same + shared) / (QUERIES * KEYS) / ROUNDS)
    assert abs(found.mean.variance - width) < 4 * deviation
    assert found.error.variance == pytest.approx(1.96 * deviation, rel=0.25)


def test_division_keeps_entropy_and_gradient_at_every_width() -> None:
    narrow, wide = (draw(width, torch.Generator().manual_seed(0)).mean for width in (16, 1024))
    assert narrow.divided_entropy == pytest.approx(wide.divided_entropy, abs=0.01)
    assert narrow.divided_gradient == pytest.approx(wide.divided_gradient, rel=0.03)
    assert wide.entropy < narrow.entropy / 5
    assert wide.gradient < narrow.gradient / 3


def test_the_size_of_the_gradient_is_that_of_the_jacobian() -> None:
    scores = torch.randn(7, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda each: each.softmax(-1), scores)
    size = jacobian_size(scores.softmax(-1)[None, None, None])
    torch.testing.assert_close(size.squeeze(), jacobian.norm())


def test_entropy_is_a_share_of_that_of_even_weights() -> None:
    visible = torch.tensor([[[True, True, True], [True, True, False], [True, False, False]]])
    weights = torch.tensor([[[[1 / 3, 1 / 3, 1 / 3], [0.75, 0.25, 0.0], [1.0, 0.0, 0.0]]]])
    share = -(0.75 * log(0.75) + 0.25 * log(0.25)) / log(2)
    torch.testing.assert_close(entropy_share(weights, visible), torch.tensor([[[1.0, share, 0.0]]]))


@pytest.mark.parametrize("changes", [{}, {"positions": "rotary"}, {"key_heads": 1}], ids=str)
def test_the_scores_of_a_model_are_those_it_computes_with(changes: dict[str, object]) -> None:
    model = peaked(1, spread=0.3, **{"key_width": 4, **changes})
    found = look_into(model, PAIRS)
    assert list(found) == list(attentions(model))
    # One pair at a time, the entropies of the weights that the model itself shows.
    for name, kind in (("encoder.1.self_attention", "encoder"), ("decoder.1.cross_attention", "cross")):
        sums, count = torch.zeros(3), 0
        for source, target in PAIRS:
            weights = getattr(model.attention(Batch.of([source], [target])), kind)[1][0]
            sums += torch.special.entr(weights).sum((1, 2)).float() / log(len(source) + 1)
            count += weights.shape[1]
        assert [head.divided_entropy for head in found[name]] == pytest.approx((sums / count).tolist(), rel=1e-5)


def test_the_variance_is_that_of_all_visible_products() -> None:
    model = peaked(2, spread=0.3)
    products: list[torch.Tensor] = []
    attention = attentions(model)["encoder.0.self_attention"]
    hook = attention.register_forward_hook(
        lambda module, given, _: products.append(
            (module.split(module.query(given[0]), 3) @ given[1].keys.transpose(2, 3))[0].flatten(1)
        )
    )
    found = look_into(model, PAIRS)["encoder.0.self_attention"]
    products.clear()
    for pair in PAIRS:
        look_into(model, [pair])
    hook.remove()
    expected = torch.cat(products, dim=1).var(1, correction=0)
    assert [head.variance for head in found] == pytest.approx(expected.tolist(), rel=1e-5)
