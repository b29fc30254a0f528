"""Parallel files are read line by line, whatever they are packed in; every fault names its file."""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.data.corpora import decode_line, language_of, read_lines, read_pairs, read_text_pairs
from dragoman.errors import DataError

PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
# What str.splitlines takes for the end of a line, and we do not.
NO_LINE_ENDS = "\x0b\x0c\r\x1c\x1d\x1e\x85\u2028\u2029"

each_packing = pytest.mark.parametrize("suffix", PACK)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(PACK.get(path.suffix, bytes)(content))
    return path


def lines_of(count: int, word: str) -> bytes:
    return b"".join(f"{word} {number}\n".encode() for number in range(count))


@pytest.mark.parametrize("suffixes", [(".gz", ".gz"), (".xz", ".xz"), (".xz", ""), ("", ".gz")])
def test_packed_files_give_the_pairs_of_plain_ones(suffixes: tuple[str, str], tmp_path: Path) -> None:
    texts = (lines_of(13, "Öl\u2028"), lines_of(13, "oil\r"))
    plain = [write(tmp_path / name, text) for name, text in zip(("a", "b"), texts, strict=True)]
    packed = [write(tmp_path / f"p{n}{suffix}", texts[n]) for n, suffix in enumerate(suffixes)]
    expected = [(pair.source, pair.target, pair.line) for pair in read_pairs(plain[:1], plain[1:])]
    assert [(pair.source, pair.target, pair.line) for pair in read_pairs(packed[:1], packed[1:])] == expected
    assert len(expected) == 13


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n")), max_size=7))
@settings(max_examples=50, deadline=None)
@each_packing
def test_what_is_written_line_by_line_is_read(
    suffix: str, tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / f"lines{suffix}"
    write(path, "".join(f"{line}.\n" for line in lines).encode())
    read = [line.decode() for line in read_lines(path)]
    expected = [f"{line}." for line in lines]
    assert read == [line.removeprefix("\ufeff") if number == 0 else line for number, line in enumerate(expected)]


@pytest.mark.parametrize("character", NO_LINE_ENDS, ids=ascii)
def test_only_a_line_feed_ends_a_line(character: str, tmp_path: Path) -> None:
    path = write(tmp_path / "text", f"one{character}two\nthree\n".encode())
    assert [line.decode() for line in read_lines(path)] == [f"one{character}two", "three"]


def test_a_carriage_return_before_the_line_feed_belongs_to_the_line_end(tmp_path: Path) -> None:
    path = write(tmp_path / "text", b"one\r\n\r\ntwo\r\r\nthree\r\n")
    assert list(read_lines(path)) == [b"one", b"", b"two\r", b"three"]


def test_a_carriage_return_at_the_very_end_ends_no_line(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "text", b"one\ntwo\r"))) == [b"one", b"two\r"]


@pytest.mark.parametrize(("content", "expected"), [(b"", 0), (b"\n", 1), (b"a", 1), (b"a\n", 1), (b"a\n\nb", 3)])
def test_a_last_line_need_not_end_and_an_empty_one_counts(content: bytes, expected: int, tmp_path: Path) -> None:
    assert len(list(read_lines(write(tmp_path / "text", content)))) == expected


@each_packing
def test_a_byte_order_mark_is_stripped_from_the_start_of_a_file_only(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"text{suffix}", "\ufeffone\n\ufefftwo\n".encode())
    assert [line.decode() for line in read_lines(path)] == ["one", "\ufefftwo"]


@pytest.mark.parametrize("counts", [(7, 5), (5, 7), (0, 3), (3, 0)])
@each_packing
def test_unequal_counts_name_both_files_and_both_counts(suffix: str, counts: tuple[int, int], tmp_path: Path) -> None:
    source, target = (write(tmp_path / f"{n}{suffix}", lines_of(count, "x")) for n, count in enumerate(counts))
    with pytest.raises(DataError, match=f"line counts differ, got {counts[0]} and {counts[1]}$") as refusal:
        list(read_pairs([source], [target]))
    assert str(refusal.value).startswith(f"{source} and {target}: ")
    assert refusal.value.hint is not None
    assert "nothing was written" in refusal.value.hint


def test_counts_must_agree_in_each_pair_of_files_not_only_in_sum(tmp_path: Path) -> None:
    files = [write(tmp_path / str(count), lines_of(count, "x")) for count in (3, 5)]
    with pytest.raises(DataError, match=r"line counts differ, got 3 and 5$"):
        list(read_pairs(files, files[::-1]))


def test_several_files_are_read_one_after_another(tmp_path: Path) -> None:
    sources = [write(tmp_path / f"s{count}.gz", lines_of(count, f"s{count}")) for count in (2, 3)]
    targets = [write(tmp_path / f"t{count}.xz", lines_of(count, f"t{count}")) for count in (2, 3)]
    pairs = list(read_pairs(sources, targets))
    assert [pair.source.decode() for pair in pairs] == ["s2 0", "s2 1", "s3 0", "s3 1", "s3 2"]
    assert [pair.target.decode() for pair in pairs] == ["t2 0", "t2 1", "t3 0", "t3 1", "t3 2"]
    assert [pair.line for pair in pairs] == [1, 2, 1, 2, 3]
    assert [pair.files for pair in pairs] == [(sources[0], targets[0])] * 2 + [(sources[1], targets[1])] * 3


