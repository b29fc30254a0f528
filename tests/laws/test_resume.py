"""An interrupted run equals an uninterrupted one, bit for bit, on a CPU."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from dragoman.data.batches import Updates
from dragoman.data.store import open_data
from dragoman.saved import WEIGHTS, checkpoints, load_model, newest_good, read_tensors, verify, weights_sha256
from dragoman.training.average import average_last
from dragoman.training.checkpoints import STATE
from dragoman.training.journal import read_journal
from tests.training.conftest import MINUSCULE, Train, train_small

__all__ = ["train_small"]  # a fixture of the training tests, used here too


def everything(run: Path) -> dict[str, torch.Tensor]:
    folder = newest_good(run)
    return {**read_tensors(folder / WEIGHTS), **read_tensors(folder / STATE)}


def assert_same_run(one: Path, other: Path) -> None:
    first, second = everything(one), everything(other)
    assert first.keys() == second.keys()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert not different


def updates_an_epoch(reversals: Path) -> int:
    updates = Updates(open_data(reversals / "data").train, 96, 48, 0)
    return -(-len(list(updates.rows(0))) // updates.rows_an_update)


@pytest.mark.parametrize("stop", [1, 7, 13])
def test_a_run_stopped_in_mid_epoch_goes_on_exactly(train_small: Train, tmp_path: Path, stop: int) -> None:
    train_small(tmp_path / "straight", "training.steps=17", "training.save_every=1000")
    train_small(tmp_path / "stopped", f"training.steps={stop}", "training.save_every=1000")
    train_small(tmp_path / "stopped", "training.steps=17", "training.save_every=13", resume=True)
    assert_same_run(tmp_path / "straight", tmp_path / "stopped")


def test_what_a_batch_norm_has_counted_is_saved_restored_and_averaged(train_small: Train, tmp_path: Path) -> None:
    words = ("model.norm_kind=batch", "training.save_every=3")
    train_small(tmp_path / "straight", "training.steps=9", *words)
    train_small(tmp_path / "stopped", "training.steps=5", *words)
    train_small(tmp_path / "stopped", "training.steps=9", *words, resume=True)
    assert_same_run(tmp_path / "straight", tmp_path / "stopped")
    average_last(tmp_path / "straight", 2, tmp_path / "mean")
    folders = [*checkpoints(tmp_path / "straight")[-2:], tmp_path / "mean"]
    *last, mean = (read_tensors(folder / WEIGHTS) for folder in folders)
    counted = [name for name in mean if name.endswith(("norm.mean", "norm.variance"))]
    assert len(counted) == 2 * 7  # of an encoder layer's two sublayers, a decoder layer's three, and behind both stacks
    for name in counted:
        assert not torch.equal(last[0][name], last[1][name])
        torch.testing.assert_close(mean[name], (last[0][name] + last[1][name]) / 2)
    loaded = load_model(tmp_path / "mean")
    assert all(torch.equal(tensor, mean[name]) for name, tensor in loaded.model.kept().items())
    assert loaded.card["parameters"] == sum(tensor.numel() for tensor in mean.values()) - 2 * 7 * 12


def test_a_run_stopped_around_an_epoch_edge_goes_on_exactly(
    train_small: Train, tmp_path: Path, reversals: Path, few: Path
) -> None:
    edge = updates_an_epoch(few)
    last = edge + 3
    train_small(tmp_path / "straight", f"training.steps={last}", "training.save_every=1000", data=few / "data")
    for stop in (edge - 1, edge, edge + 1):
        run = tmp_path / f"stopped-{stop}"
        train_small(run, f"training.steps={stop}", "training.save_every=1000", data=few / "data")
        train_small(run, f"training.steps={last}", "training.save_every=1000", data=few / "data", resume=True)
        assert_same_run(tmp_path / "straight", run)


@pytest.fixture
def few(reversals: Path, tmp_path: Path) -> Path:
    """So few pairs that an epoch has only some updates."""
    from dragoman.data.prepare import Corpus, DataConfig, prepare

    folder = tmp_path / "few"
    folder.mkdir()
    for suffix in ("fwd", "rev"):
        lines = (reversals / f"train.{suffix}").read_text().splitlines()[:113]
        (folder / f"train.{suffix}").write_text("".join(f"{line}\n" for line in lines))
    corpus = Corpus([folder / "train.fwd"], [folder / "train.rev"])
    prepare(corpus, None, (None, None), DataConfig(vocabulary=11), folder / "data", lambda text: None)
    return folder


def test_saving_and_validating_do_not_disturb_a_run(train_small: Train, tmp_path: Path) -> None:
    train_small(tmp_path / "often", "training.steps=11", "training.save_every=2")
    train_small(tmp_path / "once", "training.steps=11", "training.save_every=1000")
    hashes = [weights_sha256(read_tensors(newest_good(tmp_path / run) / WEIGHTS)) for run in ("often", "once")]
    assert hashes[0] == hashes[1]


def test_the_journal_of_a_resumed_run_tells_each_step_once(train_small: Train, tmp_path: Path) -> None:
    train_small(tmp_path / "run", "training.steps=5", "training.save_every=3")
    train_small(tmp_path / "run", "training.steps=9", "training.save_every=3", resume=True)
    steps = [event["step"] for event in read_journal(tmp_path / "run") if event["event"] == "step"]
    assert steps == list(range(1, 10))


def start_run(reversals: Path, run: Path, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "dragoman.cli", "train", "tiny", "--data", str(reversals / "data")]
    command += ["--out", str(run), "--threads", "1", *MINUSCULE, "training.schedule=landing", *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> int:
    process.communicate(timeout=240)
    return process.returncode


def wait_for(run: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if run.is_dir() and (run / "journal.jsonl").is_file():
            events = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines() if line[-1:] == "}"]
            if any(event["step"] >= step for event in events):
                return
        time.sleep(0.05)
    raise AssertionError(f"the run never came to step {step}")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_stopped_by_a_signal_saves_and_goes_on_exactly(
    reversals: Path, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    budget = ("training.steps=149", "training.save_every=1000")
    assert finish(start_run(reversals, tmp_path / "straight", *budget)) == 0
    process = start_run(reversals, tmp_path / "stopped", *budget)
    wait_for(tmp_path / "stopped", 20)
    process.send_signal(sent)
    _, said = process.communicate(timeout=120)
    assert process.returncode == code
    assert "go on with the same command and --resume" in said
    assert 20 <= int(newest_good(tmp_path / "stopped").name.removeprefix("step-")) < 149
    assert finish(start_run(reversals, tmp_path / "stopped", *budget, "--resume")) == 0
    assert_same_run(tmp_path / "straight", tmp_path / "stopped")


def test_a_run_killed_while_it_saves_all_the_time_always_leaves_a_whole_checkpoint(
    reversals: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    budget = ("training.steps=100000", "training.save_every=1", "training.keep_last=2")
    for kill in range(4):
        process = start_run(reversals, run, *budget, *(["--resume"] if kill else []))
        before = int(newest_good(run).name.removeprefix("step-")) if kill else 0
        wait_for(run, before + 5)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        folder = newest_good(run)
        verify(folder)
        saved = [event["step"] for event in read_journal(run) if event["event"] == "saved"]
        assert int(folder.name.removeprefix("step-")) >= max(saved)
    last = f"training.steps={int(newest_good(run).name.removeprefix('step-')) + 1}"
    assert finish(start_run(reversals, run, last, "training.save_every=1", "--resume")) == 0
    assert not list((run / "checkpoints").glob(".*"))  # strays of the killed runs are swept away
