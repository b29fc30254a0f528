"""What each head of a Transformer does: how it looks, and what is lost without it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

import numpy as np

from dragoman.decoding.translator import Translator
from dragoman.errors import ModelError
from dragoman.evaluation.paired import Difference, ResampledBleu
from dragoman.models.attention import MultiHeadAttention
from dragoman.models.layers import DecoderLayer, EncoderLayer
from dragoman.models.transformer import Transformer
from dragoman.plots.charts import as_svg, draw_matrix, drawing
from dragoman.study.looking import KINDS, Looks, fitting_pairs, watch
from dragoman.study.report import Cell, Figure, Report, Table
from dragoman.study.setting import conditions, said
from dragoman.study.word_alignment import align

Say = Callable[[str], None]
MOST_NUMBERS = 64  # cells of a picture that can be read with a number in each


class Head(NamedTuple):
    """A head, how it looks, and how much BLEU its removal adds."""

    kind: str
    layer: int
    head: int
    looks: Looks
    removed: Difference


# By the name of the picture: what it says, its unit, and where the number is.
MEASURES: dict[str, tuple[str, str, Callable[[Head], float | None]]] = {
    "entropy": ("Entropy of the weights", "share of the largest", lambda head: head.looks.entropy),
    "distance": ("Mean distance looked", "positions", lambda head: head.looks.distance),
    "diagonal": ("Weight within one position of the diagonal", "share", lambda head: head.looks.diagonal),
    "alignment": ("Weight on linked pieces", "share", lambda head: head.looks.alignment),
    "removed": ("Change of BLEU with the head removed", "BLEU", lambda head: head.removed.bleu),
}


def study_heads(
    translator: Translator, sources: Sequence[str], references: Sequence[str], command: str, say: Say
) -> Report:
    """Watch every head at work on a text, and translate it without each."""
    model = translator.models[0]
    if not isinstance(model, Transformer):
        raise ModelError("study heads", "needs a Transformer with encoder and decoder, and this model is none")
    say("watching")
    pairs = fitting_pairs(translator, sources, references)
    links = align(*map(list, zip(*pairs, strict=True)))
    looks = watch(model, pairs, links)
    say("translating with all heads")
    whole = _score(translator, sources, references)
    heads = []
    for kind, layer, attention in attentions(model):
        for number in range(attention.heads):
            say(f"translating without head {number + 1} of {kind} layer {layer + 1}")
            with without_head(attention, number):
                removed = _score(translator, sources, references).minus(whole)
            heads.append(Head(kind, layer + 1, number + 1, looks[kind][layer][number], removed))
    even = {kind: layers[-1][0] for kind, layers in looks.items()}
    under, linked = conditions(model.device), sum(map(len, links)) / sum(len(target) for _, target in pairs)
    text = (
        f"{len(sources):,} pairs; all heads together: BLEU {whole.score:.2f} (greedy search). The links between pieces "
        f"are those that IBM Model 1, trained on this text alone, finds in both directions: {linked:.0%} of the target "
        "pieces have one."
    )
    found = [
        {"kind": each.kind, "layer": each.layer, "head": each.head, **each.looks._asdict(), **each.removed._asdict()}
        for each in heads
    ]
    results = {"study": "heads", "conditions": under, "pairs": len(sources), "bleu": whole.score, "linked": linked}
    results |= {"even": {kind: each._asdict() for kind, each in even.items()}, "heads": found}
    return Report("What each head does", command, [said(under), text, *_parts(heads, even)], results)


def attentions(model: Transformer) -> Iterator[tuple[str, int, MultiHeadAttention]]:
    """Every attention with its kind and its layer."""
    encoder, decoder = cast(list[EncoderLayer], model.encoder), cast(list[DecoderLayer], model.decoder)
    yield from (("encoder", number, layer.self_attention) for number, layer in enumerate(encoder))
    yield from (("decoder", number, layer.self_attention) for number, layer in enumerate(decoder))
    yield from (("cross", number, layer.cross_attention) for number, layer in enumerate(decoder))


@contextmanager
def without_head(attention: MultiHeadAttention, head: int) -> Iterator[None]:
    """Nothing of what a head found goes on: its columns of the output projection are zero, and then what they were."""
    weight = attention.output.weight
    share = weight.shape[1] // attention.heads
    columns = weight.data[:, head * share : (head + 1) * share]
    kept = columns.clone()
    columns.zero_()
    try:
        yield
    finally:
        columns.copy_(kept)


def _score(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> ResampledBleu:
    return ResampledBleu([each.text for each in translator.translate(sources)], references)


def _parts(heads: Sequence[Head], even: Mapping[str, Looks]) -> Iterator[str | Table | Figure]:
    lost = [each for each in heads if each.removed.is_significant and each.removed.bleu < 0]
    columns = ["attention", "layer", "head", "entropy", "distance", "diagonal", "alignment", "BLEU", "low", "high", ""]
    rows: list[list[Cell]] = []
    for kind in KINDS:
        rows += [_row(each) for each in heads if each.kind == kind]
        rows.append([kind, "even", "-", *_rounded(even[kind]), None, None, None, ""])
    note = (
        "Entropy as a share of that of even weights; distance in positions; diagonal (within one position of it) and "
        "alignment (on linked pieces) as shares of the weight. BLEU: its change when the head is removed, with the "
        "95 % interval of a paired bootstrap; *: the interval leaves out zero, as one in twenty would by chance. "
        f"{len(lost)} of {len(heads)} heads are missed when they are removed alone. Even: weights that choose nothing."
    )
    yield Table("Heads", columns, rows, note)
    for name, (title, unit, measure) in MEASURES.items():
        values: dict[str, list[tuple[Head, float]]] = {}
        for head in heads:
            if (value := measure(head)) is not None:
                values.setdefault(head.kind, []).append((head, value))
        if values:
            yield Figure(name, f"{title}, by layer and head.", head_maps(values, unit))


def _row(head: Head) -> list[Cell]:
    mark = "*" if head.removed.is_significant else ""
    change = [round(value, 2) for value in head.removed]
    return [head.kind, head.layer, head.head, *_rounded(head.looks), *change, mark]


def _rounded(looks: Looks) -> list[Cell]:
    return [None if value is None else round(value, 3) for value in looks]


def head_maps(values: Mapping[str, Sequence[tuple[Head, float]]], label: str) -> str:
    """Layers by heads, a panel an attention, one scale for all."""
    everything = [value for found in values.values() for _, value in found]
    low, high = min(everything), max(everything)
    high += low == high  # one colour for what is all alike
    layers = max(head.layer for found in values.values() for head, _ in found)
    with drawing(1.6 + 2.6 * len(values), 1.2 + 0.5 * layers) as figure:
        panels = figure.subplots(1, len(values), squeeze=False)[0]
        for axes, (kind, found) in zip(panels, values.items(), strict=True):
            grid = np.array([value for _, value in found]).reshape(max(head.layer for head, _ in found), -1)
            rows, columns = ([str(number + 1) for number in range(size)] for size in grid.shape)
            digits = 2 if grid.size <= MOST_NUMBERS else None
            image = draw_matrix(
                axes, grid.tolist(), rows, columns, colours="cividis", low=low, high=high, digits=digits
            )
            axes.set(title=kind, xlabel="head", ylabel="layer")
        figure.colorbar(image, ax=panels, label=label)
        return as_svg(figure)
