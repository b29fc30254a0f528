"""Training on a GPU: dragoman against Hugging Face's MarianMT, eager and compiled, on the same sentences.

The paper's model with a vocabulary of 37,000, updates of 25,600 target positions, dropout 0.1, smoothing 0.1, bf16,
Adam included. dragoman trains as it always does, with rows packed in the background; MarianMT gets padded buckets of
like length, every shape of which it has seen before the clock starts. Prints a table, then a JSON line.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from dragoman.batch import PAD, Batch
from dragoman.data.batches import Update
from dragoman.data.prepare import DataConfig
from dragoman.data.store import FORMAT, Data, Manifest, Store, StoreWriter, open_data
from dragoman.data.vocabulary import Vocabulary
from dragoman.recipe import Recipe, read_recipe
from dragoman.saved import build_model
from dragoman.training.loop import Reading, Trainer
from dragoman.training.schedule import Progress

VOCABULARY = 37_000
PADDED = -(-VOCABULARY // 64) * 64
WARM_UPS = 20


class NoText:
    """A vocabulary that only has a size: random sentences are never read."""

    def __len__(self) -> int:
        return VOCABULARY


def random_data(folder: Path, pairs: int) -> Data:
    """Random pairs, as long as WMT's sentences: 26 pieces in the mean, the two sides alike but for a fifth."""
    draw = np.random.default_rng(0)
    source = np.clip(draw.lognormal(3.06, 0.62, pairs), 1, 200).astype(int)
    target = np.clip(source * draw.normal(1.05, 0.2, pairs), 1, 200).astype(int)
    writer = StoreWriter(folder, "train", VOCABULARY)
    for lengths in zip(source, target, strict=True):
        writer.add(*(draw.integers(4, VOCABULARY, length).tolist() for length in lengths))
    split = writer.close({})
    manifest = Manifest(FORMAT, (None, None), DataConfig().model_dump(), (VOCABULARY,) * 2, {"train": split}, {})
    vocabulary: Vocabulary = NoText()  # type: ignore[assignment]
    return Data(manifest, {"train": Store(folder, "train", VOCABULARY)}, vocabulary, vocabulary)


def matrix_ceiling() -> float:
    """What one large matrix product reaches, in operations a second."""
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**3 / seconds_each(lambda: left @ right, 50)


def seconds_each(action: Callable[[], object], times: int) -> float:
    for _ in range(5):
        action()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(times):
        action()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / times


class Ours:
    """dragoman's own trainer, a step at a time."""

    def __init__(self, recipe: Recipe, data: Data) -> None:
        torch.manual_seed(0)
        size = len(data.target_vocabulary)
        self.model = build_model(recipe, size, size).cuda()
        self.trainer, self.progress = Trainer(self.model, recipe, data), Progress()
        self.updates = self.trainer.updates_from(self.progress)
        self.tokens = self.source_tokens = 0
        self._before: Reading | None = None

    def step(self, update: Update | None = None) -> None:
        real = next(self.updates) if update is None else update
        reading = self.trainer.take_step(real, self.progress)
        if self._before is not None:
            self._before.wait()  # as in training, one step behind
        self._before = reading
        self.tokens += real.target_tokens

    def work(self, update: Update) -> float:
        """Operations an update needs: two a weight and token forth, four back; attention's own products not counted."""
        parts = {name: sum(each.numel() for each in part.parameters()) for name, part in self.model.named_children()}
        source_tokens = int((update.batch.source.segments > 0).sum())
        projection = self.model.projection.numel()
        return 6 * (parts["encoder"] * source_tokens + (parts["decoder"] + projection) * update.target_tokens)


def measure_ours(recipe: Recipe, data: Data, steps: int, ceiling: float, profile: bool) -> dict[str, float]:
    ours = Ours(recipe, data)
    with closing(ours.updates):
        return run_ours(ours, recipe, steps, ceiling, profile)


def run_ours(ours: Ours, recipe: Recipe, steps: int, ceiling: float, profile: bool) -> dict[str, float]:
    begun = time.perf_counter()
    ours.step()
    torch.cuda.synchronize()
    compiling = time.perf_counter() - begun
    for _ in range(WARM_UPS):
        ours.step()
    torch.cuda.synchronize()
    ours.tokens, begun = 0, time.perf_counter()
    for _ in range(steps):
        ours.step()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - begun) / steps
    tokens = ours.tokens / steps
    kept = next(ours.updates)
    work = ours.work(kept) * tokens / kept.target_tokens
    kept = replace(kept, batch=kept.batch.to(torch.device("cuda")))
    kept_seconds = seconds_each(lambda: ours.step(kept), steps)
    if profile:
        show_profile(lambda: ours.step(kept))
    return {
        "tokens_per_second": tokens / seconds,
        "milliseconds": 1000 * seconds,
        "share_of_ceiling": work / seconds / ceiling,
        "waiting_for_data": 1 - kept_seconds / seconds,
        "filled": tokens / recipe.training.batch_tokens,
        "memory_gib": torch.cuda.max_memory_allocated() / 2**30,
        "compiling_seconds": compiling,
    }


