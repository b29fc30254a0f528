"""Hello World, byte by byte, through the base model of the paper as it is born."""

import pytest
import torch
from torch import Tensor

from dragoman.batch import EOS, Batch, Side
from dragoman.models.transformer import Transformer, TransformerConfig

SPECIALS = 4
HELLO = [SPECIALS + byte for byte in b"Hello World"] + [EOS]
HALLO = [SPECIALS + byte for byte in "Hallo Welt, schön".encode()]


@pytest.fixture(scope="module")
def base() -> Transformer:
    torch.manual_seed(0)
    return Transformer(TransformerConfig(), SPECIALS + 256).eval()


def test_the_base_encoder_reads_hello_world_with_six_layers_of_eight_heads(base: Transformer) -> None:
    weights: list[Tensor] = []
    with torch.inference_mode():
        memory = base.encode(Side.of([HELLO]), weights)
    assert memory.states.shape == (1, 12, 512)
    assert [tuple(each.shape) for each in weights] == [(1, 8, 12, 12)] * 6
    for each in weights:
        assert (each > 0).all()  # every byte looks at every byte
        torch.testing.assert_close(each.sum(-1), torch.ones(1, 8, 12))
    # Post-norm: the last thing that happened to every position is a layer norm.
    torch.testing.assert_close(memory.states.mean(-1), torch.zeros(1, 12), atol=1e-5, rtol=0)
    torch.testing.assert_close(memory.states.var(-1, unbiased=False), torch.ones(1, 12), atol=1e-3, rtol=0)


def test_the_heads_of_the_base_model_look_each_in_its_own_way(base: Transformer) -> None:
    weights: list[Tensor] = []
    with torch.inference_mode():
        base.encode(Side.of([HELLO]), weights)
    maps = torch.cat(weights).flatten(0, 1)
    apart = (maps[:, None] - maps[None]).abs().amax(dim=(2, 3)) + torch.eye(48)
    assert apart.min() > 1e-3


def test_the_base_model_writes_with_every_byte_of_the_source_in_view(base: Transformer) -> None:
    batch = Batch.of([HELLO[:-1]], [HALLO])
    assert len(HALLO) == 18
    with torch.inference_mode():
        maps = base.attention(batch)
        logits = base.project(base(batch))
    assert logits.shape == (1, 19, 260)
    assert [len(layers) for layers in maps] == [6, 6, 6]
    for cross, back in zip(maps.cross, maps.decoder, strict=True):
        assert cross.shape == (1, 8, 19, 12)
        assert back.shape == (1, 8, 19, 19)
        assert not back.triu(diagonal=1).any()
        for each in (cross, back):
            torch.testing.assert_close(each.sum(-1), torch.ones(1, 8, 19))


def test_the_base_model_begins_unsure(base: Transformer) -> None:
    # A hidden state of norm sqrt(512) times embeddings N(0, 1/512): logits of variance about one. The entropy of
    # softmax over v logits N(0, s^2) is about ln v - s^2 / 2; far below it, or at it, the scaling would be wrong.
    with torch.inference_mode():
        probabilities = base.project(base(Batch.of([HELLO[:-1]], [HALLO]))).softmax(-1)
    entropy = torch.special.entr(probabilities).sum(-1).mean().item()
    largest = torch.tensor(260.0).log().item()
    assert largest - 1.5 < entropy < largest - 0.1
