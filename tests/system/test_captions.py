"""`dragoman study captions`: what it learns, reports, keeps and refuses."""

import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from dragoman.saved import CARD, RECIPE, WEIGHTS
from dragoman.study.captions import MARK
from tests.system.conftest import Call, Ended

STUDY = ("study", "captions", "--device", "cpu")
SMALL = ("pictures.train=41", "pictures.test=7", "training.batch=5", "training.steps=3", "model.width=11")
PARTS = {CARD, RECIPE, WEIGHTS}


def write_features(folder: Path, pictures: int = 23) -> tuple[str | Path, ...]:
    np.savez(folder / "f.npz", features=np.random.default_rng(0).normal(size=(pictures, 2, 3, 5)))
    (folder / "f.txt").write_text("".join(f"ein Bild Nr. {number % 3}\n" for number in range(pictures)))
    return "--features", folder / "f.npz", "--captions", folder / "f.txt"


def refused(ended: Ended, says: str) -> None:
    assert (ended.code, ended.out) == (2, "")
    assert re.search(rf"^error: .*{says}$", ended.err, flags=re.MULTILINE), ended.err
    assert ended.err.count("error: ") == 1


def test_both_kinds_are_trained_and_reported_and_not_trained_again(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "study"
    ended = call(*STUDY, "--out", out, "--json", *SMALL)
    assert ended.code == 0
    results = json.loads(ended.out)
    assert list(results) == ["soft", "hard"]
    assert json.loads((out / "results.json").read_text()) == results
    for name in results:
        assert {path.name for path in (out / name).iterdir()} == PARTS
        assert (out / f"{name}.svg").read_text().startswith("<?xml")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != "lock"}
    again = call(*STUDY, "--out", out, "--json", *SMALL)
    assert again.out == ended.out
    assert again.err.count("trained already") == 2
    assert {path: path.read_bytes() for path in before} == before
    refused(call(*STUDY, "--out", out, *SMALL, "training.peak=1.0"), "soft: holds a captioner of another recipe.*")


def test_a_report_can_be_read_in_the_terminal(call: Call, tmp_path: Path) -> None:
    ended = call(*STUDY, "--attention", "hard", "--seed", "7", "--out", tmp_path / "study", *SMALL)
    assert ended.code == 0
    assert ended.out == (tmp_path / "study" / "report.md").read_text()
    assert "| hard | 0.0 (0.0 to " in ended.out
    assert "dragoman study captions" in ended.out
    assert not (tmp_path / "study" / "soft").exists()
    assert "seed = 7" in (tmp_path / "study" / "hard" / RECIPE).read_text()


def test_features_of_ones_own_are_learned(call: Call, tmp_path: Path) -> None:
    given = write_features(tmp_path)
    words = ("--attention", "soft", "--minutes", "0.03", "training.batch=5", "model.width=11", "training.peak=0.02")
    ended = call(*STUDY, *given, "--out", tmp_path / "study", "--json", *words)
    assert ended.code == 0
    results = json.loads(ended.out)
    assert results["soft"].keys() == {"all", "bleu"}
    card = json.loads((tmp_path / "study" / "soft" / CARD).read_text())
    assert card["pictures_learned_from"] == 20
    assert card["updates"] > 1
    (tmp_path / "f.txt").write_text("ein anderes Bild\n" * 23)
    refused(call(*STUDY, *given, "--out", tmp_path / "study", *words), "or of other pictures")


def test_ctrl_c_leaves_what_was_trained_and_nothing_broken(call: Call, tmp_path: Path) -> None:
    out, quick, endless = tmp_path / "study", tmp_path / "quick.toml", tmp_path / "endless.toml"
    small = '[pictures]\ntrain = 41\ntest = 7\n[model]\nattention = "hard"\nwidth = 11\n[training]\n'
    quick.write_text(f"{small}steps = 2\n")
    endless.write_text(f"{small}steps = 1_000_000\n")

    def interrupt() -> None:
        while not (out / "quick").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    assert call(*STUDY, "--attention", quick, "--attention", endless, "--out", out).code == 130
    assert sorted(path.name for path in out.iterdir()) == [MARK, "lock", "quick"]
    ended = call(*STUDY, "--attention", quick, "--out", out)
    assert ended.code == 0
    assert "trained already" in ended.err


def test_a_folder_of_something_else_is_left_alone(call: Call, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("Years of work.")
    refused(call(*STUDY, "--out", tmp_path / "thesis", *SMALL), "thesis: exists and is not a folder of this study")
    refused(
        call(*STUDY, "--out", tmp_path / "thesis" / "chapter.tex", *SMALL), "exists and is not a folder of this study"
    )
    assert [path.name for path in tmp_path.rglob("*")] == ["thesis", "chapter.tex"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--attention", "firm"), "firm: no such recipe"),
        (("model.widht=7",), "unknown key 'model.widht', did you mean 'model.width'\\?"),
        (("model.attention=firm",), "'model.attention': input should be 'soft' or 'hard', got 'firm'"),
        (("--captions", "f.txt"), "--features and --captions: only one of them is given"),
        (("--features", "gone.npz", "--captions", "gone.txt"), "gone.npz: no such file"),
        (("pictures.train=0",), "'pictures.train': .* got 0"),
    ],
)
def test_a_mistake_is_named_and_leaves_no_folder(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(call(*STUDY, "--out", "study", *words), says)
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_nothing_is_trained_in_vain(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused(call(*STUDY, "--out", tmp_path / "study", *SMALL), "plots: need matplotlib")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_soft_and_hard_attention_name_what_unseen_pictures_show_and_look_at_it(call: Call, tmp_path: Path) -> None:
    ended = call(*STUDY, "--out", tmp_path / "study", "--json", "--threads", "2")
    assert ended.code == 0
    results = json.loads(ended.out)
    for name, least in (("soft", 0.95), ("hard", 0.85)):
        assert all(results[name][key]["mean"] >= least for key in ("shape", "colour", "relation", "all"))
    assert all(results["soft"][f"looks for {key}"]["mean"] >= 0.6 for key in ("colour", "shape"))
    assert json.loads((tmp_path / "study" / "soft" / CARD).read_text())["seconds"] <= 600
