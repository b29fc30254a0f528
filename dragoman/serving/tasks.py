"""What is asked of a model, as values: equal tasks share a batch. They run in the one thread that owns the models."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from dragoman.data.vocabulary import Vocabulary
from dragoman.decoding.sampling import Sampling
from dragoman.decoding.scoring import Score
from dragoman.decoding.translator import AttentionMaps, Translation, Translator
from dragoman.errors import DataError
from dragoman.serving.guard import trouble
from dragoman.serving.markup import placeholders, split_placeholders

Kind = Literal["encoder", "decoder", "cross"]

DRAWS, SAFER = 8, Sampling(temperature=0.7, top_p=0.95)


class Pair(NamedTuple):
    """From which language into which."""

    source: str
    target: str


@runtime_checkable
class Task(Protocol):
    """Must be hashable, and answers each item without regard to the others."""

    @property
    def pair(self) -> Pair:
        """Whose model is asked."""

    def run(self, translator: Translator, items: Sequence[Any]) -> Sequence[Any]:
        """An answer for each item, in order."""


class Answer(NamedTuple):
    """Translations of one sentence, best first, the score of the first, and what had to be mended."""

    texts: list[str]
    score: float
    warnings: list[str]


class Link(NamedTuple):
    """A word of a translation and the word of its source that it looked at most, as spans of characters."""

    source: tuple[int, int]
    target: tuple[int, int]
    weight: float


class Maps(NamedTuple):
    """The weights of one layer: heads x queries x keys."""

    queries: list[str]
    keys: list[str]
    weights: list[list[list[float]]]


@dataclass(frozen=True)
class Translate:
    """Sentences into sentences; placeholders survive, and what went wrong is decoded again."""

    pair: Pair
    n_best: int

    def run(self, translator: Translator, items: Sequence[str]) -> list[Answer]:
        """The n best translations of each sentence."""
        found = translator.translate(items, self.n_best)
        return [self._mend(translator, text, each) for text, each in zip(items, found, strict=True)]

    def _mend(self, translator: Translator, text: str, found: Translation) -> Answer:
        warnings = []
        if what := trouble(text, found.text):
            found = _decode_safely(translator, text, self.n_best)
            outcome = ", in vain" if trouble(text, found.text) else ""
            warnings.append(f"{what}: drawn instead of searched for{outcome}")
        marks = placeholders(text)
        texts = [each.text for each in found.alternatives if placeholders(each.text) == marks]
        if marks and (not texts or texts[0] != found.text):
            texts = [_translate_between(translator, text), *texts]
            warnings.append("placeholders: what stands between them was translated by itself")
        return Answer(list(dict.fromkeys(texts)) or [found.text], found.score, warnings)


@dataclass(frozen=True)
class Rate:
    """How likely given translations are."""

    pair: Pair

    def run(self, translator: Translator, items: Sequence[tuple[str, str]]) -> list[Score]:
        """The score of each pair of texts."""
        return translator.score([source for source, _ in items], [target for _, target in items])


@dataclass(frozen=True)
class Look:
    """What a layer looked at while it wrote a given translation."""

    pair: Pair
    kind: Kind
    layer: int

    def run(self, translator: Translator, items: Sequence[tuple[str, str]]) -> list[Maps]:
        """The maps of every head of the layer."""
        return [self._look(translator.attention(*item)) for item in items]

    def _look(self, maps: AttentionMaps) -> Maps:
        layers = getattr(maps, self.kind)
        if not 0 <= self.layer < len(layers):
            raise DataError("layer", f"this model has {len(layers)} of kind '{self.kind}', from 0, got {self.layer}")
        queries = maps.source_pieces if self.kind == "encoder" else maps.target_pieces
        keys = maps.read_pieces if self.kind == "decoder" else maps.source_pieces
        weights = layers[self.layer].double().round(decimals=4)  # four digits are more than an eye can see
        return Maps(queries, keys, weights.tolist())


@dataclass(frozen=True)
class Align:
    """Which word became which: the mean over all heads of what each looked at."""

    pair: Pair

    def run(self, translator: Translator, items: Sequence[tuple[str, str]]) -> list[list[Link]]:
        """A link for each word of each translation."""
        return [align(translator, *item) for item in items]


def align(translator: Translator, source: str, target: str) -> list[Link]:
    """For each word of the translation the source word with the largest share of its weights."""
    source_ids, target_ids = translator.encode([source])[0], translator.target_vocabulary.encode([target])[0]
    cross = translator.attention_of_ids(source_ids, target_ids).cross
    if not cross.numel():
        raise DataError("alignment", "this model does not look at its source")
    weights = cross.mean((0, 1))
    sources = pieces_of_words(translator.source_vocabulary, source_ids, source)
    links = []
    for span, pieces in pieces_of_words(translator.target_vocabulary, target_ids, target):
        shares = [(float(weights[pieces][:, keys].sum() / len(pieces)), where) for where, keys in sources]
        weight, where = max(shares)
        links.append(Link(where, span, round(weight, 4)))
    return links


def pieces_of_words(vocabulary: Vocabulary, ids: list[int], text: str) -> list[tuple[tuple[int, int], list[int]]]:
    """The span of each word and the pieces that touch it; a piece ends where the text of all up to it does."""
    # Half a character, spelled in bytes, is read as a sign of its own: it counts with the piece that completes it.
    ends = [len(each.rstrip("\ufffd")) for each in vocabulary.decode([ids[: n + 1] for n in range(len(ids))])]
    spans = list(zip([0, *ends], ends, strict=False))
    words = [match.span() for match in re.finditer(r"\S+", text)]
    found = [(word, [n for n, (start, end) in enumerate(spans) if start < word[1] and end > word[0]]) for word in words]
    return [(word, pieces) for word, pieces in found if pieces]


def _decode_safely(translator: Translator, text: str, n_best: int) -> Translation:
    """The likeliest sound one of several draws: a search prefers what loops (docs/LOG.md, 2026-11-19)."""
    draws = translator.translate([text], max(DRAWS, n_best), sampling=SAFER)[0].alternatives
    ranked = sorted(draws, key=lambda each: (trouble(text, each.text) is not None, -each.score))
    return replace(ranked[0], alternatives=ranked[:n_best])


def _translate_between(translator: Translator, text: str) -> str:
    """The text with what stands between its placeholders translated, or as it is where that would lose one."""
    parts = split_placeholders(text)
    for number in range(0, len(parts), 2):
        part = parts[number]
        if any(map(str.isalnum, part)):
            bare = part.strip()
            before, _, after = part.partition(bare)
            parts[number] = f"{before}{translator.translate([bare])[0].text}{after}"
    joined = "".join(parts)
    return joined if placeholders(joined) == placeholders(text) else text
