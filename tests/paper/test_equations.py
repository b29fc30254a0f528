"""The paper's equations, against numbers worked by hand."""

from math import cos, log, pi, sin, sqrt

import pytest
import torch
from torch import Tensor, nn

from dragoman.batch import Batch
from dragoman.decoding.scoring import Score
from dragoman.decoding.search import length_penalty
from dragoman.kernels.attention import Visible, attention_weights
from dragoman.models.attention import MultiHeadAttention
from dragoman.models.layers import FeedForward
from dragoman.models.positions import sinusoids
from dragoman.recipe import TrainingConfig
from dragoman.training.gradients import summed_loss
from dragoman.training.schedule import learning_rate
from tests.oracles import model_that_always_says


def pass_through(width: int, key_width: int, value_width: int) -> MultiHeadAttention:
    """One head whose matrices hand on what they are given: query and key in every channel, value and output once."""
    attention = MultiHeadAttention(width, 1, key_width, value_width).double()
    for matrix in (attention.query, attention.key, attention.value, attention.output):
        nn.init.ones_(matrix.weight)
    return attention


@pytest.mark.parametrize("collect", [False, True], ids=["fused", "explicit"])
def test_equation_1_for_three_positions_of_one_channel(collect: bool) -> None:
    # Q = K = V = a (0, 1, 2)^T with a^2 = ln 2, d_k = 1:
    #   QK^T / sqrt(1) = ln 2 * (0 0 0; 0 1 2; 0 2 4), and exp of it is (1 1 1; 1 2 4; 1 4 16);
    #   its softmax is (1/3 1/3 1/3; 1/7 2/7 4/7; 1/21 4/21 16/21);
    #   times V: a * ((0 + 1 + 2) / 3, (0 + 2 + 8) / 7, (0 + 4 + 32) / 21) = a * (1, 10/7, 12/7).
    a = sqrt(log(2))
    x = a * torch.tensor([[[0.0], [1.0], [2.0]]], dtype=torch.float64)
    attention = pass_through(width=1, key_width=1, value_width=1)
    weights: list[Tensor] | None = [] if collect else None
    found = attention(x, attention.keys_values(x), None, weights)
    torch.testing.assert_close(found, a * torch.tensor([[[1.0], [10 / 7], [12 / 7]]], dtype=torch.float64))
    if weights is not None:
        expected = [[1 / 3, 1 / 3, 1 / 3], [1 / 7, 2 / 7, 4 / 7], [1 / 21, 4 / 21, 16 / 21]]
        torch.testing.assert_close(weights[0], torch.tensor([[expected]], dtype=torch.float64))


@pytest.mark.parametrize("collect", [False, True], ids=["fused", "explicit"])
def test_equation_1_divides_by_the_root_of_the_keys_width(collect: bool) -> None:
    # Four key channels that all hold a (0, 1, 2)^T with a^2 = ln 2 / 2: QK^T = 4 a^2 ij = 2 ln 2 ij, over sqrt(4) that
    # is ln 2 ij, as above. One value channel still, so the width of the values must not be what is divided by.
    a = sqrt(log(2) / 2)
    x = a * torch.tensor([[[0.0], [1.0], [2.0]]], dtype=torch.float64)
    attention = pass_through(width=1, key_width=4, value_width=1)
    found = attention(x, attention.keys_values(x), None, [] if collect else None)
    torch.testing.assert_close(found, a * torch.tensor([[[1.0], [10 / 7], [12 / 7]]], dtype=torch.float64))


def test_equation_1_with_the_last_position_hidden() -> None:
    # As above without the third key: exp is (1 1; 1 2; 1 4), so the weights are (1/2 1/2; 1/3 2/3; 1/5 4/5).
    x = sqrt(log(2)) * torch.tensor([[[[0.0], [1.0], [2.0]]]], dtype=torch.float64)
    segments = torch.tensor([[1, 1, 0]])
    weights = attention_weights(x, x, Visible.same_sentence(segments[:, :1], segments))
    expected = [[1 / 2, 1 / 2, 0], [1 / 3, 2 / 3, 0], [1 / 5, 4 / 5, 0]]
    torch.testing.assert_close(weights, torch.tensor([[expected]], dtype=torch.float64))


def test_equation_2_worked_by_hand() -> None:
    # x = (1, -2). xW_1 + b_1 with W_1 = (1 0 2; 0 1 1), b_1 = (0, 1, 3): (1, -2 + 1, 2 - 2 + 3) = (1, -1, 3).
    # max(0, .) = (1, 0, 3). W_2 = (1 2; 5 5; -1 1), b_2 = (10, 20): (1 - 3 + 10, 2 + 3 + 20) = (8, 25).
    layer = FeedForward(2, 3)
    with torch.no_grad():  # a linear layer holds the transpose of the paper's W
        layer.expand.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]]))
        layer.expand.bias.copy_(torch.tensor([0.0, 1.0, 3.0]))
        layer.contract.weight.copy_(torch.tensor([[1.0, 5.0, -1.0], [2.0, 5.0, 1.0]]))
        layer.contract.bias.copy_(torch.tensor([10.0, 20.0]))
    assert layer(torch.tensor([[[1.0, -2.0]]])).tolist() == [[[8.0, 25.0]]]


