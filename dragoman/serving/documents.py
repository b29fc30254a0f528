"""What is translated of a text and what is kept: sentences, and all that stands between them."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dragoman.serving.markup import split_html
from dragoman.serving.sentences import split_sentences
from dragoman.serving.tasks import Answer

Format = Literal["text", "html"]


@dataclass(frozen=True)
class Document:
    """Kept text and sentences in turn: kept, sentence, kept, ..., kept."""

    parts: list[str]
    format: Format

    @classmethod
    def of(cls, text: str, format: Format) -> "Document":
        """Only what holds a letter or a digit is a sentence."""
        parts = [""]
        for number, run in enumerate(split_html(text) if format == "html" else [text]):
            if number % 2:
                parts[-1] += run
                continue
            for place, part in enumerate(split_sentences(run)):
                if place % 2 and any(map(str.isalnum, html.unescape(part) if format == "html" else part)):
                    parts += [part, ""]
                else:
                    parts[-1] += part
        return cls(parts, format)

    @property
    def sentences(self) -> list[str]:
        """What is to be translated, without entities."""
        return [html.unescape(part) if self.format == "html" else part for part in self.parts[1::2]]

    def joined(self, translations: Sequence[str]) -> str:
        """The document with these instead of its sentences."""
        parts = list(self.parts)
        is_html = self.format == "html"
        parts[1::2] = [html.escape(each, quote=False) if is_html else each for each in translations]
        return "".join(parts)

    def starts(self, sentences: Sequence[str]) -> list[int]:
        """Where each sentence begins when these stand between the kept parts."""
        starts, position = [], 0
        for kept, sentence in zip(self.parts[::2], sentences, strict=False):
            starts.append(position + len(kept))
            position += len(kept) + len(sentence)
        return starts

    def spans(self, sentences: Sequence[str]) -> list[tuple[int, int]]:
        """Where each of these begins and ends."""
        return [(start, start + len(each)) for start, each in zip(self.starts(sentences), sentences, strict=True)]

    def best(self, answers: Sequence[Answer]) -> str:
        """Its translation."""
        return self.joined([answer.texts[0] for answer in answers])

    def others(self, answers: Sequence[Answer], count: int) -> list[str]:
        """Up to so many further translations; where a sentence has too few, its last stands again."""
        if self.format == "html":
            return []
        found = [self.best(answers)]
        for rank in range(1, count + 1):
            found.append(self.joined([answer.texts[min(rank, len(answer.texts) - 1)] for answer in answers]))
        return [each for each in dict.fromkeys(found) if each.strip()][1:]
