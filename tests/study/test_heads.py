"""Removing a head removes what it found, and nothing else."""

import pytest
import torch

from dragoman.batch import Batch
from dragoman.decoding.translator import Translator
from dragoman.errors import ModelError
from dragoman.models.attention import KeysValues, MultiHeadAttention
from dragoman.models.recurrent import RecurrentConfig
from dragoman.study.heads import attentions, study_heads, without_head
from dragoman.study.scaling import study_scaling
from tests.oracles import peaked


@pytest.fixture
def attention() -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(11, heads=3, key_width=5, value_width=7).double()


def contributions(attention: MultiHeadAttention, x: torch.Tensor, seen: KeysValues) -> list[torch.Tensor]:
    """What each head adds, from its explicit weights and its columns of the output projection."""
    weights: list[torch.Tensor] = []
    attention(x, seen, None, weights)
    found = weights[0] @ seen.values
    return [found[:, head] @ attention.output.weight[:, 7 * head : 7 * head + 7].T for head in range(3)]


@pytest.mark.parametrize("head", [0, 1, 2])
def test_a_head_that_is_removed_takes_its_contribution_with_it(attention: MultiHeadAttention, head: int) -> None:
    x = torch.randn(2, 13, 11, dtype=torch.float64)
    seen = attention.keys_values(x)
    parts, whole = contributions(attention, x, seen), attention(x, seen, None)
    torch.testing.assert_close(sum(parts), whole)
    with without_head(attention, head):
        torch.testing.assert_close(attention(x, seen, None), whole - parts[head])


def test_removed_twice_is_removed_and_put_back_is_as_it_was(attention: MultiHeadAttention) -> None:
    before = attention.output.weight.detach().clone()
    with without_head(attention, 1):
        once = attention.output.weight.detach().clone()
        with without_head(attention, 1):
            assert torch.equal(attention.output.weight, once)
        assert torch.equal(attention.output.weight, once)
    assert torch.equal(attention.output.weight, before)
    with pytest.raises(KeyboardInterrupt), without_head(attention, 2):
        raise KeyboardInterrupt
    assert torch.equal(attention.output.weight, before)


def test_every_attention_of_a_model_is_found_where_its_weights_are_shown() -> None:
    model = peaked(0)
    batch = Batch.of([[4, 5, 6]], [[5, 4]])
    found = list(attentions(model))
    assert [(kind, layer) for kind, layer, _ in found] == [
        (kind, layer) for kind in ("encoder", "decoder", "cross") for layer in (0, 1)
    ]
    for kind, layer, attention in found:
        before = model.attention(batch)
        with torch.no_grad():
            attention.query.weight.mul_(2)
        after = model.attention(batch)
        assert not torch.equal(getattr(before, kind)[layer], getattr(after, kind)[layer])
        with torch.no_grad():
            attention.query.weight.div_(2)


def test_a_model_without_heads_is_refused(translator: Translator) -> None:
    vocabularies = translator.source_vocabulary, translator.target_vocabulary
    model = RecurrentConfig(width=12).build(len(vocabularies[1]))
    recurrent = Translator([model], *vocabularies, translator.decoding)
    with pytest.raises(ModelError, match="study heads: needs a Transformer"):
        study_heads(recurrent, ["12"], ["21"], "", lambda text: None)
    with pytest.raises(ModelError, match="study scaling: needs a model whose attention has heads"):
        study_scaling((recurrent, ["12"], ["21"]), "", lambda text: None)
