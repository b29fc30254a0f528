"""The boxes that systems have in common, with the widths and counts of the model itself."""

from typing import cast

from torch import nn

from dragoman.models.interface import Model
from dragoman.models.layers import BatchNorm
from dragoman.models.positions import Positions
from dragoman.plots.blueprint import Block, Blueprint, Column, Link, Stack
from dragoman.plots.charts import TIMES

NORM_NAMES: dict[type[nn.Module], str] = {nn.LayerNorm: "layer norm", nn.RMSNorm: "RMS norm", BatchNorm: "batch norm"}


def count(module: nn.Module) -> int:
    """Its parameters."""
    return sum(each.numel() for each in module.parameters())


def titled(name: str, model: Model, columns: tuple[Column, ...], *links: Link) -> Blueprint:
    """A model under its name and its size."""
    return Blueprint(f"{name}: {count(model):,} parameters", columns, links)


def encoder(*parts: Block | Stack) -> Column:
    """The way of the source."""
    return Column("Encoder", "source pieces", parts, "")


def decoder(model: Model, *parts: Block | Stack) -> Column:
    """The way of the target, to the next piece."""
    return Column("Decoder", "target pieces, shifted right", [*parts, *output(model)], "next piece")


def output(model: Model) -> list[Block]:
    """From the last state to the next piece."""
    pieces, width = model.projection.shape
    return [
        Block("Linear", f"{width:,} → {pieces:,} · the target embedding", "projection"),
        Block("Softmax", f"{pieces:,} pieces", "other"),
    ]


def embeddings(source: nn.Embedding, target: nn.Embedding) -> tuple[Block, Block]:
    """How each side's pieces become vectors; a matrix that both share is counted at the first."""
    shared = " · the same matrix" if source is target else ""
    return (
        Block("Source embedding", _size(source), "embedding", count(source)),
        Block("Target embedding", _size(target) + shared, "embedding", 0 if shared else count(target)),
    )


def _size(embedding: nn.Embedding) -> str:
    return f"{embedding.num_embeddings:,} pieces {TIMES} {embedding.embedding_dim:,}"


def positions(added: Positions, is_counted: bool = True) -> list[Block]:
    """What is added to embeddings, if anything; a table that both sides share is counted at the first."""
    if added.table is None:
        return []
    if not isinstance(added.table, nn.Parameter):
        return [Block("Add positions: sines and cosines", "", "other")]
    length, width = added.table.shape
    text = f"{length:,} {TIMES} {width:,}" if is_counted else "the same table"
    return [Block("Add positions: learned", text, "other", count(added) if is_counted else 0)]


def norm(module: nn.Module, before: str = "", behind: str = "") -> list[Block]:
    """A norm, where there is one; `before` and `behind` say in the same box what is done just then."""
    if isinstance(module, nn.Identity):
        return []
    text = f"{before}{NORM_NAMES[type(module)]}{behind}"
    return [Block(text[0].upper() + text[1:], f"{cast(nn.LayerNorm, module).weight.numel():,}", "norm", count(module))]


def add(scaled: str = "") -> Block:
    """Where what was carried past comes back."""
    return Block(f"Add{scaled}", "", "norm")


def linear(part: nn.Module, name: str = "Linear") -> Block:
    """A linear map."""
    part = cast(nn.Linear, part)
    return Block(name, f"{part.in_features:,} → {part.out_features:,}", "forward", count(part))
