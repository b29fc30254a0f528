"""The loop: budgets, failures, memory, validation, what it leaves behind."""

import math
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dragoman.durable import beside, strays
from dragoman.errors import ConfigError, DataError, FormatError, ModelError, RunError
from dragoman.saved import (
    WEIGHTS,
    checkpoints,
    find_model,
    load_model,
    newest_good,
    read_card,
    read_tensors,
    step_of,
    verify,
    write_card,
)
from dragoman.training import checkpoints as checkpointing
from dragoman.training import gradients, loop
from dragoman.training import run as setup
from dragoman.training.checkpoints import RunFolder
from dragoman.training.journal import read_journal
from dragoman.training.schedule import Progress
from dragoman.training.validation import Validation, is_better
from tests.training.conftest import Train


def test_the_first_budget_reached_ends_the_run(train_small: Train, tmp_path: Path) -> None:
    outcome = train_small(tmp_path / "run", "training.steps=7", "training.epochs=100", "training.minutes=5")
    assert outcome.progress.step == 7


def test_an_epoch_budget_ends_with_the_epoch(train_small: Train, tmp_path: Path) -> None:
    outcome = train_small(tmp_path / "run", "training.epochs=1", "training.batch_tokens=4800")
    assert (outcome.progress.epoch, outcome.progress.epoch_share) == (0, 1.0)
    assert outcome.progress.position == outcome.progress.step


def test_a_budget_in_minutes_ends_the_run(train_small: Train, tmp_path: Path) -> None:
    outcome = train_small(tmp_path / "run", "training.minutes=0.02", "training.save_every=100000")
    assert 1.2 <= outcome.progress.seconds < 30
    assert outcome.checkpoint is not None


def test_resuming_a_run_that_is_done_changes_nothing_and_says_so(train_small: Train, tmp_path: Path) -> None:
    train_small(tmp_path / "run", "training.steps=3")
    with pytest.raises(ConfigError, match="the budget is spent already"):
        train_small(tmp_path / "run", "training.steps=3", resume=True)
    assert [folder.name for folder in checkpoints(tmp_path / "run")] == ["step-3"]


def test_a_recipe_without_a_budget_is_refused(reversals: Path, tmp_path: Path) -> None:
    from rich.console import Console

    from dragoman.recipe import Recipe
    from dragoman.training.run import run_training

    with pytest.raises(ConfigError, match="no budget"):
        run_training(Recipe(), reversals / "data", tmp_path / "run", torch.device("cpu"), Console(quiet=True))


