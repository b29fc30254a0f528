"""Grids of features with a caption each: pictures that are drawn here, or features that were computed elsewhere.

A drawn picture shows two coloured shapes, one two cells wide, one in a single cell: "a red circle above a blue square".
The larger one is named first and the relation is that of the larger distance, so that each picture has one caption.
"""

import hashlib
import zlib
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dragoman.config import Section
from dragoman.data.corpora import decode_line, no_such_file, read_lines
from dragoman.errors import DataError

GRID = 5  # cells in a row and in a column
CELL = 8  # pixels of a cell, each way
SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = {
    "red": (205, 40, 40),
    "green": (40, 150, 60),
    "blue": (40, 80, 205),
    "yellow": (225, 205, 50),
    "purple": (140, 60, 165),
    "orange": (235, 135, 35),
}
RELATIONS = ("above", "below", "left of", "right of")
PAPER = 238  # the grey of the background
NOISE = 6  # deviation of each pixel's channels
HELD_OUT = 10  # of features computed elsewhere, one picture in so many is not learned from


class PicturesConfig(Section):
    """How many pictures are drawn."""

    train: int = Field(20_000, ge=1, le=100_000)
    test: int = Field(500, ge=1, le=10_000)


class Thing(NamedTuple):
    """A shape of a colour; it fills a square of cells whose upper left one is (row, column)."""

    shape: str
    colour: str
    row: int
    column: int
    cells: int  # each way

    @property
    def centre(self) -> tuple[float, float]:
        """Its middle, in cells from the upper left."""
        return self.row + self.cells / 2, self.column + self.cells / 2


class Scene(NamedTuple):
    """What a picture shows; the caption follows from it."""

    large: Thing
    small: Thing

    @property
    def relation(self) -> str:
        """Where the larger thing is, seen from the smaller one: whichever way they are farther apart."""
        down, right = (large - small for large, small in zip(self.large.centre, self.small.centre, strict=True))
        if abs(down) > abs(right):
            return "above" if down < 0 else "below"
        return "left of" if right < 0 else "right of"

    @property
    def caption(self) -> str:
        """The one true sentence."""
        return f"a {self.large.colour} {self.large.shape} {self.relation} a {self.small.colour} {self.small.shape}"


@dataclass(frozen=True)
class Captioned:
    """Pictures as cells of features, row by row, with a caption each."""

    cells: NDArray[Any]  # pictures x cells x channels; whole numbers are pixels
    grid: tuple[int, int]  # rows and columns
    captions: list[str]
    things: NDArray[np.bool_] | None = None  # pictures x 2 x cells: where each thing that is named shows, if known

    def __len__(self) -> int:
        return len(self.captions)


def places() -> list[tuple[int, int, int, int]]:
    """Where a large and a small thing may be: straight above or straight beside each other."""
    found = []
    for row, column, other_row, other_column in product(range(GRID - 1), range(GRID - 1), range(GRID), range(GRID)):
        down, right = abs(other_row - row - 0.5), abs(other_column - column - 0.5)
        if min(down, right) < 1 < max(down, right):
            found.append((row, column, other_row, other_column))
    return found


PLACES = places()
LOOKS = list(product(SHAPES, COLOURS, SHAPES, COLOURS))
SCENES = len(PLACES) * len(LOOKS)


def scene(number: int) -> Scene:
    """Every scene there is has a number below `SCENES`."""
    look, place = divmod(number, len(PLACES))
    shape, colour, other_shape, other_colour = LOOKS[look]
    row, column, other_row, other_column = PLACES[place]
    return Scene(Thing(shape, colour, row, column, 2), Thing(other_shape, other_colour, other_row, other_column, 1))


def draw_pictures(config: PicturesConfig, seed: int) -> tuple[Captioned, Captioned]:
    """Pictures to learn from, and pictures of other scenes to be tested on."""
    draw = np.random.default_rng(seed)
    numbers = draw.permutation(SCENES)[: config.train + config.test].tolist()  # so no scene comes twice
    scenes = [scene(number) for number in numbers]
    pictures, things = zip(*(paint(each, draw) for each in scenes), strict=True)
    captions, size = [each.caption for each in scenes], config.train
    cells, covered = np.stack([cut(picture) for picture in pictures]), np.stack(things)
    parts = (slice(size), slice(size, None))
    train, test = (Captioned(cells[part], (GRID, GRID), captions[part], covered[part]) for part in parts)
    return train, test


