"""Decoding in slow motion: what is there so far, the five best next pieces, the source piece looked at most."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dragoman.batch import BOS, EOS, Side
from dragoman.decoding.search import NEVER, Ensemble, Hypothesis, output_limits, search
from dragoman.decoding.translator import Translator
from dragoman.kernels.attention import growing

SHOWN = 5


class Candidate(NamedTuple):
    """A piece that may be written next, and its share of all that may."""

    id: int
    probability: float


class Choice(NamedTuple):
    """What had been written, what could have come next, likeliest first, and what did."""

    written: list[int]
    candidates: list[Candidate]
    chosen: Candidate


class Living(NamedTuple):
    """A hypothesis that search goes on with."""

    ids: list[int]
    log_probability: float


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
@growing()
def follow_choices(translator: Translator, ids: Sequence[int], forced: Sequence[int] | None = None) -> list[Choice]:
    """The choices of greedy decoding until the end token, or those of a translation that is given."""
    source = Side.of([[*ids, EOS]]).to(translator.models[0].device)
    ensemble = Ensemble.start(translator.models, source, 1)
    limit = int(output_limits(translator.models, source, translator.decoding.extra)[0])
    written: list[int] = []
    choices: list[Choice] = []
    while not written or written[-1] != EOS:
        last = torch.tensor([written[-1] if written else BOS], device=source.ids.device)
        probabilities = ensemble.step(last)[0].exp()
        probabilities[NEVER] = 0.0
        if forced is None and len(written) + 1 == limit:
            probabilities[torch.arange(len(probabilities)) != EOS] = 0.0
        best = probabilities.topk(SHOWN)
        candidates = [Candidate(*each) for each in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
        chosen = candidates[0].id if forced is None else [*forced, EOS][len(written)]
        choices.append(Choice(list(written), candidates, Candidate(chosen, float(probabilities[chosen]))))
        written.append(chosen)
    return choices


def watch_beam(translator: Translator, ids: Sequence[int]) -> tuple[list[list[Living]], list[Hypothesis]]:
    """What search goes on with after each step, and what it has found in the end, both best first."""
    steps: list[list[Living]] = []

    def watch(tokens: Tensor, live: Tensor) -> None:
        alive = [Living(*each) for each in zip(tokens[:, 1:].tolist(), live[0].tolist(), strict=True)]
        steps.append([each for each in alive if each.log_probability > -torch.inf])

    source = Side.of([[*ids, EOS]]).to(translator.models[0].device)
    beam, alpha, extra = translator.decoding.beam, translator.decoding.alpha, translator.decoding.extra
    return steps, search(translator.models, source, beam, alpha, extra, beam, watch=watch)[0]


def show_steps(translator: Translator, text: str) -> Sequence[Step]:
    """The steps of greedy decoding, until the end token; none for a blank text."""
    vocabulary = translator.target_vocabulary
    ids = translator.encode([text])[0][: translator.longest] if text.strip() else []
    if not ids:
        return []
    found: list[Step] = []
    for number, choice in enumerate(choices := follow_choices(translator, ids), start=1):
        pieces = vocabulary.pieces([each.id for each in choice.candidates])
        best = list(zip(pieces, [each.probability for each in choice.candidates], strict=True))
        found.append(Step(number, vocabulary.decode([choice.written])[0], best, None))
    # One forced pass tells what each step looked at most, by the last layer's heads together.
    maps = translator.attention_of_ids(ids, choices[-1].written)
    if not len(maps.cross):
        return found
    places = maps.cross[-1].mean(0).argmax(-1).tolist()
    return [step._replace(looking_at=maps.source_pieces[place]) for step, place in zip(found, places, strict=True)]