def test_a_loss_that_is_not_finite_stops_before_the_step_and_names_the_batch(
    train_small: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_small(tmp_path / "run", "training.steps=3")
    before = newest_good(tmp_path / "run")
    monkeypatch.setattr(loop, "learning_rate", lambda *_: 1e30)  # the next update throws the weights to infinity
    with pytest.raises(RunError, match=r"the loss is not finite, got loss .* pairs \d+, "):
        train_small(tmp_path / "run", "training.steps=20", resume=True)
    assert newest_good(tmp_path / "run") == before
    verify(before)
    assert all(torch.isfinite(tensor).all() for tensor in load_model(before).model.parameters())


def test_running_out_of_memory_halves_the_rows_and_goes_on_with_the_same_gradient(
    train_small: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    whole = gradients.summed_loss

    def short_of_memory(model: torch.nn.Module, batch: object, *rest: object) -> torch.Tensor:
        seen.append(len(batch))  # type: ignore[arg-type]
        if len(batch) > 2:  # type: ignore[arg-type]
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(model, batch, *rest)  # type: ignore[arg-type]

    words = ("training.steps=3", "training.batch_tokens=336", "model.dropout=0.0")
    rich = train_small(tmp_path / "rich", *words)
    monkeypatch.setattr(gradients, "summed_loss", short_of_memory)
    poor = train_small(tmp_path / "poor", *words)
    assert (rich.progress.rows_at_once, poor.progress.rows_at_once) == (7, 1)
    assert max(seen) == 7
    losses = [
        [event["loss"] for event in read_journal(tmp_path / run) if event["event"] == "step"]
        for run in ("rich", "poor")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_memory_that_cannot_hold_one_row_ends_the_run(
    train_small: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(gradients, "summed_loss", no_memory)
    with pytest.raises(RunError, match="not even one row"):
        train_small(tmp_path / "run", "training.steps=3")


def test_the_best_checkpoint_and_the_last_ones_are_kept(train_small: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = train_small(run, "training.steps=11", "training.save_every=1", "training.keep_last=2")
    steps = [step_of(folder) for folder in checkpoints(run)]
    assert steps == sorted({outcome.progress.best_step, 10, 11})
    assert step_of(find_model(run, "last")) == 11
    assert step_of(find_model(run)) == step_of(find_model(run, "best")) == outcome.progress.best_step


def validation(bleu: float, loss: float | None) -> Validation:
    return Validation(loss, bleu, [])


def test_the_higher_bleu_is_better_and_where_it_is_equal_the_lower_loss() -> None:
    best = Progress(best_score=31.0, best_loss=2.0, best_step=7)
    assert is_better(validation(0.0, None), Progress())
    assert is_better(validation(31.1, 3.0), best)
    assert not is_better(validation(30.9, 1.0), best)
    assert is_better(validation(31.0, 1.9), best)
    assert not is_better(validation(31.0, 2.0), best)
    assert not is_better(validation(31.0, None), best)
    assert not is_better(validation(31.1, 2.1), best, by_loss=True)
    assert is_better(validation(30.9, 1.9), best, by_loss=True)


def test_where_lines_are_too_short_for_bleu_the_loss_chooses_the_best_checkpoint(
    train_small: Train, tmp_path: Path
) -> None:
    # A number is one word to BLEU, which counts up to four: it stays at zero while the loss falls.
    words = ("training.steps=31", "training.save_every=5", "training.patience=2")
    outcome = train_small(tmp_path / "run", *words)
    told = [event for event in read_journal(tmp_path / "run") if event["event"] == "validation"]
    assert {event["bleu"] for event in told} == {0.0}
    assert outcome.progress.best_step == min(told, key=lambda event: event["loss"])["step"] > 5
    assert outcome.progress.step == 31


def test_without_validation_the_last_checkpoint_is_taken(train_small: Train, tmp_path: Path, unvalidated: Path) -> None:
    outcome = train_small(tmp_path / "run", "training.steps=4", "training.save_every=2", data=unvalidated)
    assert outcome.progress.best_step is None
    assert step_of(find_model(tmp_path / "run")) == 4


@pytest.fixture
def unvalidated(reversals: Path, tmp_path: Path) -> Path:
    from dragoman.data.prepare import Corpus, DataConfig, prepare

    corpus = Corpus([reversals / "train.fwd"], [reversals / "train.rev"])
    prepare(corpus, None, (None, None), DataConfig(vocabulary=11), tmp_path / "unvalidated", lambda text: None)
    return tmp_path / "unvalidated"


def test_patience_ends_a_run_that_no_longer_improves(train_small: Train, tmp_path: Path) -> None:
    words = ("training.steps=1000", "training.save_every=1", "training.patience=3", "training.peak=1e-12")
    outcome = train_small(tmp_path / "run", *words)
    assert outcome.progress.stale == 3
    assert outcome.progress.step < 50


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(
    train_small: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    train_small(run, "training.steps=6", "training.save_every=2")
    weights = checkpoints(run)[-1] / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 4
    weights.write_bytes(content)
    outcome = train_small(run, "training.steps=7", "training.save_every=2", resume=True)
    assert outcome.progress.step == 7
    assert all(verify(folder) for folder in checkpoints(run))  # the damaged one was written anew
    assert "corrupt" in caplog.text
    assert "falling back to the checkpoint before" in caplog.text


def test_pairs_longer_than_a_row_are_left_out_and_said(
    train_small: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_small(tmp_path / "run", "training.row_length=8", "training.steps=2")
    assert "pairs are longer than a row, 8 source and 8 target positions, and are left out" in capsys.readouterr().err


def warnings(run: Path) -> list[tuple[int, str]]:
    return [(event["step"], event["text"]) for event in read_journal(run) if event["event"] == "warning"]


def test_a_run_that_ends_inside_its_warm_up_says_so(
    train_small: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cold = "3 steps end inside the warm-up of 5, before the learning rate reaches its peak; "
    train_small(tmp_path / "steps", "training.steps=3")
    assert [(step, text.startswith(cold)) for step, text in warnings(tmp_path / "steps")] == [(0, True), (3, True)]
    assert capsys.readouterr().err.count(f"warning: {cold}") == 2
    # How many steps minutes hold is known at the end.
    train_small(tmp_path / "minutes", "training.minutes=0.0001", "training.warmup=100000")
    ((step, text),) = warnings(tmp_path / "minutes")
    assert text.startswith(f"{step:,} steps end inside the warm-up of 100,000, ")


def test_a_run_that_reaches_its_peak_is_not_warned_of(train_small: Train, tmp_path: Path) -> None:
    train_small(tmp_path / "warm", "training.steps=5")
    assert warnings(tmp_path / "warm") == []


def test_a_run_folder_is_locked_while_a_run_uses_it(train_small: Train, tmp_path: Path) -> None:
    from dragoman.training.checkpoints import RunFolder

    holder = (
        "import sys, time; from pathlib import Path; from dragoman.training.checkpoints import RunFolder\n"
        f"with RunFolder(Path({str(tmp_path / 'run')!r})).lock(): print('held', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ModelError, match=rf"in use by another run \(process {process.pid} on "):
            train_small(tmp_path / "run", "training.steps=2")
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    with RunFolder(tmp_path / "run").lock():  # the lock of a dead process is free
        pass


def test_a_folder_that_holds_a_run_is_not_written_over(train_small: Train, tmp_path: Path) -> None:
    train_small(tmp_path / "run", "training.steps=2")
    with pytest.raises(ModelError, match="holds a run already"):
        train_small(tmp_path / "run", "training.steps=2")


def test_a_folder_used_for_something_else_is_left_alone(train_small: Train, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    with pytest.raises(ModelError, match="is in use for something else"):
        train_small(tmp_path / "thesis", "training.steps=2")
    (tmp_path / "thesis" / "lock").touch()  # as a demo's folder has, beside what is not a run's
    with pytest.raises(ModelError, match="is in use for something else"):
        train_small(tmp_path / "thesis", "training.steps=2")


def test_resuming_nothing_is_refused_and_starts_nothing(train_small: Train, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nothing to resume"):
        train_small(tmp_path / "typo", "training.steps=2", resume=True)
    assert not (tmp_path / "typo").exists()


def test_resuming_with_another_recipe_names_what_changed(train_small: Train, tmp_path: Path) -> None:
    train_small(tmp_path / "run", "training.steps=2")
    with pytest.raises(ConfigError, match=r"'model.hidden' was 17, got 19(.|\n)*'training.seed' was 0, got 5"):
        train_small(tmp_path / "run", "training.steps=4", "model.hidden=19", "training.seed=5", resume=True)


def test_resuming_on_other_data_is_refused(train_small: Train, tmp_path: Path, unvalidated: Path) -> None:
    train_small(tmp_path / "run", "training.steps=2")
    with pytest.raises(DataError, match="the data is not what the run was trained on"):
        train_small(tmp_path / "run", "training.steps=4", data=unvalidated, resume=True)


def test_a_full_disk_ends_the_run_with_an_error_that_names_it_and_spares_the_last_checkpoint(
    train_small: Train, tmp_path: Path
) -> None:
    train_small(tmp_path / "run", "training.steps=2")
    whole = newest_good(tmp_path / "run")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    import signal

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(RunError, match="cannot be written"):
            train_small(tmp_path / "run", "training.steps=4", resume=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert newest_good(tmp_path / "run") == whole
    assert [folder.name for folder in (tmp_path / "run" / "checkpoints").iterdir()] == [whole.name]


def test_training_from_a_model_takes_its_weights_and_its_vocabulary(
    train_small: Train, tmp_path: Path, reversals: Path
) -> None:
    from dragoman.data.prepare import Corpus, DataConfig, prepare
    from dragoman.data.store import open_data

    train_small(tmp_path / "first", "training.steps=9")
    corpus = Corpus([reversals / "valid.rev"], [reversals / "valid.fwd"])
    prepare(corpus, None, (None, None), DataConfig(vocabulary=7), tmp_path / "other", lambda text: None)
    words = ("training.steps=1", "training.peak=1e-12")
    train_small(tmp_path / "second", *words, start=tmp_path / "first", data=tmp_path / "other")
    first, second = load_model(tmp_path / "first", "last"), load_model(tmp_path / "second", "last")
    assert second.source_vocabulary.proto == first.source_vocabulary.proto
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    recoded = open_data(tmp_path / "second" / "data")
    texts = recoded.source_vocabulary.decode([recoded.train.pair(n)[0].tolist() for n in range(len(recoded.train))])
    assert texts == (reversals / "valid.rev").read_text().splitlines()


def test_averaging_is_the_mean_of_the_last_checkpoints(train_small: Train, tmp_path: Path) -> None:
    from dragoman.training.average import average_last

    train_small(tmp_path / "run", "training.steps=7", "training.save_every=2", "training.keep_last=3")
    steps = average_last(tmp_path / "run", 3, tmp_path / "mean")
    assert steps == [4, 6, 7]
    folders = [load_model(tmp_path / "run", str(step)).model for step in steps]
    mean = load_model(tmp_path / "mean")
    for name, parameter in mean.model.named_parameters():
        expected = torch.stack([dict(model.named_parameters())[name].double() for model in folders]).mean(0)
        torch.testing.assert_close(parameter.double(), expected, rtol=1e-6, atol=1e-8)
    assert mean.card["averaged"] == steps
    assert "about" not in mean.card
    with pytest.raises(ModelError, match="already exists"):
        average_last(tmp_path / "run", 3, tmp_path / "mean")
    with pytest.raises(ModelError, match="too few checkpoints are kept, 3, got --last 29"):
        average_last(tmp_path / "run", 29, tmp_path / "more")


def test_half_an_average_takes_half_the_bytes_and_is_right_to_eleven_bits(train_small: Train, tmp_path: Path) -> None:
    from dragoman.training.average import average_last

    train_small(tmp_path / "run", "training.steps=2", "training.save_every=1")
    for name, half in (("whole", False), ("half", True)):
        average_last(tmp_path / "run", 2, tmp_path / name, half, about="of digits")
    whole, half = (load_model(tmp_path / name) for name in ("whole", "half"))
    for one, other in zip(whole.model.parameters(), half.model.parameters(), strict=True):
        assert one.dtype == other.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=2**-11, atol=2**-25)
    sizes = [sum(each.numel() * each.element_size() for each in read_tensors(tmp_path / name / WEIGHTS).values())
             for name in ("whole", "half")]  # fmt: skip
    assert sizes[0] == 2 * sizes[1]
    assert half.card["about"] == "of digits"


def test_the_same_seed_gives_the_same_model_and_another_seed_another(train_small: Train, tmp_path: Path) -> None:
    hashes = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train_small(tmp_path / name, "training.steps=3", f"training.seed={seed}")
        hashes.append(read_card(newest_good(tmp_path / name))["files"]["weights.safetensors"])
    assert hashes[0] == hashes[1] != hashes[2]


def test_clipping_bounds_the_gradient(train_small: Train, tmp_path: Path) -> None:
    trainer_norms = []
    for name, words in (("free", ()), ("clipped", ("training.clip=0.001",))):
        train_small(tmp_path / name, "training.steps=4", *words)
        steps = [event for event in read_journal(tmp_path / name) if event["event"] == "step"]
        trainer_norms.append([event["gradient_norm"] for event in steps])
    # The norm reported is the one before clipping; what Adam remembers of the gradients is bounded by the clip.
    assert all(norm > 0.001 for norm in trainer_norms[1])
    from dragoman.saved import read_tensors
    from dragoman.training.checkpoints import STATE

    moments = read_tensors(newest_good(tmp_path / "clipped") / STATE)
    total = math.sqrt(sum(float(t.double().pow(2).sum()) for n, t in moments.items() if n.startswith("exp_avg.")))
    assert total <= 0.001


def test_the_journal_has_what_a_curve_needs(train_small: Train, tmp_path: Path) -> None:
    train_small(tmp_path / "run", "training.steps=5", "training.save_every=5")
    events = {event["event"]: event for event in read_journal(tmp_path / "run")}
    assert {"loss", "learning_rate", "gradient_norm", "tokens_per_second", "seconds"} <= events["step"].keys()
    assert {"loss", "bleu", "samples"} <= events["validation"].keys()
    assert events["started"]["precision"] in ("float32", "bfloat16")
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))


def test_bf16_trains_too(train_small: Train, tmp_path: Path) -> None:
    outcome = train_small(tmp_path / "run", "training.steps=3", "training.precision=bf16")
    assert outcome.progress.step == 3


def test_what_a_refused_run_began_is_removed(train_small: Train, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="every pair is longer than a row"):
        train_small(tmp_path / "run", "training.steps=2", "training.row_length=8", data=long_data(tmp_path))
    assert not (tmp_path / "run").exists()


def long_data(tmp_path: Path) -> Path:
    from dragoman.data.prepare import Corpus, DataConfig, prepare

    for name in ("long.fwd", "long.rev"):
        (tmp_path / name).write_text("".join(f"{number}{number}{number}\n" for number in range(1000, 1013)))
    corpus = Corpus([tmp_path / "long.fwd"], [tmp_path / "long.rev"])
    prepare(corpus, None, (None, None), DataConfig(vocabulary=7), tmp_path / "long", lambda text: None)
    return tmp_path / "long"


def test_a_validation_pair_too_long_for_the_model_does_not_end_the_run(
    train_small: Train, tmp_path: Path, reversals: Path
) -> None:
    from dragoman.data.prepare import Corpus, DataConfig, prepare

    (tmp_path / "valid.fwd").write_text("123\n" + "4" * 97 + "\n")
    (tmp_path / "valid.rev").write_text("321\n" + "4" * 97 + "\n")
    train = Corpus([reversals / "train.fwd"], [reversals / "train.rev"])
    valid = Corpus([tmp_path / "valid.fwd"], [tmp_path / "valid.rev"])
    prepare(train, valid, (None, None), DataConfig(vocabulary=11), tmp_path / "data", lambda text: None)
    outcome = train_small(tmp_path / "run", "training.steps=2", "model.longest=53", data=tmp_path / "data")
    assert outcome.checkpoint is not None


def test_what_an_interruption_saved_is_dropped_at_the_next_regular_checkpoint(
    train_small: Train, tmp_path: Path, unvalidated: Path
) -> None:
    run, often = tmp_path / "run", ("training.save_every=2", "training.keep_last=9")
    train_small(run, *often, "training.steps=5", data=unvalidated)
    assert [step_of(folder) for folder in checkpoints(run)] == [2, 4, 5]
    train_small(run, *often, "training.steps=8", data=unvalidated, resume=True)
    assert [step_of(folder) for folder in checkpoints(run)] == [2, 4, 6, 8]


def test_regular_checkpoints_stay_when_they_come_at_other_steps_from_now_on(
    train_small: Train, tmp_path: Path, unvalidated: Path
) -> None:
    run = tmp_path / "run"
    train_small(run, "training.save_every=2", "training.keep_last=9", "training.steps=5", data=unvalidated)
    words = ("training.save_every=3", "training.keep_last=9", "training.steps=11")
    train_small(run, *words, data=unvalidated, resume=True)
    assert [step_of(folder) for folder in checkpoints(run)] == [2, 4, 6, 9, 11]


def test_training_from_a_model_never_reads_what_an_earlier_attempt_left(train_small: Train, tmp_path: Path) -> None:
    train_small(tmp_path / "first", "training.steps=2")
    first, second = long_data(tmp_path), tmp_path / "second"
    (second / "data").mkdir(parents=True)
    (second / "lock").touch()
    (second / "data" / "junk").touch()
    train_small(second, "training.steps=2", start=tmp_path / "first", data=first)
    assert load_model(second, "last").card["step"] == 2


def test_a_second_run_on_a_fresh_folder_never_removes_the_first_ones(
    train_small: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragoman.training import run as setup
    from dragoman.training.checkpoints import RunFolder

    out = tmp_path / "run"
    holder = RunFolder(out).lock()
    load = setup.open_data

    def first_comes_meanwhile(folder: Path) -> object:
        holder.__enter__()
        (out / "checkpoints" / "theirs").touch()
        return load(folder)

    monkeypatch.setattr(setup, "open_data", first_comes_meanwhile)
    monkeypatch.setattr(Path, "exists", lambda self: self != out and os.path.exists(self))
    with pytest.raises(ModelError, match="in use by another run"):
        train_small(out, "training.steps=2")
    assert os.path.isfile(out / "checkpoints" / "theirs")
    holder.__exit__(None, None, None)


def test_a_save_that_is_refused_spares_what_was_saved_before(
    train_small: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    save = RunFolder.save

    def refuse(self: RunFolder, *words: Any) -> Path:
        if words[-1].step == 4:
            raise ModelError(self.path, "cannot be written: Permission denied")
        return save(self, *words)

    monkeypatch.setattr(RunFolder, "save", refuse)
    with pytest.raises(ModelError, match="Permission denied"):
        train_small(run, "training.steps=9", "training.save_every=2")
    assert step_of(newest_good(run)) == 2


def test_a_folder_of_the_users_is_no_run_whatever_its_files_are_called(train_small: Train, tmp_path: Path) -> None:
    for name in ("data", "recipe.toml"):
        folder = tmp_path / f"with {name}"
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(ModelError, match="is in use for something else"):
            train_small(folder, "training.steps=2")
        assert (folder / name).read_text() == "mine"


def test_a_run_that_was_killed_before_it_saved_can_be_started_again(train_small: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "lock").touch()
    for path in (beside(run / "recipe.toml"), beside(run / "journal.jsonl")):
        path.touch()
    beside(run / "data").mkdir()
    train_small(run, "training.steps=2")
    assert not strays(run)


def test_a_run_that_ended_while_another_waited_is_not_written_over(
    train_small: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, opened = tmp_path / "run", setup.open_data

    def train_meanwhile(folder: Path) -> Any:
        monkeypatch.setattr(setup, "open_data", opened)
        train_small(run, "training.steps=5")
        return opened(folder)

    monkeypatch.setattr(setup, "open_data", train_meanwhile)
    with pytest.raises(ModelError, match="holds a run already"):
        train_small(run, "training.steps=2")
    assert [step_of(folder) for folder in checkpoints(run)] == [5]


def test_a_checkpoint_of_a_later_version_is_neither_passed_over_nor_removed(train_small: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_small(run, "training.steps=6", "training.save_every=3")
    newest = newest_good(run)
    write_card(newest, read_card(newest) | {"format": 2})
    with pytest.raises(FormatError, match="written in format 2"):
        train_small(run, "training.steps=9", "training.save_every=3", resume=True)
    assert [step_of(folder) for folder in checkpoints(run)] == [3, 6]


def test_fine_tuning_goes_on_with_the_data_it_began_with(train_small: Train, tmp_path: Path, unvalidated: Path) -> None:
    train_small(tmp_path / "first", "training.steps=2")
    data, run = long_data(tmp_path), tmp_path / "second"
    words = ("training.steps=3", "training.save_every=1")
    train_small(run, *words, start=tmp_path / "first", data=data)
    more = ("training.steps=5", "training.save_every=1")
    with pytest.raises(DataError, match="the data is not what the run was trained on"):
        train_small(run, *more, start=tmp_path / "first", data=unvalidated, resume=True)
    outcome = train_small(run, *more, start=tmp_path / "first", data=data, resume=True)
    assert outcome.progress.step == 5


def test_an_interruption_is_forgotten_also_where_a_run_was_killed_before_it_could_be(
    train_small: Train, tmp_path: Path, unvalidated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, often = tmp_path / "run", ("training.save_every=2", "training.keep_last=3")
    train_small(run, *often, "training.steps=5", data=unvalidated)
    with monkeypatch.context() as patch:
        patch.setattr(checkpointing, "_remove", lambda folder: None)  # as if killed between saving and pruning
        train_small(run, *often, "training.steps=6", data=unvalidated, resume=True)
    assert [step_of(folder) for folder in checkpoints(run)] == [2, 4, 5, 6]
    train_small(run, *often, "training.steps=8", data=unvalidated, resume=True)
    assert [step_of(folder) for folder in checkpoints(run)] == [4, 6, 8]
