"""Drawn pictures, each with its one true caption, none both learned from and tested on; and features that are given."""

from pathlib import Path

import numpy as np
import pytest

from dragoman.data.pictures import (
    CELL,
    COLOURS,
    GRID,
    HELD_OUT,
    RELATIONS,
    SCENES,
    SHAPES,
    PicturesConfig,
    cut,
    draw_pictures,
    join,
    paint,
    read_features,
    scene,
)
from dragoman.errors import DataError

TRAIN, TEST = draw_pictures(PicturesConfig(train=307, test=101), seed=3)


def test_a_caption_is_true_of_its_picture() -> None:
    """Colours are read off the pixels and the relation off the cells, not off the scene."""
    palette = np.array(list(COLOURS.values()), dtype=float)
    for number in range(len(TRAIN)):
        pixels = join(TRAIN.cells[number]).astype(float)
        words = TRAIN.captions[number].replace(" of", "-of").split()
        places, colours = [], []
        for cells in TRAIN.things[number]:  # type: ignore[index]
            inside = np.kron(cells.reshape(GRID, GRID), np.ones((CELL, CELL), dtype=bool)).astype(bool)
            ink = inside & (np.ptp(pixels, axis=2) > 60)  # the paper is grey
            colour = pixels[ink].mean(0)
            distances = np.linalg.norm(palette / palette.max(1, keepdims=True) - colour / colour.max(), axis=1)
            colours.append(list(COLOURS)[distances.argmin()])
            places.append(np.argwhere(cells.reshape(GRID, GRID)).mean(0))
        down, right = places[0] - places[1]
        relation = {
            "above": down < -abs(right),
            "below": down > abs(right),
            "left-of": right < -abs(down),
            "right-of": right > abs(down),
        }
        assert relation[words[3]]
        assert sum(map(bool, relation.values())) == 1
        assert colours == [words[1], words[5]]


def test_things_lie_apart_and_the_larger_one_is_named_first() -> None:
    for part in (TRAIN, TEST):
        assert part.things is not None
        assert not (part.things[:, 0] & part.things[:, 1]).any()
        assert (part.things[:, 0].sum(1) > part.things[:, 1].sum(1)).all()
        assert (part.things[:, 1].sum(1) == 1).all()


def test_every_shape_colour_and_relation_is_seen_at_both_ends() -> None:
    captions = [caption.replace(" of", "-of").split() for caption in TRAIN.captions]
    for place, words in ((2, SHAPES), (6, SHAPES), (1, COLOURS), (5, COLOURS)):
        assert {caption[place] for caption in captions} == set(words)
    assert {caption[3] for caption in captions} == {name.replace(" of", "-of") for name in RELATIONS}


def test_every_number_is_another_scene() -> None:
    numbers = np.random.default_rng(0).permutation(SCENES)[:5003]
    assert len({scene(number) for number in numbers.tolist()}) == 5003
    limits = [PicturesConfig.model_fields[name].metadata[1].le for name in ("train", "test")]
    assert sum(limits) <= SCENES


def test_no_picture_that_is_tested_was_learned_from() -> None:
    def contents(part: object) -> set[tuple[str, bytes]]:
        things = part.things  # type: ignore[attr-defined]
        return {(caption, cells.tobytes()) for caption, cells in zip(part.captions, things, strict=True)}  # type: ignore[attr-defined]

    assert not contents(TRAIN) & contents(TEST)
    assert len(contents(TRAIN)) == len(TRAIN)
    assert not {cells.tobytes() for cells in TRAIN.cells} & {cells.tobytes() for cells in TEST.cells}


def test_a_seed_draws_its_own_pictures_and_the_same_each_time() -> None:
    again, other = (draw_pictures(PicturesConfig(train=307, test=101), seed)[1] for seed in (3, 5))
    assert np.array_equal(again.cells, TEST.cells)
    assert again.captions == TEST.captions != other.captions


