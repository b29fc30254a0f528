"""Which pairs are not worth learning from; every pair that is dropped is counted by its reason."""

from collections import Counter
from hashlib import blake2b
from typing import Literal

from dragoman.data.corpora import Pair, decode_line

Reason = Literal["not UTF-8", "empty", "too long", "ratio", "duplicate"]

# A piece rarely has more characters than this, so a longer line need not be encoded to be known as too long.
CHARACTERS_PER_PIECE = 16
# Short phrases may differ freely: "OK" is "In Ordnung".
FREE_CHARACTERS = 20


class Cleaner:
    """Judges pairs one after another and remembers what it dropped."""

    def __init__(self, longest: int, ratio: float, invalid: Literal["error", "drop"]) -> None:
        self.longest = longest
        self.ratio = ratio
        self.invalid = invalid
        self.dropped: Counter[Reason] = Counter()
        self._seen: set[bytes] = set()

    def clean(self, pair: Pair) -> tuple[str, str] | None:
        """The pair as text, or None if it is dropped."""
        if self.invalid == "drop" and not _is_utf8(pair):
            self.dropped["not UTF-8"] += 1
            return None
        source = decode_line(pair.source, pair.files[0], pair.line)
        target = decode_line(pair.target, pair.files[1], pair.line)
        reason = self._judge(source, target)
        if reason:
            self.dropped[reason] += 1
        return None if reason else (source, target)

    def count_too_long(self) -> None:
        """Count a pair that turned out too long once it was in pieces."""
        self.dropped["too long"] += 1

    def _judge(self, source: str, target: str) -> Reason | None:
        short, long = sorted((len(source), len(target)))
        if not source.strip() or not target.strip():
            return "empty"
        if long > self.longest * CHARACTERS_PER_PIECE:
            return "too long"
        if long > self.ratio * short + FREE_CHARACTERS:
            return "ratio"
        digest = blake2b(f"{source}\n{target}".encode(), digest_size=8).digest()
        if digest in self._seen:
            return "duplicate"
        self._seen.add(digest)
        return None


def _is_utf8(pair: Pair) -> bool:
    try:
        pair.source.decode(), pair.target.decode()
    except UnicodeDecodeError:
        return False
    return True
