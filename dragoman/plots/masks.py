"""Who may see whom (sections 3.1 and 3.2.3): causal, padded and packed rows, as the model's own masks say it.

Axes: B rows, Q queries, K keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dragoman.kernels.attention import Visible
from dragoman.plots.charts import COLOURS, draw_matrix, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EMPTY = "·"
FIRST = ["▁a", "▁black", "▁cat", "</s>"], ["<s>", "▁eine", "▁schwarze", "▁Katze"]
SECOND = ["▁it", "▁sleeps", "</s>"], ["<s>", "▁es", "▁schläft"]


@dataclass(frozen=True)
class Mask:
    """One mask with the pieces that look and those that are looked at; empty positions carry a dot."""

    title: str
    queries: Sequence[str]
    keys: Sequence[str]
    visible: Bool[Tensor, "Q K"]


def example_masks() -> list[Mask]:
    """One sentence, one that is padded, and two that share a row."""
    (source, target), (other_source, other_target) = FIRST, SECOND
    padded = [*source, EMPTY, EMPTY]
    sources, targets = [*source, *other_source, EMPTY], [*target, *other_target, EMPTY]
    return [
        _mask("causal: the decoder sees\nno later position", target, target, causal=True),
        _mask("padding: what is empty\nis not seen", padded, padded),
        _mask("packed, encoder: two sentences\nin one row see themselves alone", sources, sources),
        _mask("packed, decoder", targets, targets, causal=True),
        _mask("packed, cross-attention", targets, sources),
    ]


def draw_masks(masks: Sequence[Mask]) -> "Figure":
    """A square a pair of positions, filled where the row's piece may see the column's."""
    from matplotlib.colors import to_rgba

    with drawing(10.5, 7.8) as figure:
        grid = figure.subplots(2, 3)
        figure.set_layout_engine("constrained", w_pad=0.15, h_pad=0.15)
        for axes, mask in zip(grid.flat, masks, strict=False):
            mesh = draw_matrix(axes, mask.visible.int().tolist(), mask.queries, mask.keys)
            colours = [COLOURS[0] if seen else "#eeeeee" for seen in mask.visible.flatten().tolist()]
            mesh.set_array(None)
            mesh.set_facecolor([to_rgba(colour) for colour in colours])
            axes.set_aspect("equal")
            axes.set_title(mask.title, fontsize=10)
        grid.flat[-1].set_axis_off()
        for place, (colour, text) in enumerate(((COLOURS[0], "seen"), ("#eeeeee", "hidden"))):
            grid.flat[-1].bar(0, 0, color=colour, label=text, zorder=place)
        grid.flat[-1].legend(loc="center left", title="The piece of a row looks at\nthe pieces of the columns")
        return figure


def _mask(title: str, queries: Sequence[str], keys: Sequence[str], causal: bool = False) -> Mask:
    visible = Visible.same_sentence(_segments(queries), _segments(keys), causal=causal)
    return Mask(title, queries, keys, visible.mask[0])


def _segments(pieces: Sequence[str]) -> Int[Tensor, "B S"]:
    """Sentences of a row, counted from 1: a source ends with </s>, a target begins with <s>."""
    segments, now = [], 1
    for place, piece in enumerate(pieces):
        if place > 0 and (piece == "<s>" or pieces[place - 1] == "</s>"):
            now += 1
        segments.append(0 if piece == EMPTY else now)
    return torch.tensor([segments])
