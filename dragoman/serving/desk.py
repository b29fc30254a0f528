"""What the server does with a request once it is read and let in: from fields to an answer."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from dragoman.decoding.translator import Translator
from dragoman.serving.batching import Batcher
from dragoman.serving.documents import Document, Format
from dragoman.serving.fields import (
    check_length,
    read_alternatives,
    read_flag,
    read_format,
    read_integer,
    read_kind,
    read_pair,
    read_text,
    read_texts,
)
from dragoman.serving.files import FORMATS, Files
from dragoman.serving.inside import MOST_POSITIONS, Compare, Inside, Place, Watch
from dragoman.serving.languages import Languages, outward_code
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.reading import Fields, RequestError, Upload
from dragoman.serving.tasks import Align, Answer, Link, Look, Maps, Pair, Rate, Task, Translate

MUCH_TEXT = 20_000  # characters that are cut into sentences elsewhere, so that nobody else waits for it
UNKNOWN = [("en", 0.0)]  # what LibreTranslate says of a text that is in no language

Json = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """What became of one text."""

    document: Document
    answers: list[Answer]

    @property
    def text(self) -> str:
        """Its translation."""
        return self.document.best(self.answers)

    @property
    def score(self) -> float:
        """The mean of its sentences' scores."""
        return sum(answer.score for answer in self.answers) / max(1, len(self.answers))

    @property
    def sentences(self) -> list[Json]:
        """Where each sentence and its translation stand, as spans of characters."""
        sides = self.document.sentences, [answer.texts[0] for answer in self.answers]
        spans = (self.document.spans(side) for side in sides)
        return [{"source": source, "target": target} for source, target in zip(*spans, strict=True)]

    @property
    def warnings(self) -> list[str]:
        """What had to be mended, once each."""
        return list(dict.fromkeys(warning for answer in self.answers for warning in answer.warnings))


