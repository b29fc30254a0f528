"""A model as a diagram: columns of boxes from the bottom up, each with its widths and its parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["embedding", "attention", "norm", "forward", "recurrent", "convolution", "projection", "other"]


@dataclass(frozen=True, eq=False)
class Block:
    """A box: what it is, its widths, and how many parameters it has of its own."""

    name: str
    widths: str
    kind: Kind
    parameters: int = 0

    @property
    def detail(self) -> str:
        """The second line of the box."""
        count = f"{self.parameters:,} parameters" if self.parameters else ""
        return " · ".join(part for part in (self.widths, count) if part)


@dataclass(frozen=True)
class Sublayer:
    """Boxes in a row; what enters the first is added again at the last where there is a residual."""

    blocks: Sequence[Block]
    is_residual: bool = True


@dataclass(frozen=True)
class Stack:
    """A layer that is repeated."""

    times: int
    sublayers: Sequence[Sublayer]
    per: str = ""  # what all of it is done again for, with the same parameters

    @property
    def parameters(self) -> int:
        """Of all its repetitions."""
        return self.times * sum(block.parameters for sublayer in self.sublayers for block in sublayer.blocks)


@dataclass(frozen=True)
class Column:
    """A way from the bottom up; where `flows` is not set its boxes are a list and not a way."""

    name: str
    reads: str
    parts: Sequence[Block | Stack]
    writes: str
    flows: bool = True


@dataclass(frozen=True)
class Link:
    """What goes from the first column into a box of the second."""

    block: Block
    text: str


@dataclass(frozen=True)
class Blueprint:
    """A model as a diagram."""

    title: str
    columns: Sequence[Column]
    links: Sequence[Link] = ()

    @property
    def parameters(self) -> int:
        """Of all boxes, those of a repeated layer as often as it is repeated."""
        return sum(part.parameters for column in self.columns for part in column.parts)
