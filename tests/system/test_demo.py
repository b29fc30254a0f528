"""The demo: a translator from nothing, in a folder of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dragoman
from dragoman.demo import MARK
from dragoman.saved import find_model, read_card
from tests.system.conftest import Call

DEMO = [sys.executable, "-m", "dragoman.cli", "demo"]
FULL_SECONDS = 120  # what the README promises of training, on two cores


def alone() -> dict[str, str]:
    """Two tests share two cores, and threads that wait for one another on a busy core hardly learn anything."""
    return os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_a_demo_answers_in_json(tmp_path: Path) -> None:
    out = tmp_path / "some" / "demo"
    words = [*DEMO, "--minutes", "0.03", "--out", str(out), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=alone(), check=False)
    assert done.returncode == 0
    assert "\x1b" not in done.stderr
    assert "replacing" not in done.stderr
    result = json.loads(done.stdout)  # and nothing else on stdout
    assert result.keys() == {"exact_match", "bleu", "seconds", "model"}
    assert 0 <= result["exact_match"] <= 1
    assert 0 <= result["bleu"] <= 100
    assert result["seconds"] > 0.03 * 60
    assert result["model"] == str(out / "run")
    (report,) = read_card(find_model(out / "run"))["scores"]
    assert report["exact_match"] == result["exact_match"]
    assert len(dragoman.load(result["model"]).translate(["5:52:16 PM"])) == 1


def test_a_demo_replaces_its_own_folder_alone_and_can_be_interrupted(tmp_path: Path, reverser: Path) -> None:
    out = tmp_path / "demo"
    shutil.copytree(reverser, out / "run")
    (out / MARK).touch()
    (out / "notes.txt").write_text("not the demo's")
    before = find_model(out / "run")
    words = [*DEMO, "--minutes", "0.03", "--out", str(out), "--json"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=alone()) as process:
        try:
            assert process.stderr is not None
            said = next(line for line in process.stderr if "replacing" in line or line.startswith("error"))
            assert said == f"{out} holds an earlier demo: replacing it.\n"
            process.stderr.readline()  # the corpus is written
            process.send_signal(signal.SIGINT)
            rest, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, rest) == (130, "")
    assert "Traceback" not in err
    assert not before.exists()
    assert (out / MARK).is_file()  # so that the next one may replace what this one began
    assert (out / "notes.txt").read_text() == "not the demo's"


@pytest.mark.parametrize("kind", ["folder", "file", "run"])
def test_what_is_not_a_demos_is_refused_and_left_alone(kind: str, tmp_path: Path, reverser: Path, call: Call) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "chapter.tex").write_text("Years of work.")
    (tmp_path / "file").write_text("Years of work.")
    (tmp_path / "run").symlink_to(reverser)
    before = sorted(path for folder in (tmp_path, reverser) for path in folder.rglob("*"))
    ended = call("demo", "--minutes", "0.01", "--out", tmp_path / kind)
    assert (ended.code, ended.out) == (2, "")
    # It is the first thing said: nobody waits for a phrasebook to be told.
    assert ended.err.splitlines()[0] == f"error: {tmp_path / kind}: exists and is not a demo's folder"
    assert sorted(path for folder in (tmp_path, reverser) for path in folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        ("en", "xx", "xx: no such locale"),
        ("gv", "de", "gv: CLDR says too little of this locale: no countries"),
        ("de", "de", "de-de: source and target are the same locale"),
    ],
)
def test_a_locale_without_data_is_refused_by_name(
    source: str, target: str, says: str, tmp_path: Path, call: Call
) -> None:
    ended = call("demo", "--source", source, "--target", target, "--out", tmp_path / "demo")
    assert (ended.code, ended.out) == (2, "")
    (error,) = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    assert error.startswith(f"error: {says}")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_demo_of_full_length_gets_nine_phrases_in_ten_exactly_right(tmp_path: Path) -> None:
    words = [*DEMO, "--source", "en", "--target", "de", "--minutes", str(FULL_SECONDS / 60)]
    words += ["--out", str(tmp_path / "demo"), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500, env=alone(), check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["exact_match"] >= 0.9