class Desk:
    """Takes fields, asks the batcher, and says what LibreTranslate would."""

    def __init__(self, batcher: Batcher, languages: Languages, limits: Limits, metrics: Metrics, files: Files) -> None:
        self.batcher = batcher
        self.languages = languages
        self.limits = limits
        self.metrics = metrics
        self.files = files

    async def translate(self, fields: Fields) -> Json:
        """`/translate`, with `scores`, `alignment` and `warnings` beside what the contract has."""
        texts = read_texts(fields, "q", self.limits)
        format = read_format(fields)
        alternatives = read_alternatives(fields, self.limits.alternatives)
        pair, confidence = read_pair(fields, self.languages, max(texts, key=len))
        told = await self._tell(texts, format, Translate(pair, alternatives + 1), self.limits.seconds)
        answer: dict[str, list[Any]] = {"translatedText": [each.text for each in told]}
        if confidence is not None:
            answer["detectedLanguage"] = [{"confidence": confidence, "language": outward_code(pair.source)}] * len(told)
        if alternatives:
            answer["alternatives"] = [each.document.others(each.answers, alternatives) for each in told]
        if read_flag(fields, "scores"):
            answer["scores"] = [each.score for each in told]
        if read_flag(fields, "alignment"):
            if format == "html":
                raise RequestError(400, "Invalid request: alignment is of plain text")
            answer["alignment"] = await self._align(pair, told)
        if read_flag(fields, "sentences"):
            if format == "html":
                raise RequestError(400, "Invalid request: sentences are of plain text")
            answer["sentences"] = [each.sentences for each in told]
        if any(each.warnings for each in told):
            answer["warnings"] = [each.warnings for each in told]
            self.metrics.warnings.inc(sum(bool(each.warnings) for each in told))
        is_list = isinstance(fields["q"], list)
        return {name: values if is_list else values[0] for name, values in answer.items()}

    async def translate_file(self, fields: Fields) -> str:
        """`/translate_file`: the name that the translated file is kept under."""
        file = fields.get("file")
        if not isinstance(file, Upload):
            raise RequestError(400, "Invalid request: missing file parameter")
        if not file.name or not file.content:
            raise RequestError(400, "Invalid request: empty file")
        suffix = PurePath(file.name).suffix.lower()
        if suffix not in FORMATS:
            raise RequestError(400, "Invalid request: file format not supported")
        try:
            text = file.content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise RequestError(400, "Invalid request: file should be UTF-8") from None
        pair, _ = read_pair(fields, self.languages, text[: self.limits.characters])
        (told,) = await self._tell([text], FORMATS[suffix], Translate(pair, 1), self.limits.file_seconds)
        return self.files.keep(told.text.encode(), suffix)

    async def detect(self, fields: Fields) -> list[Json]:
        """`/detect`."""
        text = check_length(read_text(fields, "q"), self.limits)
        found = self.languages.detect(text) or UNKNOWN
        return [{"confidence": percent, "language": outward_code(code)} for code, percent in found]

    async def score(self, fields: Fields) -> Json:
        """`/score`: how likely the model finds given translations."""
        sources = read_texts(fields, "q", self.limits)
        targets = read_texts(fields, "translation", self.limits)
        if len(sources) != len(targets):
            raise RequestError(400, f"Invalid request: {len(sources)} texts in q, {len(targets)} in translation")
        pair, _ = read_pair(fields, self.languages, sources[0])
        scores = await self._ask_of_pairs(Rate(pair), list(zip(sources, targets, strict=True)))
        alpha = self._translator(pair).decoding.alpha
        answer = {
            "scores": [each.normalised(alpha) for each in scores],
            "logProbabilities": [each.log_probability for each in scores],
            "pieces": [each.pieces for each in scores],
        }
        return {name: values if isinstance(fields["q"], list) else values[0] for name, values in answer.items()}

    async def attention(self, fields: Fields) -> Json:
        """`/attention`: every head of one layer and kind, of a translation that is given or our own."""
        kind = read_kind(fields)
        layer = read_integer({"layer": fields.get("layer", 0)}, "layer")
        head = None if fields.get("head") is None else read_integer(fields, "head")
        pair, item = await self._one_pair(fields)
        maps: Maps
        (maps,) = await self._ask_of_pairs(Look(pair, kind, layer), [item])
        answer = {"translatedText": item[1], "kind": kind, "layer": layer, **maps._asdict()}
        if head is not None:
            (inside,) = await self._ask_of_pairs(Compare(pair, kind, layer, head), [item])
            answer["head"] = {"number": head, **inside._asdict()}
        return answer

    async def inside(self, fields: Fields) -> Json:
        """`/inside`: how one translation was written, piece by piece, and which attentions the model has."""
        pair, item = await self._one_pair(fields)
        inside: Inside
        (inside,) = await self._ask_of_pairs(Watch(pair), [item])
        return {"translatedText": item[1], **inside}

    async def positions(self, fields: Fields) -> Json:
        """`/positions`: what a model adds to the first embeddings to say where they stand."""
        length = read_integer({"length": fields.get("length", MOST_POSITIONS)}, "length")
        if not 1 <= length <= MOST_POSITIONS:
            raise RequestError(400, f"Invalid request: length parameter must be from 1 to {MOST_POSITIONS}")
        pair, _ = read_pair(fields, self.languages, "")
        (places,) = await self.batcher.ask(Place(pair), [length], [1], self.limits.seconds)
        return places

    async def _one_pair(self, fields: Fields) -> tuple[Pair, tuple[str, str]]:
        """A text and its translation, which is given or our own."""
        text = check_length(read_text(fields, "q"), self.limits)
        pair, _ = read_pair(fields, self.languages, text)
        if fields.get("translation"):
            return pair, (text, check_length(read_text(fields, "translation"), self.limits))
        (answer,) = await self._ask(Translate(pair, 1), [text], self.limits.seconds)
        return pair, (text, answer.texts[0])

    async def _tell(self, texts: Sequence[str], format: Format, task: Translate, seconds: float) -> list[Told]:
        if sum(map(len, texts)) > MUCH_TEXT:
            documents = await asyncio.to_thread(lambda: [Document.of(text, format) for text in texts])
        else:
            documents = [Document.of(text, format) for text in texts]
        sentences = [sentence for document in documents for sentence in document.sentences]
        answers = iter(await self._ask(task, sentences, seconds))
        return [Told(document, [next(answers) for _ in document.sentences]) for document in documents]

    async def _align(self, pair: Pair, told: Sequence[Told]) -> list[list[Json]]:
        """Links of words over whole texts, as spans of characters."""
        items = [
            (sentence, answer.texts[0])
            for each in told
            for sentence, answer in zip(each.document.sentences, each.answers, strict=True)
        ]
        links: Any = iter(await self._ask_of_pairs(Align(pair), items))
        found = []
        for each in told:
            places = [(sentence["source"][0], sentence["target"][0]) for sentence in each.sentences]
            found.append([_moved(link, *place) for place in places for link in next(links)])
        return found

    async def _ask_of_pairs(self, task: Task, items: Sequence[tuple[str, str]]) -> list[Any]:
        translator = self._translator(task.pair)
        longest = translator.longest
        if isinstance(task, Watch):
            longest = min(longest, translator.decoding.longest)  # a longer text is never translated in one piece
        sources = self._tokens(task.pair, [source for source, _ in items])
        targets = [len(ids) for ids in translator.target_vocabulary.encode([target for _, target in items])]
        if (most := max([*sources, *targets], default=0)) > longest:
            raise RequestError(400, f"Invalid request: a text of {most} pieces is more than the model's {longest}")
        tokens = [sum(pair) for pair in zip(sources, targets, strict=True)]
        return await self.batcher.ask(task, items, tokens, self.limits.seconds)

    async def _ask(self, task: Translate, sentences: Sequence[str], seconds: float) -> list[Answer]:
        if sum(map(len, sentences)) > MUCH_TEXT:
            tokens = await asyncio.to_thread(self._tokens, task.pair, sentences)
        else:
            tokens = self._tokens(task.pair, sentences)
        if (total := sum(tokens)) > self.limits.tokens:
            message = f"Invalid request: request ({total} pieces) exceeds text limit ({self.limits.tokens})"
            raise RequestError(413, message)
        return await self.batcher.ask(task, sentences, tokens, seconds)

    def _tokens(self, pair: Pair, sentences: Sequence[str]) -> list[int]:
        # Of the translator only its vocabulary is touched here, which anybody may read; the rest is the batcher's.
        return [len(ids) + 1 for ids in self._translator(pair).encode(sentences)]

    def _translator(self, pair: Pair) -> Translator:
        return self.batcher.translators[pair]


def _moved(link: Link, source: int, target: int) -> Json:
    spans: Mapping[str, tuple[int, int]] = {
        "source": (link.source[0] + source, link.source[1] + source),
        "target": (link.target[0] + target, link.target[1] + target),
    }
    return {**spans, "weight": link.weight}
