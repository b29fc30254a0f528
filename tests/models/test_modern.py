"""The parts that came after the paper, each by what it is."""

from math import cos, sin

import pytest
import torch
from torch import Tensor, nn

from dragoman.batch import Batch
from dragoman.config import check
from dragoman.errors import ConfigError
from dragoman.kernels.attention import Visible
from dragoman.models.attention import MultiHeadAttention
from dragoman.models.layers import FeedForward, GatedFeedForward, Residual
from dragoman.models.positions import Positions, rotate
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.recipe import Recipe, read_recipe

VOCABULARY = 29


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def count(**changes: object) -> int:
    config = TransformerConfig.model_validate({"layers": 3, "width": 12, "hidden": 17, "heads": 4, **changes})
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config, VOCABULARY).parameters())


def test_a_rotation_by_hand() -> None:
    # Two pairs of channels: the first turns by 1 a position, the second by 10000^(-1/2) = 0.01.
    x = torch.tensor([1.0, 0.0, 0.0, 1.0]).expand(1, 1, 3, 4)
    found = rotate(x, torch.tensor([[0, 1, 2]]))[0, 0]
    for position in range(3):
        slow = 0.01 * position
        close(found[position], torch.tensor([cos(position), sin(position), -sin(slow), cos(slow)]))


def test_turned_queries_and_keys_agree_by_how_far_apart_they_stand() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 3, 1, 7).unbind(0)
    for distance in (0, 2, 5):
        scores = [
            (rotate(query, torch.tensor([[start + distance]])) * rotate(key, torch.tensor([[start]]))).sum(-1)
            for start in (0, 3, 41)
        ]
        close(scores[1], scores[0])
        close(scores[2], scores[0])
    assert not torch.allclose(scores[0], (query * key).sum(-1))


def test_rotary_positions_leave_the_embeddings_alone_and_have_no_weights() -> None:
    embedded, places = torch.randn(2, 5, 12), torch.arange(5).expand(2, 5)
    rotary = Positions("rotary", 41, 12)
    assert torch.equal(rotary(embedded, places), embedded)
    assert not list(rotary.parameters())
    sinusoidal = Positions("sinusoidal", 41, 12)
    assert torch.equal(sinusoidal.turning(places)(embedded), embedded)


def test_order_matters_with_rotary_positions_alone() -> None:
    states = []
    for positions in ("rotary", "none"):
        torch.manual_seed(0)
        config = TransformerConfig(layers=1, width=12, hidden=17, heads=2, positions=positions)  # type: ignore[arg-type]
        model = Transformer(config, VOCABULARY).eval()
        one, other = (model(Batch.of([source], [[9, 10]])) for source in ([5, 6, 7], [6, 5, 7]))
        states.append(torch.allclose(one, other, atol=1e-6))
    assert states == [False, True]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_heads_of_a_group_see_the_same_keys_and_values(groups: int) -> None:
    torch.manual_seed(0)
    shared = MultiHeadAttention(12, 4, 3, 5, groups)
    full = MultiHeadAttention(12, 4, 3, 5)
    spread = {
        name: weight.view(groups, -1, 12).repeat_interleave(4 // groups, dim=0).flatten(0, 1)
        if name.partition(".")[0] in ("key", "value")
        else weight
        for name, weight in shared.state_dict().items()
    }
    full.load_state_dict(spread)
    x, segments = torch.randn(2, 7, 12), torch.ones(2, 7, dtype=torch.long)
    visible = Visible.same_sentence(segments, segments, causal=True)
    close(shared(x, shared.keys_values(x), visible), full(x, full.keys_values(x), visible))
    assert shared.keys_values(x).keys.shape == (2, groups, 7, 3)


def test_key_heads_divide_heads() -> None:
    with pytest.raises(ConfigError, match=r"'model.key_heads' = 3 does not divide 'model.heads' = 4"):
        check(Recipe, {"model": {"width": 12, "heads": 4, "key_heads": 3}}, "here")


def test_a_gated_feed_forward_by_hand() -> None:
    layer = GatedFeedForward(1, 1)
    with torch.no_grad():
        for parameter, value in zip((layer.gate, layer.expand, layer.contract), (2.0, 3.0, 5.0), strict=True):
            parameter.weight.fill_(value)
        found = layer(torch.tensor([[[0.5]]])).item()
    assert found == pytest.approx(5 * (1 / (1 + 2.718281828459045**-1)) * 1.5, rel=1e-6)  # silu(1) = sigmoid(1)


def test_rms_divides_by_the_root_mean_square_and_shifts_nothing() -> None:
    residual = Residual(2, 0.0, "post", "rms")
    found = residual(torch.tensor([[[3.0, 4.0]]]), torch.zeros_like)
    close(found, torch.tensor([[[3.0, 4.0]]]) / 12.5**0.5)
    assert [name for name, _ in residual.named_parameters()] == ["norm.weight"]


def test_parameters_are_what_the_parts_say() -> None:
    base, width, hidden, layers = count(), 12, 17, 3
    norms = 5 * layers  # two in an encoder layer, three in a decoder layer
    assert count(norm_kind="rms") == base - norms * width
    assert count(norm="pre", norm_kind="rms") == count(norm="pre") - (norms + 2) * width
    assert count(feed_forward="swiglu") == base + 2 * layers * (width * hidden - hidden - width)
    assert count(positions="rotary") == base
    assert count(key_heads=1) == base - 3 * layers * 2 * width * (width - width // 4)
    decoder_layer = 8 * width**2 + 2 * width * hidden + hidden + width + 3 * 2 * width
    assert count(decoder_layers=1) == base - 2 * decoder_layer


def test_every_part_is_one_key_and_the_paper_is_what_one_gets_without_them() -> None:
    paper = read_recipe("base").model
    assert isinstance(paper, TransformerConfig)
    assert (paper.norm, paper.norm_kind, paper.feed_forward, paper.positions) == ("post", "layer", "relu", "sinusoidal")
    assert paper.key_heads is paper.decoder_layers is paper.window is None
    model = Transformer(TransformerConfig(layers=1, width=12, hidden=17, heads=4), VOCABULARY)
    assert isinstance(model.encoder[0].feed_forward, FeedForward)
    assert isinstance(model.encoder[0].feed_forward_residual.norm, nn.LayerNorm)