def measure_marian(recipe: Recipe, data: Data, steps: int, compiled: bool) -> dict[str, float]:
    from transformers import MarianConfig, MarianMTModel

    shape, training = recipe.model, recipe.training
    sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in (
        ("layers", shape.layers), ("attention_heads", shape.heads), ("ffn_dim", shape.hidden))}  # fmt: skip
    config = MarianConfig(
        vocab_size=PADDED, d_model=shape.width, dropout=shape.dropout, attention_dropout=0.0, activation_dropout=0.0,
        activation_function="relu", max_position_embeddings=1024, pad_token_id=PAD, eos_token_id=3, bos_token_id=2,
        decoder_start_token_id=2, forced_eos_token_id=None, scale_embedding=True, use_cache=False, **sizes,
    )  # fmt: skip
    model = MarianMTModel(config).cuda().train()
    forward = torch.compile(model, dynamic=True) if compiled else model
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def step(batch: Batch) -> None:
        adam.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits = forward(
                input_ids=batch.source.ids,
                attention_mask=batch.source.segments,
                decoder_input_ids=batch.target.ids,
                decoder_attention_mask=batch.target.segments,
            ).logits
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), batch.labels.flatten(), ignore_index=PAD, label_smoothing=training.smoothing
        )
        loss.backward()
        adam.step()

    batches = [batch.to(torch.device("cuda")) for batch in padded_batches(data.train, training.batch_tokens, steps)]
    for batch in batches:
        step(batch)
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for batch in batches:
        step(batch)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    tokens = sum(int((batch.labels != PAD).sum()) for batch in batches)
    return {"tokens_per_second": tokens / seconds, "memory_gib": torch.cuda.max_memory_allocated() / 2**30}


def padded_batches(store: Store, tokens: int, count: int) -> list[Batch]:
    """As many buckets of like length, each of at most so many padded positions a side."""
    lengths = np.stack(store.lengths(), axis=1).max(axis=1) + 1
    order = np.random.default_rng(0).permutation(len(store))[: count * tokens // int(lengths.mean())]
    groups: list[list[int]] = [[]]
    for pair in order[np.argsort(lengths[order], kind="stable")].tolist():
        if (len(groups[-1]) + 1) * lengths[pair] > tokens:
            groups.append([])
        groups[-1].append(pair)
    sides = [[[store.pair(pair)[side].tolist() for pair in group] for side in (0, 1)] for group in groups]
    return [Batch.of(*each) for each in sides]


def show_profile(action: Callable[[], object], times: int = 5) -> None:
    """The kernels of a step, longest first."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    with watch(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(times):
            action()
        torch.cuda.synchronize()
    kernels = sorted(seen.key_averages(), key=lambda each: -each.self_device_time_total)
    print(f"{sum(each.self_device_time_total for each in kernels) / times / 1000:8.3f} ms in all")
    for each in kernels[:30]:
        print(f"{each.self_device_time_total / times / 1000:8.3f} ms {each.count / times:6.1f}  {each.key[:90]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a data folder; random sentences unless given")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--recipe", default="base")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure here")
        return
    words = ["training.batch_tokens=25600", "training.row_length=256", "training.steps=1000000"]
    words += [f"training.compile={'false' if options.no_compile else 'true'}"]
    recipe, found = read_recipe(options.recipe, words), {}
    with tempfile.TemporaryDirectory() as name:
        data = open_data(options.data) if options.data else random_data(Path(name), 200_000)
        ceiling = matrix_ceiling()
        found["dragoman"] = measure_ours(recipe, data, options.steps, ceiling, options.profile)
        for peer, compiled in () if options.no_peers else (("MarianMT", False), ("MarianMT compiled", True)):
            torch.cuda.empty_cache()
            found[peer] = measure_marian(recipe, data, 40, compiled)
    for who, values in found.items():
        print(f"{who:<20}" + "  ".join(f"{key} {value:,.3f}" for key, value in values.items()))
    print(json.dumps({"recipe": options.recipe, "ceiling_tflops": ceiling / 1e12, **found}))


if __name__ == "__main__":
    main()
