"""Files and folders that are whole or absent."""

import os
from pathlib import Path

import pytest

from dragoman.durable import beside, new_folder, replace_file, strays


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_a_folder_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    with new_folder(tmp_path / "deep" / "out") as folder:
        (folder / "part").write_text("whole")
        assert not (tmp_path / "deep" / "out").exists()
    assert (tmp_path / "deep" / "out" / "part").read_text() == "whole"
    assert names(tmp_path) == ["deep", "out", "part"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_folder_that_fails_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "out") as folder:
            (folder / "half").write_text("half")
            raise error

    with pytest.raises((KeyboardInterrupt, OSError)):
        fail()
    assert names(tmp_path) == []


def test_who_comes_second_is_told_and_the_first_keeps_the_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def come_second() -> None:
        with new_folder(out) as folder:
            (folder / "mine").write_text("second")
            out.mkdir()
            (out / "theirs").write_text("first")

    with pytest.raises(FileExistsError):
        come_second()
    assert names(tmp_path) == ["out", "theirs"]


def test_everything_is_on_the_disk_before_the_folder_has_its_name_and_the_name_before_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    flush, rename = os.fsync, Path.rename

    def note_flush(handle: int) -> None:
        happened.append("flush " + Path(os.readlink(f"/proc/self/fd/{handle}")).name.split(".")[-1][:4])
        flush(handle)

    def note_rename(self: Path, target: Path) -> Path:
        happened.append(f"rename to {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", note_flush)
    monkeypatch.setattr(Path, "rename", note_rename)
    with new_folder(tmp_path / "out") as folder:
        (folder / "part").write_text("whole")
        hidden = folder.name.split(".")[-1][:4]
    assert happened == ["flush part", f"flush {hidden}", "rename to out", f"flush {tmp_path.name.split('.')[-1][:4]}"]


def test_a_file_is_replaced_in_one_rename_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_file(tmp_path / "card", "old")
    replace_file(tmp_path / "card", "new")
    assert (tmp_path / "card").read_text() == "new"

    def fail(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        replace_file(tmp_path / "card", "half")
    assert (tmp_path / "card").read_text() == "new"
    assert names(tmp_path) == ["card"]


def test_folders_made_on_the_way_to_one_that_fails_go_too_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "there" / "deep" / "deeper" / "out"):
        raise KeyboardInterrupt
    assert names(tmp_path) == ["there"]


def test_a_file_in_the_way_is_called_no_folder_and_what_was_asked_for_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as refusal, new_folder(tmp_path / "file" / "out"):
        pass
    assert refusal.value.filename == str(tmp_path / "file")
    with pytest.raises(FileNotFoundError) as refusal_of_file:
        replace_file(tmp_path / "nowhere" / "card.json", "{}")
    assert refusal_of_file.value.filename == str(tmp_path / "nowhere" / "card.json")


def test_what_a_killed_process_left_is_told_from_what_others_hide(tmp_path: Path) -> None:
    left = [beside(tmp_path / name) for name in ("step-7", "card.json")]
    for path in [*left, tmp_path / ".git", tmp_path / ".dragoman-demo", tmp_path / "step-7"]:
        path.touch()
    assert sorted(strays(tmp_path)) == sorted(left)
