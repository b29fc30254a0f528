"""Does an export do what its model does? Asked of every export before its folder takes its name.

The sentences are made of the model's own pieces, for it brings no text. Their greedy translations by our search must be
as likely elsewhere as they are here, and must be the ones found elsewhere; where those part, the piece taken there must
be about as likely here as our own.
"""

import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from dragoman.batch import Batch
from dragoman.data.vocabulary import BYTES, SPECIALS, Vocabulary
from dragoman.decoding.engines import TorchEngine
from dragoman.decoding.scoring import Ids
from dragoman.errors import ModelError
from dragoman.export.support import ExportPrecision
from dragoman.models.interface import Model
from dragoman.recipe import DecodingConfig
from dragoman.saved import SavedModel

LENGTHS = (1, 2, 3, 5, 7, 11, 13, 17)  # pieces of the sentences
GREEDY = DecodingConfig(beam=1, alpha=0.0, extra=5)
# How far log-probabilities a piece may lie apart, by what is multiplied in. Sentences made of any pieces are nothing a
# model has learned to be sure of: in 8 bits small models were seen 0.23 apart, and as good as before on real text.
TOLERANCES: dict[ExportPrecision, float] = {"float32": 1e-3, "float16": 1e-2, "int8": 5e-1}
NEARLY_ALIKE = 10  # times as far apart two pieces may be of which either is taken: that is one piece, not a mean


@runtime_checkable
class Peer(Protocol):
    """What was exported, run by what it was exported for."""

    def greedy(self, source: Ids, pieces: int) -> Ids:
        """The translation of one sentence, of at most so many pieces with its end."""

    def log_probability(self, source: Ids, target: Ids) -> float:
        """That of a given translation."""


@dataclass(frozen=True)
class Parity:
    """How alike an export and its model were found."""

    sentences: int
    same_translations: int
    score_difference: float  # the largest, a piece
    tolerance: float

    def summary(self) -> str:
        """The same for people."""
        return (
            f"{self.same_translations} of {self.sentences} sample translations are the same, "
            "what differs is nearly as likely; "
            f"scores differ by at most {self.score_difference:.1e} a piece (allowed: {self.tolerance:g})"
        )

    def values(self) -> dict[str, Any]:
        """The same for a card."""
        return asdict(self)


def check_parity(saved: SavedModel, peer: Peer, precision: ExportPrecision, where: Path) -> Parity:
    """How alike they are, or an error that says how they are not."""
    model, tolerance = saved.model, TOLERANCES[precision]
    sources = sample_sources(saved.source_vocabulary, min(model.longest, saved.recipe.decoding.longest) - 1)
    best = [each[0] for each in TorchEngine([model]).search(sources, GREEDY, 1, None)]
    largest, same, problems = 0.0, 0, []
    for number, (source, ours) in enumerate(zip(sources, best, strict=True), start=1):
        total = peer.log_probability(source, ours.ids)
        apart = abs(total - ours.log_probability) / (len(ours.ids) + 1)
        largest = max(largest, apart)
        if not apart <= tolerance:
            problems.append(f"sample {number}: scores {apart:.2g} a piece apart, more than {tolerance:g}")
        theirs = list(peer.greedy(source, min(len(source) + 1 + GREEDY.extra, model.longest)))
        same += theirs == ours.ids
        lost = _preference(model, source, ours.ids, theirs)
        if not lost <= NEARLY_ALIKE * tolerance:
            problems.append(f"sample {number}: another translation, by a piece {lost:.2g} less likely")
    if problems:
        what = "\n".join(f"not exported: {problem}" for problem in problems)
        raise ModelError(where, what, hint="a more exact --precision may do; in float32 this is a bug")
    return Parity(len(sources), same, largest, tolerance)


def sample_sources(vocabulary: Vocabulary, longest: int) -> list[list[int]]:
    """Sentences of learned pieces, the same every time."""
    draw = random.Random(0)
    has_bytes = vocabulary.pieces([SPECIALS])[0] == "<0x00>"
    learned = range(SPECIALS + (BYTES if has_bytes else 0), len(vocabulary))
    return [draw.choices(learned, k=min(length, longest)) for length in LENGTHS]


@torch.inference_mode()
def _preference(model: Model, source: Ids, ours: Ids, theirs: Ids) -> float:
    """By how much the first piece of ours that is not theirs is likelier than the one that is."""
    batch = Batch.of([source], [ours]).to(model.device)
    ended = Batch.of([source], [theirs]).labels[0].tolist()
    labels = batch.labels[0].tolist()
    place = next((n for n, pair in enumerate(zip(labels, ended, strict=False)) if pair[0] != pair[1]), None)
    if place is None:
        return 0.0
    logits = model.project(model(batch))[0, place].float()
    return float(logits[labels[place]] - logits[ended[place]])
