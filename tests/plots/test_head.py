"""One head explained: every matrix that is drawn is what the model computes."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.collections import QuadMesh
from matplotlib.text import Text

from dragoman.batch import Batch
from dragoman.decoding.translator import Translator
from dragoman.models.interface import Model
from dragoman.plots.charts import as_svg
from dragoman.plots.head import MOST_CHANNELS, MOST_PIECES, Head, draw_head, find_attentions, watch
from dragoman.recipe import Recipe

SOURCE, TARGET = [5, 6, 7, 9], [8, 4, 5]
SHAPE: dict[str, Any] = {"layers": 2, "width": 12, "hidden": 17, "heads": 4, "dropout": 0.0, "longest": 31}


def make(**keys: Any) -> Model:
    torch.manual_seed(3)
    values = {"model": {**SHAPE, **keys}, "training": {"row_length": 16}}
    return Recipe.model_validate(values).model.build(23).eval()


@pytest.mark.parametrize(
    "keys",
    [{}, {"key_heads": 2}, {"positions": "rotary"}, {"norm": "pre"}, {"key_width": 5, "value_width": 7}],
    ids=str,
)
@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_the_outputs_of_all_heads_mixed_are_what_the_attention_gives(keys: dict[str, Any], kind: Any) -> None:
    model, batch = make(**keys), Batch.of([SOURCE], [TARGET])
    attention = find_attentions(model, kind)[1]
    given: list[torch.Tensor] = []
    handle = attention.register_forward_hook(lambda module, _, output: given.append(output))
    heads = [watch(model, attention, batch, head) for head in range(4)]
    handle.remove()
    together = torch.cat([head.output for head in heads], dim=-1)
    torch.testing.assert_close(attention.output(together), given[0][0], rtol=1e-5, atol=1e-6)
    weights = getattr(model.attention(batch), kind)[1][0]
    torch.testing.assert_close(torch.stack([head.weights for head in heads]), weights)


def test_a_decoder_only_model_has_one_sequence_to_look_into() -> None:
    model = make(kind="language-model")
    attention = find_attentions(model, "encoder")[0]
    seen = watch(model, attention, Batch.of([SOURCE], [TARGET]), 2)
    assert len(seen.given) == len(SOURCE) + 1 + 1 + len(TARGET)
    assert not find_attentions(model, "cross")


def test_a_model_without_heads_has_none() -> None:
    assert not find_attentions(make_recurrent(), "encoder")
    assert not find_attentions(make_recurrent(), "cross")


def make_recurrent() -> Model:
    values = {
        "model": {"kind": "recurrent", "width": 8, "attention": "dot", "longest": 31},
        "training": {"row_length": 16},
    }
    return Recipe.model_validate(values).model.build(23)


def draw(translator: Translator, number: str) -> tuple[Head, Any]:
    maps = translator.attention(number, number[::-1])
    ids = translator.encode([number])[0], translator.target_vocabulary.encode([number[::-1]])[0]
    attention = find_attentions(translator.models[0], "encoder")[0]
    head = watch(translator.models[0], attention, Batch.of([ids[0]], [ids[1]]), 1)
    torch.testing.assert_close(head.weights, maps.encoder[0, 1])
    return head, draw_head(head, maps.source_pieces, maps.source_pieces, "X", "title")


def written(figure: Any) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def test_the_picture_shows_the_matrices_and_says_where_it_was_cut(translator: Translator) -> None:
    head, figure = draw(translator, "1234567890123")
    drawn = [np.asarray(axes.collections[0].get_array()) for axes in figure.axes if axes.collections]
    names = ("given", "query", "key", "value", "scores", "weights", "output")
    assert all(isinstance(axes.collections[0], QuadMesh) for axes in figure.axes if axes.collections)
    for name, matrix in zip(names, drawn, strict=True):
        width = MOST_PIECES if name in ("scores", "weights") else MOST_CHANNELS
        assert np.array_equal(matrix, getattr(head, name)[:MOST_PIECES, :width].numpy()), name
    said = written(figure)
    assert f"at most the first {MOST_PIECES} pieces and {MOST_CHANNELS} channels" in said
    assert f"{len(head.given)} \N{MULTIPLICATION SIGN} {head.given.shape[1]}" in said
    assert f"√{head.query.shape[1]}" in said
    assert "What may not be seen" not in said


def test_what_may_not_be_seen_is_explained_where_there_is_some() -> None:
    model, batch = make(), Batch.of([SOURCE], [TARGET])
    head = watch(model, find_attentions(model, "decoder")[0], batch, 0)
    pieces = list("abcdefgh")[: len(head.given)]
    assert "What may not be seen" in written(draw_head(head, pieces, pieces, "X", "title"))


def test_formulas_are_set_and_not_spelled(translator: Translator) -> None:
    picture = ElementTree.fromstring(as_svg(draw(translator, "12")[1]))
    shown = ["".join(element.itertext()) for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert not [text for text in shown if "^" in text or "$" in text or "mathbf" in text]
    assert sum("W" in text for text in shown) == 4  # of queries, keys, values and outputs


def test_nothing_of_the_watching_stays(translator: Translator, reverser: Path) -> None:
    draw(translator, "12")
    assert not any(module._forward_pre_hooks for module in translator.models[0].modules())
