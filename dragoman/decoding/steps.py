"""Decoding in slow motion: what is there so far, the five best next pieces, the source piece looked at most."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from dragoman.batch import BOS, EOS, Side
from dragoman.decoding.search import NEVER, Ensemble, output_limits
from dragoman.decoding.translator import Translator

SHOWN = 5


class Step(NamedTuple):
    """One step of greedy decoding; as a string, a line for people."""

    number: int  # counted from 1
    written: str  # before it
    best: list[tuple[str, float]]  # the likeliest next pieces, each with its share
    looking_at: str | None  # a source piece, unless the model looks at nothing: what it knows is in its state

    def __str__(self) -> str:
        shown = "  ".join(f"{piece} {share:.3f}" for piece, share in self.best)
        line = f"{self.number:>3}  {self.written!r}  ->  {shown}"
        return f"{line}  (looking at {self.looking_at})" if self.looking_at is not None else line


@torch.inference_mode()
def show_steps(translator: Translator, text: str) -> Sequence[Step]:
    """The steps of greedy decoding, until the end token; none for a blank text."""
    vocabulary = translator.target_vocabulary
    ids = translator.encode([text])[0][: translator.longest] if text.strip() else []
    if not ids:
        return []
    source = Side.of([[*ids, EOS]]).to(translator.models[0].device)
    ensemble = Ensemble.start(translator.models, source, 1)
    limit = int(output_limits(translator.models, source, translator.decoding.extra)[0])
    written: list[int] = []
    found: list[Step] = []
    while not written or written[-1] != EOS:
        last = torch.tensor([written[-1] if written else BOS], device=source.ids.device)
        probabilities = ensemble.step(last)[0].exp()
        probabilities[NEVER] = 0.0
        if len(written) + 1 == limit:
            probabilities[torch.arange(len(probabilities)) != EOS] = 0.0
        best = probabilities.topk(SHOWN)
        pieces = zip(vocabulary.pieces(best.indices.tolist()), best.values.tolist(), strict=True)
        found.append(Step(len(written) + 1, vocabulary.decode([written])[0], list(pieces), None))
        written.append(int(best.indices[0]))
    # One forced pass tells what each step looked at most, by the last layer's heads together.
    maps = translator.attention_of_ids(ids, written[:-1])
    if not len(maps.cross):
        return found
    places = maps.cross[-1].mean(0).argmax(-1).tolist()
    return [step._replace(looking_at=maps.source_pieces[place]) for step, place in zip(found, places, strict=True)]