def test_a_picture_is_its_cells_row_by_row() -> None:
    picture, things = paint(scene(1000), np.random.default_rng(0))
    cells = cut(picture)
    assert np.array_equal(join(cells), picture)
    row, column = 2, 3
    here = picture[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]
    assert np.array_equal(cells[row * GRID + column], here.ravel())
    small = scene(1000).small
    assert np.flatnonzero(things[1]).tolist() == [small.row * GRID + small.column]


def write(folder: Path, features: np.ndarray, captions: list[str], name: str = "features") -> tuple[Path, Path]:
    np.savez(folder / "f.npz", **{name: features})
    (folder / "f.txt").write_text("".join(f"{caption}\n" for caption in captions), encoding="utf-8")
    return folder / "f.npz", folder / "f.txt"


@pytest.mark.parametrize("shape", [(23, 3, 5, 7), (23, 15, 7)])
def test_features_of_any_grid_are_read_and_split(tmp_path: Path, shape: tuple[int, ...]) -> None:
    features = np.random.default_rng(0).normal(3, 2, shape)
    features[1] = features[0]  # one picture with two captions
    captions = [f"picture {number} ü" for number in range(23)]
    train, test = read_features(*write(tmp_path, features, captions))
    assert train.grid == test.grid == ((3, 5) if len(shape) == 4 else (1, 15))
    assert sorted(train.captions + test.captions) == sorted(captions)
    assert test.captions == [captions[each] for each in (0, 1, HELD_OUT + 1, 2 * HELD_OUT + 1)]
    kept = [captions.index(caption) for caption in train.captions]
    assert np.array_equal(train.cells, features[kept].reshape(-1, 15, 7).astype(np.float32))
    assert train.things is None


@pytest.mark.parametrize(
    ("features", "captions", "says"),
    [
        (np.zeros((3, 5)), ["a"] * 3, r"f.npz: 'features' should be .* got float64 of shape \(3, 5\)$"),
        (np.zeros((3, 0, 5)), ["a"] * 3, r"got float64 of shape \(3, 0, 5\)$"),
        (np.full((3, 5, 2), "x"), ["a"] * 3, r"got <U1 of shape \(3, 5, 2\)$"),
        (np.zeros((3, 5, 2), dtype=complex), ["a"] * 3, r"got complex128 of shape"),
        (np.full((3, 5, 2), None), ["a"] * 3, r"f.npz: not a .npz file of numbers$"),
        (np.where(np.arange(12).reshape(3, 2, 2) == 5, np.nan, 1.0), ["a"] * 3, "first that are not in picture 2$"),
        (np.full((3, 2, 2), 1e300), ["a"] * 3, "first that are not in picture 1$"),
        (np.arange(12).reshape(3, 2, 2), ["a"] * 2, "got 3 pictures and 2 captions$"),
        (np.arange(12).reshape(3, 2, 2), ["a", " ", "b"], "f.txt:2: no caption, an empty line$"),
        (np.zeros((3, 5, 2)), ["a"] * 3, "at least two different pictures are needed, got 1$"),
    ],
)
def test_features_that_cannot_be_used_are_refused(
    tmp_path: Path, features: np.ndarray, captions: list[str], says: str
) -> None:
    with pytest.raises(DataError, match=says):
        read_features(*write(tmp_path, features, captions))


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    features, captions = write(tmp_path, np.zeros((3, 5, 2)), ["a"] * 3, name="images")
    with pytest.raises(DataError, match=r"f\.npz: no array 'features', got images$"):
        read_features(features, captions)
    with pytest.raises(DataError, match=r"gone\.npz: no such file$"):
        read_features(tmp_path / "gone.npz", captions)
    with pytest.raises(DataError, match=r"f\.txt: not a \.npz file of numbers$"):
        read_features(captions, captions)
    with pytest.raises(DataError, match=r"cannot be read: Is a directory$"):
        read_features(tmp_path, captions)
    np.save(tmp_path / "one.npy", np.zeros((3, 5, 2)))
    with pytest.raises(DataError, match=r"one\.npy: not a \.npz file of numbers$"):
        read_features(tmp_path / "one.npy", captions)
    (tmp_path / "cut.npz").write_bytes(features.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"cut\.npz: not a \.npz file of numbers$"):
        read_features(tmp_path / "cut.npz", captions)
