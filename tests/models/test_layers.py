"""The layers of Figure 1, composed by hand from their sublayers."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from dragoman.kernels.attention import Visible
from dragoman.models.attention import KeysValues, MultiHeadAttention
from dragoman.models.layers import BatchNorm, DecoderLayer, EncoderLayer, FeedForward, NormPlace, Residual

ROWS, SOURCE, TARGET = 2, 19, 23
# width, heads, key width, value width: keys unlike values, and one head of the full width
SHAPES = [(11, 3, 5, 7), (13, 1, 13, 13)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=["narrow heads", "one full head"])
each_norm = pytest.mark.parametrize("norm", ["post", "pre"])


def randomise(module: nn.Module) -> nn.Module:
    """Random gains and biases too, so that none of them can be left out or swapped unseen."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double().eval()


def make(kind: Callable[..., nn.Module], shape: tuple[int, int, int, int], norm: NormPlace) -> nn.Module:
    torch.manual_seed(sum(shape))
    width = shape[0]
    parts = (partial(MultiHeadAttention, *shape), partial(FeedForward, width, 17), partial(Residual, width, 0.3, norm))
    return randomise(kind(*parts))


def draw(width: int) -> tuple[Tensor, Tensor, Tensor, Visible, Visible]:
    """Source states, target states, the sources' segments, who sees whom among them, and earlier targets."""
    source = torch.randn(ROWS, SOURCE, width, dtype=torch.float64)
    target = torch.randn(ROWS, TARGET, width, dtype=torch.float64)
    segments = torch.ones(ROWS, SOURCE, dtype=torch.long)
    segments[1, 5:] = 2
    segments[1, 11:] = 0
    targets = torch.ones(ROWS, TARGET, dtype=torch.long)
    earlier = Visible.same_sentence(targets, targets, causal=True)
    return source, target, segments, Visible.same_sentence(segments, segments), earlier


def first_sentence(segments: Tensor) -> Visible:
    """One query a row, which sees the first sentence."""
    return Visible.same_sentence(torch.ones(len(segments), 1, dtype=torch.long), segments)


