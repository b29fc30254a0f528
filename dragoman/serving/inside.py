"""What there is to see inside a translation beside the weights, as tasks for the thread that owns the models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dragoman.batch import Batch
from dragoman.data.vocabulary import Vocabulary
from dragoman.decoding.steps import Candidate, Choice, follow_choices, watch_beam
from dragoman.decoding.translator import Translator
from dragoman.errors import DataError
from dragoman.plots.head import find_attentions, watch
from dragoman.serving.tasks import Kind, Pair, pieces_of_words

MOST_POSITIONS = 128
DIGITS = 4  # more than an eye can see

Inside = dict[str, Any]


class Compared(NamedTuple):
    """What one head compares: a row a query, a row a key, and the scores QK^T / sqrt(d_k) before the softmax."""

    queries: list[list[float]]
    keys: list[list[float]]
    scores: list[list[float]]


@dataclass(frozen=True)
class Watch:
    """How a given translation was written: its steps, the beam, and which attentions there are to look into."""

    pair: Pair

    def run(self, translator: Translator, items: Sequence[tuple[str, str]]) -> list[Inside]:
        """For each pair of texts."""
        return [_watch(translator, *item) for item in items]


@dataclass(frozen=True)
class Compare:
    """The queries, keys and scores of one head while it looked at a given translation."""

    pair: Pair
    kind: Kind
    layer: int
    head: int

    def run(self, translator: Translator, items: Sequence[tuple[str, str]]) -> list[Compared]:
        """For each pair of texts."""
        return [self._compare(translator, *item) for item in items]

    def _compare(self, translator: Translator, source: str, target: str) -> Compared:
        model = translator.models[0]
        # A decoder-only model has one stack, which reads both sides one behind the other.
        found = find_attentions(model, self.kind) or (
            [] if hasattr(model, "decoder") else find_attentions(model, "encoder")
        )
        if not 0 <= self.layer < len(found) or not 0 <= self.head < found[self.layer].heads:
            raise DataError("head", "there are no queries and keys of this kind, layer and head")
        ids = translator.encode([source])[0], translator.target_vocabulary.encode([target])[0]
        head = watch(model, found[self.layer], Batch.of([ids[0]], [ids[1]]).to(model.device), self.head)
        end = len(ids[0]) + 1
        rows = columns = slice(None)
        if len(head.scores) > max(end, len(ids[1]) + 1):
            rows = slice(end) if self.kind == "encoder" else slice(end, None)
            columns = slice(end, None) if self.kind == "decoder" else slice(end)
        return Compared(_digits(head.query[rows]), _digits(head.key[columns]), _digits(head.scores[rows, columns]))


@dataclass(frozen=True)
class Place:
    """What is added to the first embeddings of a sentence to say where they stand."""

    pair: Pair

    def run(self, translator: Translator, items: Sequence[int]) -> list[Inside]:
        """For each number of positions."""
        model = translator.models[0]
        positions = getattr(model, "positions", getattr(model, "source_positions", None))
        table = getattr(positions, "table", None)
        if table is None:
            kind = "rotary" if getattr(positions, "is_rotary", False) else "none"
            return [{"kind": kind, "table": []} for _ in items]
        kind = "learned" if isinstance(table, nn.Parameter) else "sinusoidal"
        return [{"kind": kind, "table": _digits(table[:length])} for length in items]


def _watch(translator: Translator, source: str, target: str) -> Inside:
    vocabulary = translator.target_vocabulary
    ids, written = translator.encode([source])[0], vocabulary.encode([target])[0]
    maps = translator.attention_of_ids(ids, written)
    kinds = {"encoder": maps.encoder, "decoder": maps.decoder, "cross": maps.cross}
    return {
        "source": _side(translator.source_vocabulary, ids, source, maps.source_pieces),
        "target": _side(vocabulary, written, target, maps.target_pieces),
        "attention": {
            kind: dict(zip(("layers", "heads"), each.shape if each.numel() else (0, 0), strict=False))
            for kind, each in kinds.items()
        },
        "steps": [_step(vocabulary, step) for step in follow_choices(translator, ids, written)],
        "beam": _beam(translator, ids, written),
    }


def _step(vocabulary: Vocabulary, step: Choice) -> Inside:
    return {
        "text": vocabulary.decode([step.written])[0],
        "candidates": [_candidate(vocabulary, each) for each in step.candidates],
        "chosen": _candidate(vocabulary, step.chosen),
    }


def _beam(translator: Translator, ids: list[int], written: list[int]) -> Inside:
    """What search, which knows nothing of the translation that is shown, went on with and what it found."""
    decode = translator.target_vocabulary.decode
    steps, found = watch_beam(translator, ids)
    living = [
        [
            {
                "text": decode([each.ids])[0],
                "logProbability": round(each.log_probability, DIGITS),
                "isShown": each.ids == written[: len(each.ids)],
            }
            for each in step
        ]
        for step in steps
    ]
    ended = [
        {"text": decode([each.ids])[0], "score": round(each.score, DIGITS), "step": len(each.ids)} for each in found
    ]
    return {"living": living, "ended": ended}


def _candidate(vocabulary: Vocabulary, candidate: Candidate) -> Inside:
    return {"piece": vocabulary.pieces([candidate.id])[0], "probability": round(candidate.probability, DIGITS)}


def _side(vocabulary: Vocabulary, ids: list[int], text: str, pieces: list[str]) -> Inside:
    """The pieces of a side, the end token last, and which of them make a word."""
    words = [{"text": text[slice(*span)], "pieces": own} for span, own in pieces_of_words(vocabulary, ids, text)]
    return {"pieces": pieces, "words": words}


def _digits(numbers: Tensor) -> list[list[float]]:
    return torch.as_tensor(numbers).detach().double().cpu().round(decimals=DIGITS).tolist()
