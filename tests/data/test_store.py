"""What is written is read, and a data folder that is not what was written is refused."""

import json
import shutil
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.data.prepare import Corpus, DataConfig, prepare
from dragoman.data.store import FORMAT, MANIFEST, Store, StoreWriter, file_sha256, open_data, read_manifest
from dragoman.errors import DataError

Pairs = list[tuple[list[int], list[int]]]
FILES = ("source.model", "target.model", "train.ids", "train.offsets", "valid.ids", "valid.offsets")


def write(folder: Path, pairs: Pairs, vocabulary: int) -> Store:
    writer = StoreWriter(folder, "some", vocabulary)
    for source, target in pairs:
        writer.add(source, target)
    split = writer.close({"empty": 3})
    assert split.pairs == len(pairs)
    assert split.source_tokens == sum(len(source) for source, _ in pairs)
    assert split.target_tokens == sum(len(target) for _, target in pairs)
    assert split.dropped == {"empty": 3}
    return Store(folder, "some", vocabulary)


def pairs_of(vocabulary: int) -> st.SearchStrategy[Pairs]:
    sentence = st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=13)
    return st.lists(st.tuples(sentence, sentence), min_size=1, max_size=11)


@pytest.mark.parametrize("vocabulary", [5, 1 << 16, (1 << 16) + 1, 1 << 21])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_what_is_written_is_read(
    vocabulary: int, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    pairs = data.draw(pairs_of(vocabulary))
    store = write(tmp_path_factory.getbasetemp(), pairs, vocabulary)
    assert len(store) == len(pairs)
    assert [tuple(side.tolist() for side in store.pair(number)) for number in range(len(store))] == pairs
    source_lengths, target_lengths = store.lengths()
    assert source_lengths.tolist() == [len(source) for source, _ in pairs]
    assert target_lengths.tolist() == [len(target) for _, target in pairs]


def test_a_side_without_ids_is_read_as_such(tmp_path: Path) -> None:
    pairs: Pairs = [([], [2]), ([3, 5], []), ([7], [11])]
    store = write(tmp_path, pairs, 13)
    assert [tuple(side.tolist() for side in store.pair(number)) for number in range(3)] == pairs


@pytest.mark.parametrize(("vocabulary", "width"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_an_id_takes_two_bytes_where_they_suffice_and_else_four(vocabulary: int, width: int, tmp_path: Path) -> None:
    last = vocabulary - 1
    store = write(tmp_path, [([last, 0, last], [1, last])], vocabulary)
    assert (tmp_path / "some.ids").stat().st_size == 5 * width
    assert (tmp_path / "some.ids").read_bytes()[:width] == last.to_bytes(width, "little")
    assert store.pair(0)[0].tolist() == [last, 0, last]


def test_offsets_are_eight_bytes_each_and_little_endian(tmp_path: Path) -> None:
    write(tmp_path, [([1, 2, 3], [4, 5]), ([6], [7])], 11)
    offsets = (tmp_path / "some.offsets").read_bytes()
    assert [int.from_bytes(offsets[at : at + 8], "little") for at in range(0, len(offsets), 8)] == [0, 3, 5, 6, 7]


def test_an_id_beyond_the_vocabulary_is_never_written_as_another(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, "some", 1 << 16)
    with pytest.raises(OverflowError):
        writer.add([1 << 16], [1])
    assert writer.close({}).pairs == 0


def test_the_files_are_read_through_a_memory_map(tmp_path: Path) -> None:
    store = write(tmp_path, [([1], [2])], 3)
    assert isinstance(store.ids, np.memmap)
    assert isinstance(store.offsets, np.memmap)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    (folder / "text.en").write_text("".join(f"one {number} two\n" for number in range(53)))
    (folder / "text.de").write_text("".join(f"eins {number} zwei\n" for number in range(53)))
    corpus = Corpus([folder / "text.en"], [folder / "text.de"])
    prepare(corpus, corpus, (None, None), DataConfig(vocabulary=31), folder / "data", lambda text: None)
    return folder / "data"


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return shutil.copytree(prepared, tmp_path / "data")


def flip(path: Path, position: int, bit: int) -> bytes:
    whole = path.read_bytes()
    content = bytearray(whole)
    content[position] ^= 1 << bit
    path.write_bytes(content)
    return whole


def test_a_data_folder_holds_these_files_and_no_others(prepared: Path) -> None:
    assert {path.name for path in prepared.iterdir()} == {*FILES, MANIFEST}
    manifest = open_data(prepared).manifest
    assert manifest.files == {name: file_sha256(prepared / name) for name in FILES}
    assert manifest == read_manifest(prepared)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_refused(name: str, folder: Path) -> None:
    draw = Random(name)
    size = (folder / name).stat().st_size
    for position in {0, size - 1, *(draw.randrange(size) for _ in range(7))}:
        whole = flip(folder / name, position, draw.randrange(8))
        with pytest.raises(DataError, match=f"^{folder / name}: damaged or changed since it was prepared$") as refusal:
            open_data(folder)
        assert refusal.value.hint == "prepare the data again"
        (folder / name).write_bytes(whole)
    open_data(folder)


def test_a_flipped_bit_in_the_manifest_is_refused(folder: Path) -> None:
    path = folder / MANIFEST
    accepted = []
    for position in range(path.stat().st_size):
        whole = flip(path, position, position % 7)
        try:
            open_data(folder)
            accepted.append(path.read_bytes()[max(0, position - 17) : position + 11])
        except DataError:
            pass
        path.write_bytes(whole)
    assert not accepted
    open_data(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_cut_or_longer_or_missing_file_is_refused(name: str, folder: Path) -> None:
    whole = (folder / name).read_bytes()
    for content in (b"", whole[:-1], whole + b"\0", whole[: len(whole) // 2]):
        (folder / name).write_bytes(content)
        with pytest.raises(DataError, match=f"^{folder / name}: damaged or changed since it was prepared$"):
            open_data(folder)
    (folder / name).unlink()
    with pytest.raises(DataError, match=f"^{folder / name}: damaged or changed since it was prepared$"):
        open_data(folder)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "not JSON",
        "[]",
        "{}",
        "3",
        "\ud800",
        '{"format": 1}',
        '{"format": 1, "splits": []}',
    ],
)
def test_a_folder_with_another_manifest_is_no_data_folder(content: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(content.encode(errors="surrogatepass"))
    with pytest.raises(DataError, match=f"^{tmp_path}: not a data folder$") as refusal:
        open_data(tmp_path)
    assert "dragoman prepare" in refusal.value.report()


def test_a_manifest_that_names_no_files_is_refused(tmp_path: Path) -> None:
    values = {"languages": [None, None], "config": {}, "vocabulary": [3, 5], "splits": {}, "files": {}}
    (tmp_path / MANIFEST).write_text(json.dumps({"format": FORMAT, **values}))
    with pytest.raises(DataError, match=f"^{tmp_path}"):
        open_data(tmp_path)


@pytest.mark.parametrize("kind", ["empty", "absent", "file"])
def test_what_was_never_prepared_is_no_data_folder(kind: str, tmp_path: Path) -> None:
    path = tmp_path if kind == "empty" else tmp_path / "data"
    if kind == "file":
        path.write_text("text")
    with pytest.raises(DataError, match=f"^{path}: not a data folder$"):
        open_data(path)


def test_another_format_is_refused_by_both_numbers(folder: Path) -> None:
    values = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(values | {"format": FORMAT + 1}))
    expected = f"^{folder}: written in format {FORMAT + 1}, this version reads format {FORMAT}$"
    with pytest.raises(DataError, match=expected):
        open_data(folder)


def test_the_hash_of_a_folder_changes_with_its_text_and_with_nothing_else(prepared: Path, tmp_path: Path) -> None:
    text = [prepared.parent / name for name in ("text.en", "text.de")]
    corpus, config = Corpus(text[:1], text[1:]), DataConfig(vocabulary=31)
    again = prepare(corpus, corpus, ("fr", "cs"), config, tmp_path / "again", lambda text: None)
    assert again.sha256 == read_manifest(prepared).sha256
    swapped = Corpus(text[1:], text[:1])
    assert prepare(swapped, swapped, (None, None), config, tmp_path / "b", lambda text: None).sha256 != again.sha256
