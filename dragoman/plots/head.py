"""One attention head from what it is given to what it finds (Figure 2, equation 1), with the numbers of a model.

Axes: B rows, H heads, Q queries, K keys, D width, C channels of a head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dragoman.batch import Batch
from dragoman.kernels.attention import attention_weights
from dragoman.models.attention import KeysValues, MultiHeadAttention
from dragoman.models.interface import Model
from dragoman.models.positions import Turn, unturned
from dragoman.plots.charts import TIMES, draw_matrix, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec

MOST_PIECES, MOST_CHANNELS = 8, 6  # of a matrix that can still be read


@dataclass(frozen=True)
class Head:
    """Every matrix of one head on one sentence, in the order of equation 1."""

    given: Float[Tensor, "Q D"]
    query: Float[Tensor, "Q C"]
    key: Float[Tensor, "K C"]
    value: Float[Tensor, "K _"]
    scores: Float[Tensor, "Q K"]
    weights: Float[Tensor, "Q K"]
    output: Float[Tensor, "Q _"]


def find_attentions(model: Model, kind: Literal["cross", "encoder", "decoder"]) -> list[MultiHeadAttention]:
    """The attention of each layer, from the first to the last; none where a model has no heads there.

    A decoder-only model has one stack, which stands for its encoder.
    """
    layers = getattr(model, "decoder" if kind != "encoder" else "layers" if hasattr(model, "layers") else "encoder", [])
    if not isinstance(layers, nn.ModuleList):
        return []
    found = [getattr(layer, "cross_attention" if kind == "cross" else "self_attention", None) for layer in layers]
    return [each for each in found if isinstance(each, MultiHeadAttention)]


@torch.inference_mode()
def watch(model: Model, attention: MultiHeadAttention, batch: Batch, head: int) -> Head:
    """What one head computes while the model reads a pair; counted from 0."""
    caught: list[tuple[Any, ...]] = []
    handle = attention.register_forward_pre_hook(lambda module, given: caught.append(given))
    try:
        model.attention(batch)
    finally:
        handle.remove()
    return _explain(attention, head, *caught[0])


def _explain(
    attention: MultiHeadAttention,
    head: int,
    given: Float[Tensor, "B Q D"],
    seen: KeysValues,
    visible: Any,
    _: Any = None,
    turn: Turn = unturned,
) -> Head:
    query = turn(attention.split(attention.query(given), attention.heads))[:, head : head + 1]
    shared = head * attention.key_heads // attention.heads  # heads may share keys and values
    key, value = (each[:, shared : shared + 1] for each in seen)
    weights = attention_weights(query, key, visible)
    scores = query @ key.transpose(-2, -1) / sqrt(query.shape[-1])
    matrices = (query, key, value, scores, weights, weights @ value)
    return Head(*(each.float().cpu() for each in (given[0], *(matrix[0, 0] for matrix in matrices))))


def draw_head(head: Head, queries: Sequence[str], keys: Sequence[str], asked_of: str, title: str) -> "Figure":
    """X, then Q, K and V, then scores, weights and output, each with its numbers and its size."""
    asking, asked = queries[:MOST_PIECES], keys[:MOST_PIECES]
    root = f"√{head.query.shape[1]}"
    panels = [
        ((0, 0), "X", head.given, asking, None),
        ((0, 1), r"Q = X $\mathbf{W^Q}$", head.query, asking, None),
        ((0, 2), rf"K = {asked_of} $\mathbf{{W^K}}$", head.key, asked, None),
        ((0, 3), rf"V = {asked_of} $\mathbf{{W^V}}$", head.value, asked, None),
        ((1, 0), f"scores = Q Kᵀ / {root}", head.scores, asking, asked),
        ((1, 1), "weights = softmax(scores)", head.weights, asking, asked),
        ((1, 2), "output = weights V", head.output, asking, None),
    ]
    with drawing(15.0, 2.4 + 0.36 * (len(asking) + max(len(asking), len(asked)))) as figure:
        grid = figure.add_gridspec(2, 4)
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
        for (row, column), name, matrix, rows, columns in panels:
            _draw_panel(figure, grid[row, column], name, matrix, rows, columns)
        axes = figure.add_subplot(grid[1, 3])
        axes.set_axis_off()
        axes.text(0, 0.5, _explanation(head, len(queries), len(keys)), va="center", linespacing=1.6, fontsize=9)
        figure.suptitle(title)
        return figure


def _draw_panel(
    figure: "Figure",
    place: "SubplotSpec",
    name: str,
    matrix: Float[Tensor, "Q _"],
    rows: Sequence[str],
    columns: Sequence[str] | None,
) -> None:
    axes = figure.add_subplot(place)
    width = len(columns) if columns is not None else min(MOST_CHANNELS, matrix.shape[1])
    shown = matrix[: len(rows), :width]
    headings = columns if columns is not None else [str(channel) for channel in range(1, width + 1)]
    limit = max(float(shown.abs().max()), 1e-6)
    look: dict[str, Any] = {"colours": "RdBu_r", "low": -limit, "high": limit}
    if name.startswith("weights"):
        look = {"colours": "Blues", "low": 0.0, "high": 1.0}
    draw_matrix(axes, shown.tolist(), rows, headings, digits=2, **look)
    if columns is None:
        axes.tick_params(axis="x", rotation=0)
    axes.set_title(f"{name}\n{matrix.shape[0]} {TIMES} {matrix.shape[1]}", fontsize=9, fontweight="bold")


def _explanation(head: Head, queries: int, keys: int) -> str:
    lines = [
        "Each row of X asks with its query;",
        "a score says how well it agrees with a key;",
        "the softmax makes weights of a row's scores;",
        "they sum to 1, and the output is the mean",
        "of the values with these weights.",
        "$W^O$ then mixes the outputs of all heads.",
    ]
    if (head.weights == 0).any():
        lines += ["", "What may not be seen has weight 0, whatever its score."]
    if max(queries, keys) > MOST_PIECES or max(head.given.shape[1], head.value.shape[1]) > MOST_CHANNELS:
        lines += [
            "",
            f"Shown: at most the first {MOST_PIECES} pieces and {MOST_CHANNELS} channels;",
            "the size stands above each.",
        ]
    return "\n".join(lines)
