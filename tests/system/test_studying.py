"""`dragoman study`: a folder with a report, the numbers for programs, and nothing half-done."""

import json
from pathlib import Path

import pytest

from dragoman.study import table1
from tests.system.conftest import Call


@pytest.fixture
def text(reversals: Path, tmp_path: Path) -> list[str]:
    """A few numbers and their reversals."""
    words = []
    for side, suffix in (("source", "fwd"), ("target", "rev")):
        path = tmp_path / f"few.{suffix}"
        path.write_text("".join((reversals / f"test.{suffix}").read_text().splitlines(keepends=True)[:7]))
        words += [f"--{side}", str(path)]
    return words


def pictures(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.svg")}


def test_heads_are_watched_and_removed(reverser: Path, text: list[str], tmp_path: Path, call: Call) -> None:
    out = tmp_path / "heads"
    ended = call("study", "heads", reverser, *text, "--out", out, "--checkpoint", "last", "--json", "--device", "cpu")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert found == json.loads((out / "results.json").read_text())
    assert (found["study"], found["pairs"]) == ("heads", 7)
    assert [(head["kind"], head["layer"], head["head"]) for head in found["heads"]] == [
        (kind, layer, head) for kind in ("encoder", "decoder", "cross") for layer in (1, 2) for head in (1, 2, 3, 4)
    ]
    assert pictures(out) == {"entropy", "distance", "diagonal", "alignment", "removed"}
    assert f"study heads {reverser}" in (out / "report.md").read_text()


def test_scores_are_shown_with_and_without_the_division(
    reverser: Path, text: list[str], tmp_path: Path, call: Call
) -> None:
    ended = call("study", "scaling", reverser, *text, "--out", tmp_path / "scaling", "--json", "--device", "cpu")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert [at["key_width"] for at in found["random"]] == [2**power for power in range(13)]
    assert {len(attention["heads"]) for attention in found["model"].values()} == {4}
    heads = [head for attention in found["model"].values() for head in attention["heads"]]
    assert all(head["entropy"] < head["divided_entropy"] for head in heads)
    assert pictures(tmp_path / "scaling") == {"variance", "entropy", "gradient", "model-entropy"}


def test_sizes_need_nothing(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second report replaces the first
        ended = call("study", "sizes")
        assert (ended.code, ended.err) == (0, "wrote out/sizes/report.html\n")
        assert ended.out == (tmp_path / "out" / "sizes" / "report.md").read_text()
    assert "| GPT-3 | 96 | 12,288 | 96 |" in ended.out
    assert pictures(tmp_path / "out" / "sizes") == {"operations"}


def test_an_interrupted_study_leaves_nothing(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(layer: str, size: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(table1, "grow", interrupt)
    ended = call("study", "table1", "--out", tmp_path / "table1")
    assert (ended.code, ended.out) == (130, "")
    assert not (tmp_path / "table1").exists()
