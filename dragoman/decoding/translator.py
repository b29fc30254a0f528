"""From text to text: encode, search, decode; in batches by length, answered in the order asked."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dragoman.batch import EOS, UNK, Batch, Side
from dragoman.config import check
from dragoman.data.vocabulary import Vocabulary
from dragoman.decoding.engines import Engine, TorchEngine
from dragoman.decoding.sampling import Sampling, sample
from dragoman.decoding.scoring import Score, group_by_length
from dragoman.decoding.search import Hypothesis
from dragoman.errors import DataError, ModelError
from dragoman.models.interface import Model, choose_device, choose_precision, is_out_of_memory
from dragoman.recipe import DecodingConfig
from dragoman.saved import SavedModel, load_model

log = logging.getLogger("dragoman")


@dataclass(frozen=True)
class Translation:
    """One translation, with the alternatives that were asked for (the first of them is this one)."""

    text: str
    score: float
    log_probability: float
    alternatives: list["Translation"] = field(default_factory=list)


@dataclass(frozen=True)
class AttentionMaps:
    """Who looked at whom: weights are layers x heads x queries x keys.

    A query of `decoder` and `cross` is the piece being written, a key of `decoder` one that had been written before.
    """

    source_pieces: list[str]  # the end token last
    target_pieces: list[str]  # the end token last
    encoder: Tensor  # source x source
    decoder: Tensor  # target x read
    cross: Tensor  # target x source

    @property
    def read_pieces(self) -> list[str]:
        """What the decoder read: the beginning of the sentence, and each piece but the end."""
        return ["<s>", *self.target_pieces[:-1]]


class Translator:
    """Translates with one model, or with several together (their log-probabilities are averaged).

    A model that learned from plain text has no source to read: a text is then how its output begins. What is searched
    for is found by an engine, our own search unless another is given; without models there is nothing but the engine.
    """

    def __init__(
        self,
        models: Sequence[Model],
        source_vocabulary: Vocabulary,
        target_vocabulary: Vocabulary,
        decoding: DecodingConfig,
        is_plain: bool = False,
        engine: Engine | None = None,
    ) -> None:
        self.models = models
        self.source_vocabulary = source_vocabulary
        self.target_vocabulary = target_vocabulary
        self.decoding = decoding
        self.is_plain = is_plain
        self.engine = engine or TorchEngine(models)
        self.longest = self.engine.longest - 1  # the end token takes a position too

    def translate(
        self,
        texts: Sequence[str],
        n_best: int = 1,
        prefixes: Sequence[str] | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
    ) -> list[Translation]:
        """One translation for each text, in order; empty for what is blank."""
        if prefixes is not None and len(prefixes) != len(texts):
            raise DataError("prefixes", f"one for each text is needed, got {len(prefixes)} for {len(texts)} texts")
        if self.is_plain:
            prefixes = (
                texts if prefixes is None else [f"{text}{more}" for text, more in zip(texts, prefixes, strict=True)]
            )
        forced = [list[int]() for _ in texts] if prefixes is None else self._encode_prefixes(prefixes)
        encoded = zip(self.encode(texts), forced, strict=True)
        parts = [part for n, each in enumerate(encoded) if texts[n].strip() for part in self._split(n, *each)]
        found: list[list[Hypothesis]] = [[] for _ in parts]
        generator = torch.Generator().manual_seed(seed)
        beam = max(self.decoding.beam, n_best)

        def find(numbers: list[int]) -> list[list[Hypothesis]]:
            sources, begun = [parts[n].ids for n in numbers], [parts[n].prefix for n in numbers]
            if sampling is None:
                return self.engine.search(sources, self.decoding, n_best, begun)
            own, settings = self._own_models(), self.decoding
            source = Side.of([[*ids, EOS] for ids in sources]).to(own[0].device)
            return sample(own, source, sampling, settings.extra, settings.alpha, generator, n_best, begun)

        at_once = self.engine.tokens_at_once // beam
        for numbers in group_by_length([1 + max(len(part.ids), len(part.prefix)) for part in parts], at_once):
            results = _in_halves(find, numbers)
            for number, result in zip(numbers, results, strict=True):
                found[number] = result
        return self._join(len(texts), [part.text for part in parts], found)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Score]:
        """How likely the engine finds these translations."""
        ids = self.encode(sources), self.target_vocabulary.encode(targets)
        for side, sentences in zip(("source", "target"), ids, strict=True):
            for number, sentence in enumerate(sentences, start=1):
                self._check_length(f"{side} {number}", sentence)
        return self.engine.score(*ids)

    def loss(self, sources: Sequence[str], targets: Sequence[str]) -> float | None:
        """The mean loss a piece, without smoothing; pairs too long for the models are left out."""
        sides = zip(self.encode(sources), self.target_vocabulary.encode(targets), strict=True)
        fitting = [pair for pair in sides if max(map(len, pair)) <= self.longest]
        scores = self.engine.score([source for source, _ in fitting], [target for _, target in fitting])
        pieces = sum(each.pieces for each in scores)
        return -sum(each.log_probability for each in scores) / pieces if pieces else None

    def attention(self, source: str, target: str) -> AttentionMaps:
        """Every weight of the (first) model while it writes a given translation."""
        return self.attention_of_ids(self.encode([source])[0], self.target_vocabulary.encode([target])[0])

    def attention_of_ids(self, source: list[int], target: list[int]) -> AttentionMaps:
        """The same for ids without BOS and EOS."""
        self._check_length("source", source)
        self._check_length("target", target)
        model = self._own_models()[0]
        batch = Batch.of([source], [target]).to(model.device)
        with torch.inference_mode():
            maps = [torch.cat(layers).float().cpu() if layers else torch.zeros(0) for layers in model.attention(batch)]
        return AttentionMaps(
            [*self.source_vocabulary.pieces(source), "</s>"],
            [*self.target_vocabulary.pieces(target), "</s>"],
            *maps,
        )

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Source ids of each text: none where a model has no source to read."""
        return [[] for _ in texts] if self.is_plain else self.source_vocabulary.encode(texts)

    def beginnings(self, texts: Sequence[str]) -> list[str]:
        """The first half of each text's pieces: what a model of plain text is given to go on from."""
        ids = self.target_vocabulary.encode(texts)
        return self.target_vocabulary.decode([each[: len(each) // 2] for each in ids])

    def _encode_prefixes(self, prefixes: Sequence[str]) -> list[list[int]]:
        forced = self.target_vocabulary.encode(prefixes)
        for number, (prefix, ids) in enumerate(zip(prefixes, forced, strict=True), start=1):
            self._check_length(f"prefix {number}", ids)
            if UNK in ids:
                raise DataError(f"prefix {number}", f"has characters the model never writes, got {prefix!r}")
        return forced

    def _split(self, text: int, ids: list[int], prefix: list[int]) -> Iterator["_Part"]:
        """A text longer than the model can read at once is translated in parts."""
        length = min(self.longest, self.decoding.longest)
        if len(ids) > length:
            log.warning("a text of %s pieces is translated in parts of %s", f"{len(ids):,}", length)
        for start in range(0, max(len(ids), 1), length):
            yield _Part(text, ids[start : start + length], [] if start else prefix)

    def _join(self, texts: int, owners: Sequence[int], found: Sequence[list[Hypothesis]]) -> list[Translation]:
        parts: list[list[list[Hypothesis]]] = [[] for _ in range(texts)]
        for owner, hypotheses in zip(owners, found, strict=True):
            parts[owner].append(hypotheses)
        return [self._translation(each) for each in parts]

    def _translation(self, parts: list[list[Hypothesis]]) -> Translation:
        alternatives = []
        for joined in zip(*parts, strict=False):
            text = self.target_vocabulary.decode([[id for part in joined for id in part.ids]])[0]
            # Byte pieces can spell the end of a line; a line answers a line.
            text = text.replace("\n", " ").replace("\r", " ")
            score = sum(part.score for part in joined) / len(joined)
            alternatives.append(Translation(text, score, sum(part.log_probability for part in joined)))
        if not alternatives:
            return Translation("", 0.0, 0.0)
        best = alternatives[0]
        return Translation(best.text, best.score, best.log_probability, alternatives)

    def _own_models(self) -> Sequence[Model]:
        if not self.models:
            what = "a converted copy neither draws nor shows attention: that takes the model it was made of"
            raise ModelError(f"engine {self.engine.name}", what)
        return self.models

    def _check_length(self, where: str, ids: Sequence[int]) -> None:
        if len(ids) > self.longest:
            raise DataError(where, f"longer than the model's {self.longest} positions, got {len(ids)} pieces")


def _in_halves(find: Callable[[list[int]], list[list[Hypothesis]]], numbers: list[int]) -> list[list[Hypothesis]]:
    """What is found at once, or half by half where memory runs out."""
    try:
        return find(numbers)
    except RuntimeError as error:
        if len(numbers) == 1 or not is_out_of_memory(error):
            raise
    middle = len(numbers) // 2
    return _in_halves(find, numbers[:middle]) + _in_halves(find, numbers[middle:])


class _Part(NamedTuple):
    """What is translated at once: mostly a whole text."""

    text: int
    ids: list[int]
    prefix: list[int]  # what its output begins with


def load(
    path: str | Path,
    *others: str | Path,
    device: str = "auto",
    checkpoint: str | None = None,
    decoding: Mapping[str, Any] | None = None,
) -> Translator:
    """A translator from a model or run folder; further folders join it as an ensemble.

    Values in `decoding`, such as {"beam": 1}, replace those of the recipe.
    """
    saved = [load_model(Path(path), checkpoint), *(load_model(Path(each)) for each in others)]
    return assemble(saved, device, decoding or {})


def assemble(saved: Sequence[SavedModel], device: str, decoding: Mapping[str, Any]) -> Translator:
    """A translator of models that were loaded."""
    first = saved[0]
    for other in saved[1:]:
        if (other.source_vocabulary.proto, other.target_vocabulary.proto) != (
            first.source_vocabulary.proto,
            first.target_vocabulary.proto,
        ):
            raise ModelError(other.folder, f"its vocabulary is not that of {first.folder}: they cannot be an ensemble")
    place = choose_device(device)
    config = check(DecodingConfig, first.recipe.decoding.model_dump() | dict(decoding), "decoding")
    models = [each.model.to(place, choose_precision(config.precision, place)) for each in saved]
    return Translator(models, first.source_vocabulary, first.target_vocabulary, config, first.recipe.data.plain)
