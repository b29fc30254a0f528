"""The gradient of an update: forth and back over as many rows at once as memory holds.

On a GPU both ways are recorded once as a CUDA graph and replayed with a single call: starting the thousand kernels of
a step one by one takes the processor longer than the GPU takes to run them (docs/LOG.md).
"""

import logging
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dragoman.batch import PAD, Batch
from dragoman.data.batches import Update
from dragoman.errors import RunError
from dragoman.kernels.cross_entropy import smoothed_loss
from dragoman.models.interface import Model, choose_precision, is_out_of_memory
from dragoman.recipe import TrainingConfig
from dragoman.training.schedule import Progress

log = logging.getLogger("dragoman")

WARM_UPS = 2  # passes before recording: the first compiles, the second finds everything in its place


class Gradients:
    """Leaves in each parameter the gradient of the mean loss over an update's real target tokens."""

    def __init__(self, model: Model, config: TrainingConfig) -> None:
        self.model = model
        self.smoothing = config.smoothing
        self.precision = choose_precision(config.precision, model.device)
        self._forward: Callable[[Batch], Tensor] = torch.compile(model) if config.compile else model
        self._is_recorded = model.device.type == "cuda"
        self.take_time_at_first = config.compile or self._is_recorded
        self._recording: Recording | None = None

    def of(self, update: Update, progress: Progress) -> Float[Tensor, ""]:
        """The mean loss of an update; where memory runs out, half as many rows pass at once from then on."""
        while True:
            rows = min(progress.rows_at_once or len(update.batch), len(update.batch))
            try:
                return self._accumulate(update, rows)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if rows == 1:
                    hint = "use a smaller model or a shorter training.row_length"
                    raise RunError(f"step {progress.step + 1}", "memory holds not even one row", hint=hint) from None
            progress.rows_at_once = rows // 2
            self._recording = None
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _accumulate(self, update: Update, rows_at_once: int) -> Tensor:
        parts = [update.batch.rows(first, first + rows_at_once) for first in range(0, len(update.batch), rows_at_once)]
        tokens = torch.tensor(float(update.target_tokens))
        run = self._recorded(parts[0], tokens) or self._run
        self.model.zero_grad()
        losses = [run(part, tokens) for part in parts]
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _run(self, batch: Batch, tokens: Float[Tensor, ""]) -> Float[Tensor, ""]:
        device = self.model.device
        with torch.autocast(device.type, self.precision, enabled=self.precision != torch.float32):
            loss = summed_loss(self.model, batch.to(device), self.smoothing, self._forward) / tokens.to(device)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach().clone()

    def _recorded(self, batch: Batch, tokens: Tensor) -> "Recording | None":
        if self._is_recorded and self._recording is None:
            try:
                self._recording = Recording(self._run, self.model, batch.to(self.model.device), tokens)
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise
                log.warning("a step cannot be recorded here, and runs as it is: %s", str(error).splitlines()[0])
                self._is_recorded = False
        return self._recording


class Recording:
    """Forth and back as a CUDA graph, over a batch of its own that each new one is copied into."""

    def __init__(self, run: Callable[[Batch, Tensor], Tensor], model: Model, batch: Batch, tokens: Tensor) -> None:
        self.batch, self.tokens = batch.map(Tensor.clone), tokens.to(model.device, copy=True)
        # Recording leaves no trace: a run that is resumed draws what it would have drawn, and counts each batch once.
        random_state = torch.cuda.get_rng_state()
        counted = [(buffer, buffer.clone()) for buffer in model.buffers()]
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                run(self.batch, self.tokens)
        torch.cuda.current_stream().wait_stream(aside)
        model.zero_grad()  # so that the recording makes gradients anew and has nothing to add them to
        self.graph = torch.cuda.CUDAGraph()
        # Other threads may go on: one of them pins the memory of the next batches.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.loss = run(self.batch, self.tokens)
        self.gradients = gradients_by_parameter(model)
        torch.cuda.set_rng_state(random_state)
        for buffer, before in counted:
            buffer.copy_(before)

    def __call__(self, batch: Batch, tokens: Tensor) -> Tensor:
        """Run it and add to the gradients there are; a batch of fewer rows leaves the others empty."""
        for own, new in zip(self.batch.tensors(), batch.tensors(), strict=True):
            own[: len(new)].copy_(new, non_blocking=True)
            own[len(new) :].zero_()
        self.tokens.copy_(tokens, non_blocking=True)
        # Those of earlier rows lie where the recording will write.
        earlier = [None if each.grad is None else each.grad.clone() for each in self.gradients]
        self.graph.replay()
        for (parameter, gradient), so_far in zip(self.gradients.items(), earlier, strict=True):
            parameter.grad = gradient if so_far is None else gradient.add_(so_far)
        return self.loss.clone()


def gradients_by_parameter(model: Model) -> dict[nn.Parameter, Tensor]:
    """The gradients that a pass has left."""
    return {parameter: parameter.grad for parameter in model.parameters() if parameter.grad is not None}


def summed_loss(
    model: Model, batch: Batch, smoothing: float, forward: Callable[[Batch], Tensor] | None = None
) -> Float[Tensor, ""]:
    """The loss of a batch, summed over its real target tokens, so that parts of an update add up to the whole."""
    hidden = model(batch) if forward is None else forward(batch)
    return smoothed_loss(hidden.flatten(0, 1), model.projection, batch.labels.flatten(), smoothing, empty=PAD)
