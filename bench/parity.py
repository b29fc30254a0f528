"""Whether training over the kernels learns what training over their references learns.

The base model on the same updates, from the same seeds, once each way: prints the mean loss of the last hundred updates
for each seed and the difference, then a JSON line.
"""

import argparse
import json
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import fmean
from unittest.mock import patch

import torch

from dragoman.data.store import Data, open_data
from dragoman.kernels import attention, cross_entropy, residual
from dragoman.recipe import Recipe, read_recipe
from dragoman.saved import build_model
from dragoman.training.loop import Trainer
from dragoman.training.schedule import Progress

LAST = 100  # updates that count


def losses(recipe: Recipe, data: Data, steps: int, reference: bool) -> list[float]:
    """The loss of each update; the reference goes without kernels and without compilation."""
    with ExitStack() as stack:
        if reference:
            recipe = recipe.with_values({"training": {"compile": False}}, "reference")
            for kernel in (attention, cross_entropy, residual):
                stack.enter_context(patch.object(kernel, "has_kernel", lambda *_: False))
        torch.manual_seed(recipe.training.seed)
        model = build_model(recipe, *map(len, (data.source_vocabulary, data.target_vocabulary))).cuda()
        trainer, progress = Trainer(model, recipe, data), Progress()
        updates = stack.enter_context(closing(trainer.updates_from(progress)))
        readings = [trainer.take_step(next(updates), progress) for _ in range(steps)]
        return [reading.wait()["loss"] for reading in readings]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--recipe", default="base")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to compare here")
        return
    data, found = open_data(options.data), []
    for seed in range(options.seeds):
        words = ["training.batch_tokens=25600", "training.compile=true", f"training.seed={seed}"]
        recipe = read_recipe(options.recipe, words)
        ours, reference = (fmean(losses(recipe, data, options.steps, each)[-LAST:]) for each in (False, True))
        found.append({"seed": seed, "kernels": ours, "reference": reference, "difference": ours - reference})
        print("  ".join(f"{name} {value:.4f}" for name, value in found[-1].items()), flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
