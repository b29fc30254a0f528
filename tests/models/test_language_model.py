"""A decoder-only Transformer: one sequence, one stack, and the sizes of the famous ones."""

import pytest
import torch
from torch import Tensor

from dragoman.batch import Batch
from dragoman.config import check
from dragoman.errors import ConfigError
from dragoman.models.language_model import LanguageModel, LanguageModelConfig
from dragoman.recipe import Recipe, read_recipe
from tests.laws.test_models import SOURCES, TARGETS, packed

VOCABULARY = 31


def make(**changes: object) -> LanguageModel:
    torch.manual_seed(0)
    values = {"layers": 2, "width": 12, "hidden": 17, "heads": 4, "dropout": 0.0, "longest": 41, **changes}
    return LanguageModel(LanguageModelConfig.model_validate(values), VOCABULARY).double().eval()


def plainly(model: LanguageModel, source: list[int], target: list[int]) -> Tensor:
    """Source and target written out as one sequence by hand, layer by layer with an explicit causal mask."""
    one = Batch.of([source], [target])
    ids = torch.cat((one.source.ids, one.target.ids), dim=1)
    x = model.positions(model.target_embedding(ids) * 12**0.5, torch.arange(ids.shape[1])[None])
    causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
    for layer in model.layers:
        attention, y = layer.self_attention, layer.self_attention_residual.norm(x)
        query, key, value = (
            part(y).view(1, -1, 4, 3).transpose(1, 2) for part in (attention.query, attention.key, attention.value)
        )
        scores = (query @ key.transpose(2, 3) / 3**0.5).masked_fill(~causal, -torch.inf)
        x = x + attention.output((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))
        x = x + layer.feed_forward(layer.feed_forward_residual.norm(x))
    return model.norm(x)[0, one.source.ids.shape[1] :]


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_it_is_one_causal_sequence_of_source_separator_and_target(positions: str) -> None:
    model, rows = make(positions=positions), [[2, 0], [3, 1]]
    hidden = model(packed(rows, 17, 13))
    for row, pairs in enumerate(rows):
        start = 0
        for pair in pairs:
            expected = plainly(model, SOURCES[pair], TARGETS[pair])
            torch.testing.assert_close(hidden[row, start : start + len(expected)], expected, rtol=1e-9, atol=1e-9)
            start += len(expected)


def test_a_pair_may_take_twice_as_many_positions_as_a_sentence() -> None:
    model = make(longest=7)
    batch = Batch.of([[5, 6, 7, 8, 9, 10]], [[11, 12, 13, 14, 15, 16]])
    memory = model.encode(batch.source)
    state = model.start(memory, 1)
    for position, tokens in enumerate(batch.target.ids.T):
        logits, state = model.step(tokens, state, memory)
        expected = model.project(model(batch))[:, position]
        torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)


def test_a_source_position_does_not_see_a_later_one() -> None:
    model = make()
    maps = model.attention(Batch.of(SOURCES, TARGETS))
    for weights in maps.encoder:
        assert not weights.triu(1).any()
        assert (weights[1, :, 3, :4] > 0).all()


@pytest.mark.parametrize(
    ("name", "pieces", "millions"),
    [("gpt-2-xl", 50257, 1_558), ("megatron-lm", 51200, 8_300), ("gpt-3", 50257, 175_000)],
)
def test_the_famous_ones_have_as_many_parameters_as_published(name: str, pieces: int, millions: int) -> None:
    with torch.device("meta"):
        model = read_recipe(f"sizes/{name}").model.build(pieces)
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(millions * 1e6, rel=0.01)


def test_heads_divide_the_width() -> None:
    with pytest.raises(ConfigError, match=r"'model.heads' = 5 does not divide 'model.width' = 12"):
        check(Recipe, {"model": {"kind": "language-model", "width": 12, "heads": 5}}, "here")
