"""A caption's attention laid over its picture, word by word (Xu et al. 2015, Figures 2 and 3)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.plots.charts import drawing, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INCHES = 0.95  # of a panel
HEIGHT = 1.3  # of a row, in panels: what a word needs above its panel
GAP = 0.06  # between panels
SHADOW = 0.2  # what is left of a picture's light where nobody looks


class Looked(NamedTuple):
    """A picture (height x width x RGB) or none, and each word with the shares of rows x columns of cells."""

    picture: NDArray[np.uint8] | None
    words: Sequence[str]
    shares: Sequence[NDArray[np.float32]]


def draw_glimpses(captions: Sequence[Looked]) -> "Figure":
    """A row a picture: first all of it, then what was seen for each word, the brighter the more."""
    columns = 1 + max(len(each.words) for each in captions)
    with drawing(INCHES * columns, INCHES * HEIGHT * len(captions)) as figure:
        axes = figure.subplots()  # one for all panels: a layout of dozens takes seconds
        for row, each in enumerate(captions):
            top = row * HEIGHT
            panels = [each.picture, *(_lit(each.picture, share) for share in each.shares)]
            for column, (word, panel) in enumerate(zip(["", *each.words], panels, strict=True)):
                look: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 9, "parse_math": False}
                axes.text(column + (1 - GAP) / 2, top - GAP, printable(word), **look)
                if panel is not None:
                    edges = (column, column + 1 - GAP, top + 1, top)
                    axes.imshow(panel, extent=edges, interpolation="nearest", cmap="Blues", vmin=0)
        axes.set(xlim=(0, columns), ylim=(HEIGHT * len(captions), 1 - HEIGHT))
        axes.set_axis_off()
        return figure


def _lit(picture: NDArray[np.uint8] | None, share: NDArray[np.float32]) -> NDArray[np.uint8] | NDArray[np.float32]:
    """The picture as bright as it is looked at; without one, the shares themselves."""
    if picture is None:
        return share
    cell = (len(picture) // len(share), picture.shape[1] // share.shape[1])
    light = SHADOW + (1 - SHADOW) * np.kron(share / share.max(), np.ones(cell))
    return (picture * light[:, :, None]).astype(np.uint8)
