"""What a layer costs: operations, steps that wait for one another, time, and what it keeps for the backward pass.

Axes: B rows, S positions, D width.
"""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

REPEATS = 9


class Job(NamedTuple):
    """A layer and what it is given."""

    layer: nn.Module
    x: Float[Tensor, "B S D"]


def count_operations(job: Job) -> int:
    """Multiplications and additions of the matrix products, by torch's own counter; 0 where it knows no formula."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        job.layer(job.x)
    return counter.get_total_flops()


def count_calls(job: Job) -> int:
    """How many of torch's operations run one after the other."""
    with torch.no_grad(), _Calls() as calls:
        job.layer(job.x)
    return calls.count


def kept_bytes(job: Job) -> int:
    """Bytes of the activations that wait for the backward pass, parameters not counted."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        output = job.layer(job.x.detach().requires_grad_())  # held, so that no kept place is taken anew
    parameters = {parameter.untyped_storage().data_ptr() for parameter in job.layer.parameters()}
    del output
    return sum(size for place, size in kept.items() if place not in parameters)


@torch.inference_mode()
def measure_seconds(jobs: Sequence[Job]) -> list[list[float]]:
    """Seconds of this thread in each job, several readings of each.

    A thread's own time: what else runs on the machine takes the processor away, but not into account. The jobs take
    turns, so that a slow minute is every job's, each time in another order: the clock was seen to slip by milliseconds
    in step with the turns (docs/LOG.md, 2026-11-19). Each reading follows a call that warms the caches.
    """
    readings: list[list[float]] = [[] for _ in jobs]
    shuffle = random.Random(0).shuffle
    for _ in range(REPEATS):
        order = list(range(len(jobs)))
        shuffle(order)
        for number in order:
            layer, x = jobs[number]
            layer(x)
            begun = time.thread_time()
            layer(x)
            readings[number].append(time.thread_time() - begun)
    return readings


def path_length(hops: Iterable[Callable[[Tensor], Tensor]], length: int, width: int = 3) -> int:
    """How many hops it takes until what stands last depends on what stands first.

    Asked backwards: the gradient of what is known to matter, in a random direction, says what it depends on.
    """
    matters = torch.zeros(length, dtype=torch.bool)
    matters[-1] = True
    for number, hop in enumerate(hops, start=1):
        x, change = torch.randn(2, 1, length, width, dtype=torch.float64)
        (gradient,) = torch.autograd.grad(hop(x.requires_grad_()), x, change * matters[:, None])
        matters = (gradient != 0).any(-1)[0]
        if matters[0]:
            return number
    raise AssertionError("the hops ended before they arrived")


class _Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what passes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))