def test_positions_are_the_sines_and_cosines_of_section_3_5() -> None:
    # Width 4: pair i turns by pos / 10000^(2i/4), that is by pos and by pos / 100.
    table = sinusoids(8, 4)
    assert table[0].tolist() == [0, 1, 0, 1]
    assert table[1].tolist() == pytest.approx([sin(1), cos(1), sin(0.01), cos(0.01)], abs=1e-7)
    assert table[7].tolist() == pytest.approx([sin(7), cos(7), sin(0.07), cos(0.07)], abs=1e-7)


def test_wavelengths_go_from_one_turn_to_ten_thousand() -> None:
    # "The wavelengths form a geometric progression from 2 pi to 10000 * 2 pi": the first pair turns by one radian a
    # position, the last of width d by 10000^-((d-2)/d), and each by the same factor slower than the one before.
    width = 512
    turns = sinusoids(2, width)[1, 0::2].double().asin()
    assert 2 * pi / turns[0].item() == pytest.approx(2 * pi)
    assert turns[-1].item() == pytest.approx(10000 ** -((width - 2) / width))
    ratios = turns[1:] / turns[:-1]
    torch.testing.assert_close(ratios, torch.full_like(ratios, 10000 ** (-2 / width)))


@pytest.mark.parametrize("offset", [1, 5, 17])
def test_the_encoding_of_a_later_position_is_a_fixed_linear_map_of_an_earlier_one(offset: int) -> None:
    # sin(w(p+k)) = cos(wk) sin(wp) + sin(wk) cos(wp); cos(w(p+k)) = -sin(wk) sin(wp) + cos(wk) cos(wp):
    # one rotation a pair, the same for every position p.
    width, length = 10, 61
    blocks = []
    for pair in range(width // 2):
        angle = offset / 10000 ** (2 * pair / width)
        blocks.append(torch.tensor([[cos(angle), sin(angle)], [-sin(angle), cos(angle)]]))
    turned = sinusoids(length, width) @ torch.block_diag(*blocks).T
    torch.testing.assert_close(turned[: length - offset], sinusoids(length, width)[offset:], rtol=0, atol=1e-6)


def test_equation_3_peaks_at_the_end_of_warm_up() -> None:
    config = TrainingConfig()
    rates = {step: learning_rate(config, 512, step, spent=0.0) for step in range(1, 100_001, 1)}
    assert max(rates, key=lambda step: rates[step]) == 4000
    # 512^-0.5 * 4000^-0.5 = 1 / sqrt(2048000), and sqrt(2048000) = 640 sqrt(5).
    assert rates[4000] == pytest.approx(1 / (640 * sqrt(5)))
    assert rates[4000] == pytest.approx(6.99e-4, rel=1e-3)
    for step in (1, 100, 3999, 4001, 100_000):
        assert rates[step] == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5))
    # Four times the steps, half the rate; half the steps of the warm-up, half the peak.
    assert rates[16_000] == pytest.approx(rates[4000] / 2)
    assert rates[2000] == pytest.approx(rates[4000] / 2)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_label_smoothing_worked_by_hand(smoothing: float) -> None:
    # Seven pieces with probabilities 2^-1, 2^-2, ..., 2^-6, 2^-6; -ln p = ln 2 * (1, 2, 3, 4, 5, 6, 6), in sum 27 ln 2.
    # The smoothed target has 1 - eps on the label and eps / 7 everywhere, so a label of -ln p = k ln 2 costs
    # ln 2 * ((1 - eps) k + 27 eps / 7). Labels 5, 4, EOS = 3 have k = 6, 5, 4, in sum 15; the second row adds EOS.
    model = model_that_always_says([2.0**-exponent for exponent in (1, 2, 3, 4, 5, 6, 6)])
    batch = Batch.of([[4], [4, 4]], [[5, 4], []])
    expected = log(2) * ((1 - smoothing) * (15 + 4) + 4 * 27 * smoothing / 7)
    assert summed_loss(model, batch, smoothing).item() == pytest.approx(expected, rel=1e-6)


def test_the_length_penalty_worked_by_hand() -> None:
    # lp(Y) = ((5 + |Y|) / 6)^alpha: (6/6)^alpha = 1, (12/6)^alpha = 2^alpha, (24/6)^0.5 = 2.
    for alpha in (0.0, 0.6, 1.0):
        assert length_penalty(1, alpha) == pytest.approx(1)
        assert length_penalty(7, alpha) == pytest.approx(2**alpha)
    assert length_penalty(19, 0.5) == pytest.approx(2)
    assert length_penalty(7, 0.0) == 1
    torch.testing.assert_close(length_penalty(torch.tensor([1, 7, 19]), 0.5), torch.tensor([1, sqrt(2), 2]))
    # |Y| counts the end token: six pieces and it make seven; -3 over 2^1 is -1.5.
    assert Score(log_probability=-3.0, pieces=7).normalised(alpha=1.0) == pytest.approx(-1.5)
