"""Lines in, lines out: windows over endless input, output that is whole or absent."""

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DataError, DragomanError
from dragoman.streams import open_input, open_output, windows

LISTED = "from dragoman.streams import open_input\nwith open_input(None) as lines: print(list(lines))"

AWKWARD = {
    "nothing": b"",
    "one empty line": b"\n",
    "no line feed at the end": b"one\n\ntwo",
    "DOS line ends": b"one\r\n\r\ntwo\r\n",
    "carriage returns within": b"one\rtwo\r\r\n\rthree\r",
    "what Unicode takes for line ends": "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n\x1d\n".encode(),
    "zero bytes and escapes": b"\x00\n\x1b[31mred\x1b[0m\n\x7f\n",
    "a byte order mark": b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n",
}


@pytest.fixture(autouse=True)
def _buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python buffers what it writes, as it does for a user."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


@given(st.lists(st.text(max_size=3), max_size=40), st.integers(1, 13))
def test_windows_hold_every_line_in_order_and_say_how_many_came_before(lines: list[str], size: int) -> None:
    found = list(windows(iter(lines), size))
    assert [line for _, window in found for line in window] == lines
    assert [before for before, _ in found] == list(range(0, len(lines), size))
    assert all(len(window) == size for _, window in found[:-1])
    assert all(window for _, window in found)


def test_a_window_is_there_before_the_next_line_is_asked_for() -> None:
    asked: list[int] = []

    def endless() -> Iterator[str]:
        for number in count():
            asked.append(number)
            yield str(number)

    first, second = islice(windows(endless(), 7), 2)
    assert (first[1][0], second[1][-1]) == ("0", "13")
    assert len(asked) == 14


@pytest.mark.parametrize("content", AWKWARD.values(), ids=AWKWARD.keys())
def test_a_file_packed_or_not_and_stdin_give_the_same_lines(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(content)
    (tmp_path / "text.gz").write_bytes(gzip.compress(content))
    read = []
    for name in ("text", "text.gz"):
        with open_input(tmp_path / name) as lines:
            read.append(list(lines))
    piped = subprocess.run([sys.executable, "-c", LISTED], input=content, capture_output=True, check=True, timeout=60)
    assert read[0] == read[1]
    assert piped.stdout.decode() == f"{read[0]}\n"
    assert len(read[0]) == content.count(b"\n") + (not content.endswith(b"\n") and content != b"")


def test_a_line_that_is_not_utf8_is_named_by_file_and_number_and_those_before_it_are_read(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"one\ntwo\n\xff\nfour\n")
    with open_input(tmp_path / "text") as lines:
        assert list(islice(lines, 2)) == ["one", "two"]
        with pytest.raises(DataError, match=r"text:3: not UTF-8, got byte 0xff"):
            next(lines)


def test_output_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open_output(path) as write:
        write(["one\n", "zwölf\n"])
        assert not path.exists()
        write(["three\n"])
    assert path.read_bytes() == "one\nzwölf\nthree\n".encode()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fault", [DataError("text:3", "not UTF-8"), KeyboardInterrupt(), RuntimeError("a bug")])
def test_output_that_fails_is_absent_and_what_stood_there_stays(fault: BaseException, tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        with open_output(path) as write:
            write(["one\n"])
            raise fault

    (tmp_path / "old").write_text("kept")
    for name in ("new", "old"):
        with pytest.raises(type(fault)):
            fail(tmp_path / name)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"old": "kept"}


@pytest.mark.parametrize("where", ["nowhere/out", "file/out", "folder", "."])
def test_output_that_cannot_be_written_is_refused_before_anything_is_done(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DragomanError, match=rf"^{re.escape(where)}: ") as refusal, open_output(Path(where)):
        pytest.fail("the work began although its output has no place")
    assert refusal.value.exit_code == 2
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_a_reader_that_leaves_ends_the_writing_quietly(tmp_path: Path) -> None:
    endless = (
        "from dragoman.streams import open_output\n"
        "with open_output(None) as write:\n"
        "    while True: write(['a line\\n'] * 1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", endless], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a line\n"
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""


def test_written_lines_are_there_at_once() -> None:
    slow = "import sys\nfrom dragoman.streams import open_output\nwith open_output(None) as write:\n"
    slow += "    write(['one\\n', '']); sys.stdin.readline(); write(['two\\n'])"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", slow], **pipes) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"one\n"
        assert process.poll() is None
        process.stdin.write(os.linesep.encode())
        process.stdin.close()
        assert process.stdout.read() == b"two\n"
