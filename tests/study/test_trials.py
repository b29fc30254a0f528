"""The trials of a study: each done once, side by side as one by one, and none of them ends the others."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from dragoman.data.prepare import Corpus, DataConfig, prepare
from dragoman.data.store import open_data
from dragoman.errors import ConfigError, DataError
from dragoman.recipe import Recipe, read_recipe
from dragoman.saved import RECIPE
from dragoman.study.trial import LOG, MODEL, RESULT, RUNS, STUDY, TRANSLATIONS, read_result
from dragoman.study.trials import Outcome, Plan, choose, run_study, trials_of
from dragoman.training.journal import read_journal
from tests.system.conftest import Call, call
from tests.training.conftest import MINUSCULE

__all__ = ["call"]  # a fixture of the tests of the whole program, used here too

BUDGET = ["training.steps=5", "training.save_every=3"]


def recipe(*words: str) -> Recipe:
    return read_recipe("tiny", [*MINUSCULE, *BUDGET, *words])


RECIPES = {"plain": recipe(), "fails": recipe("training.peak=1e35"), "warmer": recipe("model.norm_kind=batch")}


def plan(reversals: Path, out: Path, **changes: object) -> Plan:
    one = Plan(
        study="test",
        command="dragoman study",
        data=reversals / "data",
        source=reversals / "test.fwd",
        target=reversals / "test.rev",
        out=out,
        only=[],
        seeds=1,
        at_once=2,
        average=2,
        device=torch.device("cpu"),
        threads=1,
        overrides=[],
    )
    return replace(one, **changes)  # type: ignore[arg-type]


def run(planned: Plan, recipes: dict[str, Recipe]) -> Outcome:
    return run_study(planned, recipes, Console(stderr=True, width=1000))


@pytest.fixture(scope="module")
def done(reversals: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(plan(reversals, tmp_path_factory.mktemp("done") / "study"), RECIPES)


def test_a_trial_that_fails_is_named_and_the_others_go_on(done: Outcome) -> None:
    assert done.stopped_by is None
    assert done.failures.keys() == {"fails-seed0"}
    assert "the loss is not finite" in done.failures["fails-seed0"]
    assert done.results.keys() == {"plain-seed0", "warmer-seed0"}


def test_what_a_trial_found_is_all_there(done: Outcome) -> None:
    result, folder = done.results["plain-seed0"], done.folder / RUNS / "plain-seed0"
    assert (result.name, result.seed, result.steps, result.averaged) == ("plain", 0, 5, [3, 5])
    assert result == read_result(folder)
    translations = (folder / TRANSLATIONS).read_text().split("\n")[:-1]
    assert len(translations) == len(done.references) == 100
    assert result.left_empty == sum(not line.strip() for line in translations)
    steps = [event for event in read_journal(folder / "run") if event["event"] == "step"]
    assert result.training_seconds >= steps[-1]["seconds"] > 0
    assert result.memory_bytes is not None
    assert 1 << 26 < result.memory_bytes < 1 << 36
    assert 5 < result.tokens <= 5 * 96
    assert result.parameters == json.loads((folder / MODEL / "card.json").read_text())["parameters"]
    assert not (folder / "run" / "checkpoints").exists()  # the model stays, what training needed goes
    assert "validation loss" in (folder / LOG).read_text()


def test_what_is_done_is_not_run_again_and_what_failed_is_tried_again(
    done: Outcome, reversals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in done.folder.glob(f"{RUNS}/*/{RESULT}")}
    again = run(plan(reversals, done.folder), {name: RECIPES[name] for name in ("plain", "warmer")})
    assert {path: path.stat().st_mtime_ns for path in done.folder.glob(f"{RUNS}/*/{RESULT}")} == before
    assert again.results == done.results
    said = capsys.readouterr().err
    assert said.splitlines() == ["2 of 2 trials are done, 2 at once"]


@pytest.mark.slow
def test_one_at_a_time_and_side_by_side_is_the_same(done: Outcome, reversals: Path, tmp_path: Path) -> None:
    alone = run(plan(reversals, tmp_path / "alone", at_once=1), {"warmer": RECIPES["warmer"]}).results["warmer-seed0"]
    together = done.results["warmer-seed0"]
    assert alone.weights_sha256 == together.weights_sha256
    assert alone.bleu == together.bleu


def test_a_trial_keeps_its_recipe_and_a_study_its_conditions(done: Outcome, reversals: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plain-seed0: 'model.width' was 12, got 15"):
        run(plan(reversals, done.folder), {"plain": recipe("model.width=15")})
    with pytest.raises(ConfigError, match=r"'average' was 2, got 3"):
        run(plan(reversals, done.folder, average=3), RECIPES)
    with pytest.raises(ConfigError, match=r"'study' was 'test', got 'other'"):
        run(plan(reversals, done.folder, study="other"), RECIPES)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").touch()
    with pytest.raises(ConfigError, match="not a study's folder"):
        run(plan(reversals, tmp_path / "letters"), RECIPES)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"study": "test"}', '{"averaged": "all"}'])
def test_what_no_study_wrote_is_named_not_read(done: Outcome, reversals: Path, tmp_path: Path, text: str) -> None:
    shutil.copytree(done.folder, tmp_path / "study")
    for damaged in (tmp_path / "study" / RUNS / "plain-seed0" / RESULT, tmp_path / "study" / STUDY):
        damaged.write_text(text)
        with pytest.raises(ConfigError, match=f"{damaged.name}: not what a study writes"):
            run(plan(reversals, tmp_path / "study"), {"plain": RECIPES["plain"]})


def test_every_trial_runs_once_before_any_runs_again(reversals: Path) -> None:
    trials = trials_of(RECIPES, 3, open_data(reversals / "data"))
    assert [trial.label for trial in trials] == [f"{name}-seed{seed}" for seed in range(3) for name in RECIPES]
    assert [trial.recipe.training.seed for trial in trials] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert trials[0].recipe.data.vocabulary == 11  # the data's own, whatever the recipe says


def test_a_warm_up_beyond_the_budget_is_told_before_anything_runs(
    reversals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = plan(reversals, tmp_path / "study", seeds=2)
    (tmp_path / "study" / RUNS).mkdir(parents=True)
    (tmp_path / "study" / STUDY).write_text("[]")  # which ends it before anything is trained
    rows = {"warm": recipe("training.warmup=5"), "cold": recipe("training.warmup=7")}
    with pytest.raises(ConfigError, match="not what a study writes"):
        run(planned, rows)
    assert capsys.readouterr().err == "warm-up is longer than the budget in steps (set training.warmup): cold\n"


@pytest.fixture
def _seven_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(7)  # as by seven cores, or by OMP_NUM_THREADS
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_seven_threads")
def test_a_trial_takes_the_threads_of_any_command_and_shares_only_what_nobody_chose(
    reversals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(reversals, tmp_path, at_once=3, threads=None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert planned.threads_of_a_trial == 2
    assert replace(planned, at_once=11).threads_of_a_trial == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert planned.threads_of_a_trial == 7
    assert replace(planned, threads=5).threads_of_a_trial == 5


def test_a_test_text_has_two_sides(reversals: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--source and --target: only one"):
        run(plan(reversals, tmp_path / "study", target=None), RECIPES)
    assert not (tmp_path / "study").exists()


def test_plain_text_has_no_source_to_translate(reversals: Path, tmp_path: Path) -> None:
    train, valid = (Corpus([], [reversals / f"{name}.rev"]) for name in ("train", "valid"))
    config = DataConfig(vocabulary=11, algorithm="bpe", plain=True)
    prepare(train, valid, (None, "de"), config, tmp_path / "plain", lambda text: None)
    with pytest.raises(DataError, match="is plain text, without a source"):
        run(plan(reversals, tmp_path / "study", data=tmp_path / "plain"), RECIPES)
    assert not (tmp_path / "study").exists()


def test_trials_are_chosen_by_name_or_pattern() -> None:
    names = ["base", "a-1", "a-2", "b-1"]
    assert choose(names, []) == names
    assert choose(names, ["a-*", "base"]) == ["base", "a-1", "a-2"]
    with pytest.raises(ConfigError, match="no such trial, got c-\\*") as refused:
        choose(names, ["c-*"])
    assert "a-2" in refused.value.report()


WORDS = [*MINUSCULE, "training.steps=900", "training.save_every=10000", "training.clip=1.0"]


def start(reversals: Path, out: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "dragoman.cli", "study", "norms", "--data", str(reversals / "data")]
    command += ["--out", str(out), "--only", "layer-before", "--only", "batch-after"]
    return subprocess.Popen([*command, "--at-once", "2", "--threads", "1", *WORDS], stderr=subprocess.PIPE, text=True)


def wait_until_both_train(out: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        journals = list(out.glob("runs/*/run/journal.jsonl"))
        if len(journals) == 2 and all('"step": 20' in each.read_text() for each in journals):
            return
        time.sleep(0.05)
    raise AssertionError("the trials never began")


def processes_of(out: Path) -> list[int]:
    """The trials that are running, by their command lines."""
    found = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in found.splitlines() if str(out) in line and "study.trial" in line]


def results(out: Path) -> dict[str, str]:
    found = {path.parent.name: json.loads(path.read_text()) for path in out.glob(f"{RUNS}/*/{RESULT}")}
    return {name: result["weights_sha256"] for name, result in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_study_that_is_stopped_or_killed_goes_on_exactly(
    reversals: Path, tmp_path: Path, sent: signal.Signals
) -> None:
    process = start(reversals, tmp_path / "stopped")
    wait_until_both_train(tmp_path / "stopped")
    assert len(processes_of(tmp_path / "stopped")) == 2
    process.send_signal(sent)
    _, said = process.communicate(timeout=120)
    if sent == signal.SIGKILL:
        assert process.returncode == -sent
    else:
        assert process.returncode == 128 + sent
        assert "stopped: 0 of 2 trials are done; the same command goes on" in said
        assert not processes_of(tmp_path / "stopped")
    again = start(reversals, tmp_path / "stopped")  # at once: it waits for those who are still saving
    _, said = again.communicate(timeout=240)
    assert again.returncode == 0, said
    assert "Three positions of two channels" in (tmp_path / "stopped" / "report.md").read_text()
    straight = start(reversals, tmp_path / "straight")
    straight.communicate(timeout=240)
    assert len(results(tmp_path / "straight")) == 2
    assert results(tmp_path / "stopped") == results(tmp_path / "straight")
    for log in tmp_path.glob(f"stopped/{RUNS}/*/{LOG}"):
        assert ", from step" in log.read_text()


def test_the_report_is_printed_or_the_numbers(done: Outcome, reversals: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "study"
    shutil.copytree(done.folder, out)
    # As if one of its trials had been a trial of `study norms`: it is done, so nothing is trained.
    (out / STUDY).write_text(json.dumps(json.loads((out / STUDY).read_text()) | {"study": "norms"}))
    (out / RUNS / "plain-seed0").rename(out / RUNS / "none-seed0")
    (out / RUNS / "none-seed0" / RECIPE).unlink()
    words = ["--data", reversals / "data", "--source", reversals / "test.fwd", "--target", reversals / "test.rev"]
    words += ["--out", out, "--only", "none", "--average", "2"]
    ended = call("study", "norms", *words)
    assert (ended.code, ended.out) == (0, (out / "report.md").read_text())
    assert "wrote" in ended.err
    assert json.loads(call("study", "norms", *words, "--json").out) == json.loads((out / "results.json").read_text())


def test_what_a_row_is_about_is_left_alone_aloud(reversals: Path, tmp_path: Path, call: Call) -> None:
    words = ("--only", "base", "--only", "c-2-layers", "--only", "d-dropout-0.*", "model.dropout=0.2", "model.layers=2")
    ended = call("study", "table3", "--data", reversals / "data", "--out", tmp_path / "study", *words)
    said = "left as it is, for that is what is studied: model.dropout of d-dropout-0.0\n"
    assert ended.err.startswith(said)
    assert "c-2-layers is the same as base at this scale" in ended.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("data.vocabulary=7",), "data.vocabulary=7: settled when the data was prepared"),
        (("training.seed=7",), "training.seed=7: a study counts its seeds from 0"),
        (("--only", "nothing"), "--only: no such trial, got nothing"),
        (("model.widht=7",), "did you mean 'model.width'"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_what_cannot_be_right_is_said_before_anything_runs(
    reversals: Path, tmp_path: Path, call: Call, words: tuple[str, ...], message: str
) -> None:
    ended = call("study", "systems", "--data", reversals / "data", "--out", tmp_path / "study", *words)
    assert ended.code == 2
    assert message in ended.err
    assert not (tmp_path / "study").exists()