def test_as_many_source_files_as_target_files_are_needed(tmp_path: Path) -> None:
    files = [write(tmp_path / name, b"x\n") for name in "abc"]
    with pytest.raises(DataError, match=r"^--source and --target: 2 files against 3, one each is needed$"):
        list(read_pairs(files[:2], files))


@each_packing
def test_a_missing_file_is_named(suffix: str, tmp_path: Path) -> None:
    there, gone = write(tmp_path / "there", b"x\n"), tmp_path / f"gone{suffix}"
    for sources, targets in (([there], [gone]), ([gone], [there])):
        with pytest.raises(DataError, match=f"^{gone}: no such file$"):
            list(read_pairs(sources, targets))


def test_the_nearest_file_beside_a_missing_one_is_named(tmp_path: Path) -> None:
    for name in ("train.en", "train.de", "valid.en"):
        write(tmp_path / name, b"x\n")
    (tmp_path / "traim.enn").mkdir()  # nearer, but no file
    for gone, near in (("traim.en", "train.en"), ("train.d", "train.de"), ("thesis", None), ("away/train.en", None)):
        with pytest.raises(DataError, match=r"no such file$") as refused:
            list(read_lines(tmp_path / gone))
        assert refused.value.hint == (f"did you mean {tmp_path / near}?" if near else None)


def test_a_folder_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^{tmp_path}: cannot be read: Is a directory$"):
        list(read_lines(tmp_path))


@pytest.mark.parametrize("kept", [11, 0.3, 0.9, -1])
@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_truncated_file_is_refused_by_name(suffix: str, kept: float, tmp_path: Path) -> None:
    path = write(tmp_path / f"text{suffix}", lines_of(997, "word"))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if 0 < kept < 1 else int(kept)])
    with pytest.raises(DataError, match=rf"^{path}: not a whole {suffix} file: ."):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_plain_file_with_a_packed_name_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(b"plain text\n")
    with pytest.raises(DataError, match=rf"^{path}: not a whole {suffix} file: ."):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_damaged_file_is_refused_wherever_the_damage_is(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"text{suffix}", lines_of(997, "word"))
    whole = path.read_bytes()
    for position in range(23, len(whole), 61):
        content = bytearray(whole)
        content[position] ^= 16
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"^{path}: not a whole {suffix} file: ."):
            list(read_lines(path))


def test_invalid_utf8_names_file_line_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "latin1.de"
    with pytest.raises(DataError, match=rf"^{path}:17: not UTF-8, got byte 0xe4 at position 2$") as refusal:
        decode_line("Kälte".encode("latin-1"), path, 17)
    assert "data.invalid=drop" in refusal.value.report()


@pytest.mark.parametrize("bad", [b"\xff\xfea\x00", b"\xc0\x80", b"\xed\xa0\x80", b"ok \xe2\x82", b"\xf4\x90\x80\x80"])
def test_utf16_overlong_forms_surrogates_and_cut_characters_are_not_utf8(bad: bytes, tmp_path: Path) -> None:
    good = write(tmp_path / "good", b"x\n" * 3)
    path = write(tmp_path / "bad", b"fine\n" + bad + b"\nfine\n")
    with pytest.raises(DataError, match=rf"^{path}:2: not UTF-8, got byte 0x"):
        read_text_pairs(path, good)
    with pytest.raises(DataError, match=rf"^{path}:2: not UTF-8, got byte 0x"):
        read_text_pairs(good, path)


def test_a_pair_of_files_is_read_as_text(tmp_path: Path) -> None:
    source, target = write(tmp_path / "s.xz", "Öl\n\nx".encode()), write(tmp_path / "t", b"oil\r\n\ny\n")
    assert read_text_pairs(source, target) == (["Öl", "", "x"], ["oil", "", "y"])


def test_a_pair_of_empty_files_holds_nothing_to_score(tmp_path: Path) -> None:
    source, target = write(tmp_path / "s", b""), write(tmp_path / "t.gz", b"")
    with pytest.raises(DataError, match=f"^{source} and {target}: holds no pairs$"):
        read_text_pairs(source, target)


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("train.en", "en"),
        ("train.de.xz", "de"),
        ("news.2014.fr.gz", "fr"),
        ("x.pt_BR", "pt_BR"),
        ("x.pt-BR.gz", "pt_BR"),
        ("x.zh-Hant", "zh_Hant"),
        ("x.txt", None),
        ("x.xz", None),
        ("en", None),
        ("en.gz", None),
        ("x.fwd", None),
        ("x.", None),
    ],
)
def test_the_language_is_the_last_suffix_but_compression_where_it_is_one(name: str, language: str | None) -> None:
    assert language_of(Path("some.de") / name) == language
