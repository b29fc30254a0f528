"""Training on a CPU: dragoman's packed rows against torch.nn.Transformer over padded buckets, on the same sentences.

Both models have the same shape, both see the same pairs in float32 with Adam; what differs is the batch and the code.
Prints a table, then a JSON line.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from dragoman.batch import PAD, Batch
from dragoman.data.batches import Updates
from dragoman.data.phrasebook import make_phrasebook
from dragoman.data.prepare import Corpus, prepare
from dragoman.data.store import Data, Store, open_data
from dragoman.models.transformer import Transformer
from dragoman.recipe import Recipe, read_recipe
from dragoman.training.gradients import summed_loss


class Peer(nn.Module):
    """torch.nn.Transformer with the embedding, the positions and the projection it leaves to its user."""

    def __init__(self, recipe: Recipe, vocabulary: int) -> None:
        super().__init__()
        model = recipe.model
        self.shell = Transformer(model, vocabulary)  # for its embedding and positions alone
        del self.shell.encoder, self.shell.decoder
        self.body = nn.Transformer(
            model.width, model.heads, model.layers, model.layers, model.hidden, model.dropout, batch_first=True
        )

    def loss(self, batch: Batch, smoothing: float) -> Tensor:
        """The same loss over the same padded batch."""
        shell, source, target = self.shell, batch.source, batch.target
        causal = nn.Transformer.generate_square_subsequent_mask(target.ids.shape[1])
        hidden = self.body(
            shell._embed(shell.source_embedding, source.ids, source.positions),
            shell._embed(shell.target_embedding, target.ids, target.positions),
            tgt_mask=causal,
            src_key_padding_mask=torch.where(source.ids == PAD, -math.inf, 0.0),
            memory_key_padding_mask=torch.where(source.ids == PAD, -math.inf, 0.0),
            tgt_is_causal=True,
        )
        logits = shell.project(hidden).flatten(0, 1)
        labels = batch.labels.flatten()
        return nn.functional.cross_entropy(logits, labels, ignore_index=PAD, label_smoothing=smoothing, reduction="sum")


def padded_batches(store: Store, pairs: list[int], tokens: int) -> Iterator[Batch]:
    """Buckets of like length, no larger than so many padded target positions."""
    lengths = [len(store.pair(pair)[1]) for pair in pairs]
    group: list[int] = []
    for _, pair in sorted(zip(lengths, pairs, strict=True)):
        if group and (len(group) + 1) * (len(store.pair(pair)[1]) + 1) > tokens:
            yield batch_of(store, group)
            group = []
        group.append(pair)
    yield batch_of(store, group)


def batch_of(store: Store, pairs: list[int]) -> Batch:
    sides = [store.pair(pair) for pair in pairs]
    return Batch.of([source.tolist() for source, _ in sides], [target.tolist() for _, target in sides])


def time_steps(parameters: list[nn.Parameter], loss: Callable[[Batch], Tensor], batches: list[Batch]) -> float:
    """Seconds for one pass over the batches, after a warm-up over some of them."""
    adam = torch.optim.Adam(parameters, lr=1e-4, fused=True)

    def step(batch: Batch) -> None:
        adam.zero_grad()
        (loss(batch) / int((batch.labels != PAD).sum())).backward()
        nn.utils.clip_grad_norm_(parameters, math.inf)
        adam.step()

    for batch in batches[:5]:
        step(batch)
    begun = time.perf_counter()
    for batch in batches:
        step(batch)
    return time.perf_counter() - begun


def measure(data: Data, recipe: Recipe, updates: int) -> dict[str, float]:
    config = recipe.training
    packed = Updates(data.train, config.batch_tokens, config.row_length, config.seed)
    chosen = [update for update, _ in zip(packed.epoch(0), range(updates), strict=False)]
    pairs = [pair for update in chosen for pair in update.pairs]
    tokens = sum(update.target_tokens for update in chosen)
    ours = Transformer(recipe.model, len(data.target_vocabulary))
    peer = Peer(recipe, len(data.target_vocabulary))
    padded = list(padded_batches(data.train, pairs, config.batch_tokens))
    ours_seconds = time_steps(
        list(ours.parameters()), lambda b: summed_loss(ours, b, config.smoothing), [u.batch for u in chosen]
    )
    peer_seconds = time_steps(list(peer.parameters()), lambda b: peer.loss(b, config.smoothing), padded)
    return {"dragoman": tokens / ours_seconds, "torch.nn.Transformer": tokens / peer_seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    recipe = read_recipe("demo")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        phrases = make_phrasebook("en", "de").train
        (folder / "train.en").write_text("".join(f"{phrase.source}\n" for phrase in phrases), encoding="utf-8")
        (folder / "train.de").write_text("".join(f"{phrase.target}\n" for phrase in phrases), encoding="utf-8")
        corpus = Corpus([folder / "train.en"], [folder / "train.de"])
        prepare(corpus, None, ("en", "de"), recipe.data, folder / "data", lambda text: None)
        rounds = [measure(open_data(folder / "data"), recipe, options.updates) for _ in range(options.rounds)]
    medians = {name: sorted(each[name] for each in rounds)[len(rounds) // 2] for name in rounds[0]}
    for name, speed in medians.items():
        print(f"{name:<24}{speed:>10,.0f} target tokens/s")
    print(json.dumps({**medians, "ratio": medians["dragoman"] / medians["torch.nn.Transformer"]}))


if __name__ == "__main__":
    main()
