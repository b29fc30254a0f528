"""The picture of the masks is what the model's own masks say."""

from typing import Any

import torch
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex

from dragoman.plots.charts import COLOURS
from dragoman.plots.masks import EMPTY, FIRST, SECOND, draw_masks, example_masks


def squares(axes: Any) -> list[bool]:
    (mesh,) = (each for each in axes.collections if isinstance(each, QuadMesh))
    return [to_hex(colour) == COLOURS[0] for colour in mesh.get_facecolor()]


def test_every_square_is_filled_where_the_mask_says_so() -> None:
    masks = example_masks()
    figure = draw_masks(masks)
    for axes, mask in zip(figure.axes, masks, strict=False):
        assert squares(axes) == mask.visible.flatten().tolist()
        assert axes.get_title() == mask.title


def test_the_examples_show_what_their_titles_say() -> None:
    causal, padding, encoder, decoder, cross = (mask.visible for mask in example_masks())
    assert torch.equal(causal, torch.ones(len(FIRST[1]), len(FIRST[1])).tril().bool())
    real = torch.tensor([piece != EMPTY for piece in example_masks()[1].keys])
    assert torch.equal(padding, real[:, None] & real)
    lengths = [(len(FIRST[0]), len(FIRST[1])), (len(SECOND[0]), len(SECOND[1]))]
    apart = torch.zeros_like(cross)
    source = target = 0
    for sources, targets in lengths:
        apart[target : target + targets, source : source + sources] = True
        source, target = source + sources, target + targets
    assert torch.equal(cross, apart)
    assert torch.equal(decoder, encoder.tril())
    assert not encoder[-1].any()
    assert not encoder[:, -1].any()