def around(norm: NormPlace, place: Residual, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    """Section 3.1: LayerNorm(x + Sublayer(x)); pre-norm: x + Sublayer(LayerNorm(x))."""
    return place.norm(x + sublayer(x)) if norm == "post" else x + sublayer(place.norm(x))


@each_norm
@each_shape
def test_an_encoder_layer_is_attention_then_feed_forward(shape: tuple[int, int, int, int], norm: NormPlace) -> None:
    layer = make(EncoderLayer, shape, norm)
    assert isinstance(layer, EncoderLayer)
    x, _, _, seen, _ = draw(shape[0])
    look = layer.self_attention
    expected = around(norm, layer.self_attention_residual, x, lambda y: look(y, look.keys_values(y), seen))
    expected = around(norm, layer.feed_forward_residual, expected, layer.feed_forward)
    torch.testing.assert_close(layer(x, seen), expected)


@each_norm
@each_shape
def test_a_decoder_layer_looks_back_then_at_the_source_then_feeds_forward(
    shape: tuple[int, int, int, int], norm: NormPlace
) -> None:
    layer = make(DecoderLayer, shape, norm)
    assert isinstance(layer, DecoderLayer)
    source, x, segments, _, earlier = draw(shape[0])
    back, across = layer.self_attention, layer.cross_attention
    memory, memory_visible = across.keys_values(source), first_sentence(segments)
    expected = around(norm, layer.self_attention_residual, x, lambda y: back(y, back.keys_values(y), earlier))
    expected = around(norm, layer.cross_attention_residual, expected, lambda y: across(y, memory, memory_visible))
    expected = around(norm, layer.feed_forward_residual, expected, layer.feed_forward)
    torch.testing.assert_close(layer(x, earlier, memory, memory_visible), expected)


@each_norm
@each_shape
def test_the_residual_carries_the_input_past_silent_sublayers(
    shape: tuple[int, int, int, int], norm: NormPlace
) -> None:
    width = shape[0]
    source, target, segments, seen, earlier = draw(width)
    encoder, decoder = make(EncoderLayer, shape, norm), make(DecoderLayer, shape, norm)
    for layer in (encoder, decoder):
        for name, parameter in layer.named_parameters():
            if "output" in name or "contract" in name:
                nn.init.zeros_(parameter)
    assert isinstance(decoder, DecoderLayer)
    memory = decoder.cross_attention.keys_values(source)
    for layer, x, found in (
        (encoder, source, encoder(source, seen)),
        (decoder, target, decoder(target, earlier, memory, first_sentence(segments))),
    ):
        norms = [module for module in layer.modules() if isinstance(module, nn.LayerNorm)]
        assert len(norms) == (2 if layer is encoder else 3)
        for place in norms if norm == "post" else []:
            x = place(x)
        torch.testing.assert_close(found, x)


@each_shape
def test_the_hypotheses_of_a_sentence_share_its_one_row_of_memory(shape: tuple[int, int, int, int]) -> None:
    layer = make(DecoderLayer, shape, "post")
    assert isinstance(layer, DecoderLayer)
    source, _, segments, *_ = draw(shape[0])
    beam = 29
    x = torch.randn(ROWS * beam, 1, shape[0], dtype=torch.float64)
    memory, visible = layer.cross_attention.keys_values(source), first_sentence(segments)
    copied = KeysValues(*(each.repeat_interleave(beam, dim=0) for each in memory))
    expected = layer(x, None, copied, first_sentence(segments.repeat_interleave(beam, dim=0)))
    torch.testing.assert_close(layer(x, None, memory, visible), expected)


class Untouched(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return x


@each_norm
def test_dropout_touches_the_sublayer_and_never_what_is_carried_past_it(norm: NormPlace) -> None:
    torch.manual_seed(0)
    residual = Residual(7, 0.5, norm).train()
    residual.norm = Untouched(7)
    x = torch.randn(3, 101, 7)
    added = residual(x, torch.ones_like) - x
    # What is kept is doubled, so that the expectation stays: each is 0 or 1 / (1 - 0.5).
    kept = added.round(decimals=4)
    assert set(kept.flatten().tolist()) == {0.0, 2.0}
    # 2121 fair coins: five standard deviations of the share are 5 * 0.5 / sqrt(2121) = 0.054.
    assert abs((kept > 0).float().mean().item() - 0.5) < 0.054
    residual.eval()
    torch.testing.assert_close(residual(x, torch.ones_like), x + 1)


def test_feed_forward_treats_every_position_alike_and_alone() -> None:
    torch.manual_seed(0)
    feed_forward = randomise(FeedForward(11, 17))
    x = torch.randn(2, 5, 11, dtype=torch.float64)
    together = feed_forward(x)
    for position in range(5):
        torch.testing.assert_close(feed_forward(x[:, position : position + 1])[:, 0], together[:, position])
    order = torch.randperm(5)
    torch.testing.assert_close(feed_forward(x[:, order]), together[:, order])


def test_batch_and_layer_norm_worked_by_hand() -> None:
    x = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
    # Each channel has mean 3 or 4 and variance (4 + 0 + 4) / 3; each position is 1/2 to both sides of its mean.
    batch, outer = BatchNorm(2, epsilon=0.0).train(), 2 / (8 / 3) ** 0.5
    expected = torch.tensor([[[-outer, -outer], [0.0, 0.0], [outer, outer]]])
    torch.testing.assert_close(batch(x), expected)
    torch.testing.assert_close(nn.LayerNorm(2, eps=0.0)(x), torch.tensor([[[-1.0, 1.0]] * 3]))
    # A tenth of the way from 0 and 1 to what was counted.
    torch.testing.assert_close(batch.mean, torch.tensor([0.3, 0.4]))
    torch.testing.assert_close(batch.variance, torch.full((2,), 0.9 + 0.1 * 8 / 3))
    torch.testing.assert_close(batch.eval()(x), (x - batch.mean) / batch.variance.sqrt())


def test_a_batch_norm_lets_later_positions_in_while_it_trains_and_not_at_evaluation() -> None:
    norm, x = BatchNorm(3), torch.randn(2, 5, 3)
    changed = x.clone()
    changed[:, 4] += 7.0
    assert not norm.train()(x)[:, :4].allclose(norm(changed)[:, :4])
    assert norm.eval()(x)[:, :4].equal(norm(changed)[:, :4])


def test_an_empty_row_leaves_a_batch_norm_finite() -> None:
    norm, nothing = BatchNorm(3).train(), torch.zeros(1, 5, dtype=torch.long)
    assert norm(torch.randn(1, 5, 3), Visible.same_sentence(nothing, nothing)).isfinite().all()
    assert norm.variance.isfinite().all()


@each_norm
def test_without_a_residual_nothing_is_carried_past_silent_sublayers(norm: NormPlace) -> None:
    x = torch.randn(2, 5, 7)
    silent = Residual(7, 0.0, norm, "none", carries=False)(x, torch.zeros_like)
    assert not silent.any()
    torch.testing.assert_close(Residual(7, 0.0, norm, "none")(x, torch.zeros_like), x)
