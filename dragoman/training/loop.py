"""The training loop (section 5): an update at a time, until the budget is spent.

One pair's way: store > batches > loop > gradients > transformer > cross_entropy.
"""

import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
from jaxtyping import Float
from rich.console import Console
from torch import Tensor

from dragoman.data.batches import Update, Updates, in_background
from dragoman.data.store import Data
from dragoman.durable import replace_file
from dragoman.errors import ConfigError, DataError, RunError
from dragoman.models.interface import Model
from dragoman.recipe import BUDGETS, Recipe
from dragoman.saved import RECIPE, Card
from dragoman.training.checkpoints import RunFolder, restore
from dragoman.training.gradients import Gradients
from dragoman.training.journal import Journal
from dragoman.training.schedule import Progress, learning_rate, spent, still_warms_up
from dragoman.training.validation import is_better, validate

# Logits are the largest tensor; how much of the memory they may take at first.
CPU_LOGITS_BYTES = 1 << 30
GPU_LOGITS_SHARE = 1 / 16


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    progress: Progress
    checkpoint: Path | None
    signal: int | None = None  # which one stopped it, if one did


def train(
    run: RunFolder,
    recipe: Recipe,
    data: Data,
    model: Model,
    card: Card,
    checkpoint: Path | None,
    console: Console,
) -> Outcome:
    """Train a model, from a checkpoint on if there is one, until the budget is spent or somebody stops it."""
    torch.manual_seed(recipe.training.seed)
    trainer = Trainer(model, recipe, data)
    progress = restore(checkpoint, model, trainer.optimizer) if checkpoint else Progress()
    if spent(progress, recipe.training) >= 1:
        raise ConfigError(run.path, "the budget is spent already", hint="give more, for example training.steps=...")
    run.forget_after(progress.step)
    replace_file(run.path / RECIPE, recipe.toml())
    with (
        Journal(run.path, progress.step, console) as journal,
        stop_request() as stopped_by,
        closing(trainer.updates_from(progress)) as updates,
    ):
        trainer.introduce(journal, progress)
        clock = Clock(progress, counts_first=not trainer.gradients.take_time_at_first)
        readings: deque[Reading] = deque()
        for update in updates:
            readings.append(trainer.take_step(update, progress))
            clock.tick()
            ended = spent(progress, recipe.training) >= 1
            is_due = ended or progress.step % recipe.training.save_every == 0
            while len(readings) > (0 if is_due else trainer.steps_ahead):
                reading = readings.popleft()
                values = reading.wait() | {"seconds": progress.seconds}
                values["tokens_per_second"] = clock.lap(reading.tokens)
                journal.show_step(reading.step, values, spent(progress, recipe.training))
            if is_due:
                ended |= trainer.validate(journal, progress)
                clock.tick()
                clock.lap(0)
            stopped = None if ended else stopped_by()
            if is_due or stopped:
                for reading in readings:
                    reading.wait()  # nothing that is not finite is saved
                vocabularies = (data.source_vocabulary, data.target_vocabulary)
                checkpoint = run.save(model, trainer.optimizer, recipe, vocabularies, card, progress)
                journal.write("saved", progress.step, {"folder": checkpoint.name})
            if ended:
                trainer.warn_of_warm_up(journal, progress.step, progress.step)
            if ended or stopped:
                journal.write("ended", progress.step, {"seconds": progress.seconds, "signal": stopped})
                break
    return Outcome(progress, checkpoint, stopped)