def paint(scene: Scene, draw: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """A picture (height x width x RGB) of a scene, and the cells in which each of its things shows.

    Things differ in size, stand a little off the middle and vary in brightness; the paper is not even.
    """
    picture = np.full((GRID * CELL, GRID * CELL, 3), float(PAPER))
    covered = []
    for thing in scene:
        reach = thing.cells / 2  # in cells
        size = draw.uniform(0.8, 0.95) * reach
        middle = np.array(thing.centre) + draw.uniform(-1, 1, 2) * (reach - size)
        inside = _inside(thing.shape, middle, size)
        picture[inside] = np.array(COLOURS[thing.colour]) * draw.uniform(0.85, 1.1)
        covered.append(inside.reshape(GRID, CELL, GRID, CELL).any((1, 3)).ravel())
    picture += draw.normal(0, NOISE, picture.shape)
    return picture.clip(0, 255).astype(np.uint8), np.stack(covered)


def _inside(shape: str, middle: NDArray[np.float64], size: float) -> NDArray[np.bool_]:
    """Which pixels lie inside a shape."""
    steps = (np.arange(GRID * CELL) + 0.5) / CELL
    down, right = (steps - middle[0])[:, None] / size, (steps - middle[1])[None] / size
    match shape:
        case "circle":
            return down**2 + right**2 <= 1
        case "square":
            return np.maximum(abs(down), abs(right)) <= 0.9
        case "triangle":
            return (abs(right) <= (down + 1) / 2) & (down <= 1)
        case _:  # a cross
            return (np.minimum(abs(down), abs(right)) <= 0.3) & (np.maximum(abs(down), abs(right)) <= 1)


def cut(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture as its cells, each with its own pixels: cells x channels."""
    return picture.reshape(GRID, CELL, GRID, CELL, 3).transpose(0, 2, 1, 3, 4).reshape(GRID * GRID, -1)


def join(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The picture that was cut into these cells."""
    return cells.reshape(GRID, GRID, CELL, CELL, 3).transpose(0, 2, 1, 3, 4).reshape(GRID * CELL, GRID * CELL, 3)


def read_features(features: Path, captions: Path) -> tuple[Captioned, Captioned]:
    """Features computed elsewhere and a caption a line: most to learn from, every tenth picture to be tested on.

    Equal features are one picture, whose captions all lie on one side.
    """
    array, texts = _read_array(features), _read_captions(captions)
    if len(array) != len(texts):
        what = f"one caption a picture is needed, got {len(array)} pictures and {len(texts)} captions"
        raise DataError(f"{features} and {captions}", what)
    cells = array.reshape(len(array), -1, array.shape[-1])
    grid = array.shape[1:3] if array.ndim == 4 else (1, array.shape[1])
    contents = [hashlib.sha256(each.tobytes()).digest() for each in cells]
    different = list(dict.fromkeys(contents))
    if len(different) < 2:
        raise DataError(features, f"at least two different pictures are needed, got {len(different)}")
    held_out = set(different[::HELD_OUT])
    is_test = np.array([content in held_out for content in contents])
    train, test = (
        Captioned(cells[part], grid, [text for text, is_in in zip(texts, part, strict=True) if is_in])
        for part in (~is_test, is_test)
    )
    return train, test


def _read_array(path: Path) -> NDArray[np.float32]:
    hint = "write one with: numpy.savez(FILE, features=ARRAY)"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if "features" not in arrays:
                raise DataError(path, f"no array 'features', got {', '.join(arrays) or 'none'}", hint=hint)
            array = arrays["features"]
    except FileNotFoundError:
        raise no_such_file(path) from None
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}") from None
    except (ValueError, EOFError, BadZipFile, zlib.error, AttributeError, TypeError):
        raise DataError(path, "not a .npz file of numbers", hint=hint) from None
    if array.ndim not in (3, 4) or 0 in array.shape or array.dtype.kind not in "fiu":
        what = "'features' should be numbers, pictures x rows x columns x channels or pictures x cells x channels"
        raise DataError(path, f"{what}, got {array.dtype} of shape {array.shape}")
    with np.errstate(over="ignore"):  # it is told below
        array = array.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
    if len(bad):
        raise DataError(path, f"not all features are finite, the first that are not in picture {bad[0] + 1}")
    return array


def _read_captions(path: Path) -> list[str]:
    texts = [decode_line(line, path, number) for number, line in enumerate(read_lines(path), start=1)]
    empty = next((number for number, text in enumerate(texts, start=1) if not text.split()), None)
    if empty is not None:
        raise DataError(f"{path}:{empty}", "no caption, an empty line")
    return texts
