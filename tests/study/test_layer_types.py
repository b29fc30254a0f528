"""The bare layers of Table 1 are what the models compute."""

import pytest
import torch

from dragoman.kernels.attention import Visible, attention_weights
from dragoman.study.layer_types import (
    Convolution,
    FusedSelfAttention,
    Recurrence,
    RestrictedSelfAttention,
    SelfAttention,
)


@pytest.mark.parametrize(("length", "neighbours"), [(13, 3), (23, 5), (7, 7), (5, 11), (1, 3)])
def test_attention_in_bands_is_attention_with_a_window(length: int, neighbours: int) -> None:
    x = torch.randn(2, length, 3, dtype=torch.float64)
    one = torch.ones(2, length, dtype=torch.long)
    visible = Visible.same_sentence(one, one, window=neighbours // 2)
    expected = (attention_weights(x[:, None], x[:, None], visible) @ x[:, None])[:, 0]
    torch.testing.assert_close(RestrictedSelfAttention(neighbours)(x), expected)


def test_fused_is_explicit() -> None:
    x = torch.randn(2, 11, 5)
    torch.testing.assert_close(FusedSelfAttention()(x), SelfAttention()(x))


def test_a_recurrence_repeats_its_step() -> None:
    x, layer = torch.randn(2, 5, 3), Recurrence(3)
    state = torch.zeros(2, 3)
    for position in range(5):
        state = layer.cell(x[:, position], state)
        torch.testing.assert_close(layer(x)[:, position], state)
    torch.testing.assert_close(layer.step(x)[:, 2], layer.cell(x[:, 2], x[:, 1]))


def test_a_convolution_sees_k_positions_up_to_its_own() -> None:
    x, layer = torch.randn(1, 13, 3), Convolution(3, 5, dilation=2)
    seen = torch.autograd.functional.jacobian(lambda each: layer(each)[0, 11].sum(), x)[0].abs().sum(-1) > 0
    assert seen.nonzero().flatten().tolist() == [3, 5, 7, 9, 11]