class Trainer:
    """A model, its optimiser and its data."""

    def __init__(self, model: Model, recipe: Recipe, data: Data) -> None:
        config = recipe.training
        if not any(getattr(config, budget) for budget in BUDGETS):
            raise ConfigError("training", "no budget: set training.steps, training.epochs or training.minutes")
        if config.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with this
            torch.use_deterministic_algorithms(True)
        self.model = model.train()
        self.recipe = recipe
        self.data = data
        self.updates = Updates(
            data.train,
            config.batch_tokens,
            config.row_length,
            config.seed,
            packed=model.keeps_packed_sentences_apart,
            longest=model.longest,
        )
        if len(self.updates.fitting) == 0:
            raise DataError("training.row_length", f"every pair is longer than a row, {self.updates.row_lengths}")
        self.tokens_an_epoch = int(self.updates.lengths[self.updates.fitting, 1].sum())
        betas = (config.beta1, config.beta2)
        self.optimizer = torch.optim.Adam(model.parameters(), betas=betas, eps=config.epsilon, fused=True)
        self.gradients = Gradients(model, config)
        self.steps_ahead = 1 if model.device.type == "cuda" else 0  # the processor prepares while the GPU computes

    def introduce(self, journal: Journal, progress: Progress) -> None:
        """Say what will be trained on what."""
        updates, left_out = self.updates, self.updates.left_out
        if left_out:
            what = (
                f"{left_out:,} of {len(updates.store):,} pairs are longer than a row, {updates.row_lengths}, "
                "and are left out; training.row_length makes rows longer"
            )
            journal.warn(what, progress.step)
        self.warn_of_warm_up(journal, progress.step, self.recipe.training.steps)
        if self.data.manifest.without_validation:
            journal.say(self.data.manifest.without_validation)
        if progress.rows_at_once is None:
            progress.rows_at_once = self._rows_that_should_fit()
        values = {
            "recipe": self.recipe.hash,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "device": str(self.model.device),
            "precision": str(self.gradients.precision).removeprefix("torch."),
            "threads": torch.get_num_threads(),
        }
        journal.write("started", progress.step, values)
        journal.say(
            f"{values['parameters']:,} parameters, {len(updates.fitting):,} pairs, {values['precision']} on "
            f"{values['device']}, recipe {values['recipe']}" + (f", from step {progress.step:,}" * (progress.step > 0))
        )

    def warn_of_warm_up(self, journal: Journal, step: int, steps: int | None) -> None:
        """A run of so many steps that ends before the learning rate has reached its peak learns little."""
        if steps is not None and still_warms_up(self.recipe.training, steps):
            warmup = self.recipe.training.warmup
            what = f"{steps:,} steps end inside the warm-up of {warmup:,}, before the learning rate reaches its peak; "
            journal.warn(f"{what}a lower training.warmup, or more training, mends it", step)

    def updates_from(self, progress: Progress) -> Generator[Update]:
        """Updates from where the run stands, epoch after epoch; for a GPU, packed in the background."""
        source = in_background if self.model.device.type == "cuda" else Updates.onwards
        for update in source(self.updates, progress.epoch, progress.position):
            if update.epoch > progress.epoch:
                progress.epoch = update.epoch
                progress.position, progress.epoch_tokens, progress.epoch_share = 0, 0, 0.0
            yield update

    def take_step(self, update: Update, progress: Progress) -> "Reading":
        """One update of the weights, none where loss or gradient are not finite; a GPU may still be at it."""
        config = self.recipe.training
        loss = self.gradients.of(update, progress)
        norm = self._gradient_norm()
        rate = learning_rate(config, self.recipe.model.width, progress.step + 1, spent(progress, config))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        # Fused Adam asks this on the device itself, as it does for gradient scalers: nobody has to wait for the answer.
        self.optimizer.found_inf = 1.0 - torch.isfinite(loss + norm).float()  # type: ignore[attr-defined]
        self.optimizer.step()
        progress.step += 1
        progress.position += 1
        progress.tokens += update.target_tokens
        progress.epoch_tokens += update.target_tokens
        progress.epoch_share = progress.epoch_tokens / self.tokens_an_epoch
        return Reading(torch.stack((loss, norm)), update, rate, progress)

    def validate(self, journal: Journal, progress: Progress) -> bool:
        """Validate, remember the best, and say whether patience has run out."""
        if self.data.valid is None:
            return False
        result = validate(self.model, self.data, self.recipe)
        if is_better(result, progress, by_loss=self.recipe.data.plain):
            progress.best_score, progress.best_loss = result.bleu, result.loss
            progress.best_step, progress.stale = progress.step, 0
        else:
            progress.stale += 1
        values = {"loss": result.loss, "bleu": result.bleu, "best": progress.best_score}
        journal.write("validation", progress.step, values | {"samples": [vars(each) for each in result.samples]})
        loss = "none" if result.loss is None else f"{result.loss:.3f}"
        journal.say(f"step {progress.step:,}: validation loss {loss}, BLEU {result.bleu:.1f}")
        for sample in result.samples:
            journal.say(f"  {sample.source}  ->  {sample.translation}  (reference: {sample.reference})")
        patience = self.recipe.training.patience
        return patience is not None and progress.stale >= patience

    def _gradient_norm(self) -> Float[Tensor, ""]:
        parameters, clip = list(self.model.parameters()), self.recipe.training.clip
        norm = torch.nn.utils.get_total_norm([each.grad for each in parameters if each.grad is not None])
        if clip is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, clip, norm)
        return norm

    def _rows_that_should_fit(self) -> int:
        device = self.model.device
        memory = CPU_LOGITS_BYTES
        if device.type == "cuda":
            memory = int(torch.cuda.get_device_properties(device).total_memory * GPU_LOGITS_SHARE)
        a_row = self.updates.target_length * len(self.data.target_vocabulary) * 4
        return min(self.updates.rows_an_update, max(1, memory // a_row))


class Reading:
    """What one step says of itself, once a GPU has come to its end."""

    def __init__(self, values: Tensor, update: Update, rate: float, progress: Progress) -> None:
        self.step, self.tokens = progress.step, update.target_tokens
        self._pairs, self._rate = update.pairs, rate
        self._epoch, self._position = progress.epoch, progress.position - 1
        self._values, self._arrived = values, None
        if values.is_cuda:
            self._values = torch.empty(2, pin_memory=True).copy_(values, non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def wait(self) -> dict[str, float]:
        """What the journal wants to know, or an error that names the batch."""
        if self._arrived is not None:
            self._arrived.synchronize()
        loss, norm = self._values.tolist()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            named = ", ".join(map(str, self._pairs[:10])) + (", ..." if len(self._pairs) > 10 else "")
            raise RunError(
                f"step {self.step}",
                f"the loss is not finite, got loss {loss} and gradient norm {norm} "
                f"(epoch {self._epoch}, update {self._position}, pairs {named})",
                hint="nothing was changed: the last checkpoint is whole; try a lower training.peak or training.clip",
            )
        return {"loss": loss, "learning_rate": self._rate, "gradient_norm": norm, "epoch": self._epoch}


class Clock:
    """Adds up the seconds of a run, over all of its resumptions."""

    def __init__(self, progress: Progress, counts_first: bool) -> None:
        self.progress = progress
        self._last = time.monotonic() if counts_first else None
        self._lap = time.monotonic()

    def tick(self) -> None:
        """Count the time since the last tick."""
        now = time.monotonic()
        self.progress.seconds += now - self._last if self._last is not None else 0.0
        self._last = now

    def lap(self, tokens: int) -> float:
        """Tokens a second since the last lap."""
        before, self._lap = self._lap, time.monotonic()
        return tokens / (self._lap - before)


@contextmanager
def stop_request() -> Iterator[Callable[[], int | None]]:
    """The first Ctrl-C or SIGTERM asks the run to save and stop; the second stops it at once."""
    received: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, remember) for number in numbers]
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
