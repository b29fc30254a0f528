"""What makes the recurrent systems what they are, each by a law of its own."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dragoman.batch import BOS, Batch, Side
from dragoman.config import check
from dragoman.errors import ConfigError
from dragoman.models.lstmn import Lstmn, LstmnConfig
from dragoman.models.recurrent import Recurrent, RecurrentConfig
from dragoman.recipe import Recipe

VOCABULARY = 23
SOURCE, TARGET = [5, 6, 7, 8, 9], [10, 11, 12]


def make(seed: int = 0, **changes: Any) -> Recurrent:
    torch.manual_seed(seed)
    config = RecurrentConfig.model_validate({"width": 10, "layers": 2, "dropout": 0.0, **changes})
    return Recurrent(config, VOCABULARY).double().eval()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_reading_backward_is_reading_the_reversed_source(cell: str) -> None:
    forward, backward = (make(cell=cell, reads=way) for way in ("forward", "backward"))
    backward.load_state_dict(forward.state_dict())
    one, other = forward.encode(Side.of([SOURCE[::-1]])), backward.encode(Side.of([SOURCE]))
    close(one.states.flip(1), other.states)
    for layer in range(2):
        close(one.parts[f"cell.{layer}"], other.parts[f"cell.{layer}"])


@pytest.mark.parametrize(("attention", "is_fixed"), [("none", True), ("dot", False), ("additive", False)])
def test_without_attention_all_goes_through_one_vector(attention: str, is_fixed: bool) -> None:
    model = make(attention=attention)
    memory = model.encode(Side.of([SOURCE]))
    tokens = torch.tensor([BOS])
    expected, _ = model.step(tokens, model.start(memory, 1), memory)
    state = model.start(memory, 1)
    for tensor in (memory.states, memory.parts["prepared"]):
        tensor.data.normal_()
    found, _ = model.step(tokens, state, memory)
    assert torch.equal(found, expected) == is_fixed


@pytest.mark.parametrize(("summary", "is_told"), [("first", False), ("always", True)])
def test_what_is_told_always_reaches_a_decoder_that_forgets(summary: str, is_told: bool) -> None:
    model = make(cell="rnn", summary=summary)
    for cell in model.decoder:
        nn.init.zeros_(cell.cell.weight_hh)
    one, other = (model(Batch.of([source], [TARGET]))[0, 1:] for source in (SOURCE, SOURCE[:-1]))
    assert torch.allclose(one, other) == (not is_told)


def test_silent_layers_of_a_residual_stack_let_the_first_through() -> None:
    deep, shallow = make(layers=3, residual=True), make(layers=1)
    shallow.load_state_dict(deep.state_dict(), strict=False)
    for part in (deep.encoder, deep.decoder):
        for layer in part[1:]:
            for parameter in layer.parameters():
                nn.init.zeros_(parameter)
    batch = Batch.of([SOURCE], [TARGET])
    close(deep(batch), shallow(batch))
    plain = make(layers=3)
    plain.load_state_dict(deep.state_dict())
    assert not torch.allclose(plain(batch), shallow(batch))


def test_looking_before_a_step_does_not_know_the_piece_it_reads() -> None:
    # Bahdanau et al. look with the state before the step; Luong et al. with the one after it.
    for looks, is_same in (("before", True), ("after", False)):
        model = make(attention="additive", looks=looks)
        weights = [model.attention(Batch.of([SOURCE], [[piece, 11]])).cross[0][0, 0] for piece in (10, 13)]
        close(weights[0][0], weights[1][0])
        assert torch.equal(weights[0][1], weights[1][1]) == is_same


def test_two_directions_need_an_even_width() -> None:
    with pytest.raises(ConfigError, match=r"'model.reads' = 'both' needs an even 'model.width', got 7"):
        check(Recipe, {"model": {"kind": "recurrent", "width": 7, "reads": "both"}}, "here")


def test_an_lstmn_that_can_look_back_at_one_state_alone_is_an_lstm() -> None:
    torch.manual_seed(0)
    model = Lstmn(LstmnConfig(width=10, dropout=0.0), VOCABULARY).double().eval()
    pair, cell = Side.of([SOURCE[:2]]), model.encoder.cell
    embedded = model.source_embedding(pair.ids) * 10**0.5
    state = None
    for now in range(2):
        state = cell(embedded[:, now], state)
    assert state is not None
    close(model.encode(pair).states[:, 1], state[0])
    three = model.encode(Side.of([SOURCE[:3]])).states[:, 2]
    third = model.source_embedding(torch.tensor([SOURCE[2]])) * 10**0.5
    assert not torch.allclose(three, cell(third, state)[0])


def test_an_lstmn_looks_at_the_source_with_the_state_before_the_step() -> None:
    torch.manual_seed(0)
    model = Lstmn(LstmnConfig(width=10, dropout=0.0), VOCABULARY).double().eval()
    one, other = (model.attention(Batch.of([SOURCE], [[piece, 11]])).cross[0][0, 0] for piece in (10, 13))
    assert not torch.equal(one[0], one[1])  # the first look knows nothing yet
    assert torch.equal(one[1], other[1])
    assert not torch.equal(one[2], other[2])
