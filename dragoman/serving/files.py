"""Translated files, kept in memory until they are fetched or too old: nothing is written to a disk."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from dragoman.serving.documents import Format

KEPT_SECONDS = 1800.0
KEPT_BYTES = 64 << 20
FORMATS: dict[str, Format] = {".txt": "text", ".html": "html"}
MEDIA = {".txt": "text/plain; charset=utf-8", ".html": "text/html; charset=utf-8"}


class Kept(NamedTuple):
    """A file and when it came."""

    content: bytes
    suffix: str
    since: float


class Files:
    """By names that nobody can guess."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._bytes = 0

    def keep(self, content: bytes, suffix: str) -> str:
        """The name of a new file; the oldest make room."""
        name = f"{secrets.token_urlsafe(18)}{suffix}"
        self._kept[name] = Kept(content, suffix, self._clock())
        self._bytes += len(content)
        self._forget()
        return name

    def find(self, name: str) -> Kept | None:
        """A file that is still there."""
        self._forget()
        return self._kept.get(name)

    def _forget(self) -> None:
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if self._bytes <= KEPT_BYTES and oldest.since + KEPT_SECONDS > self._clock():
                return
            self._kept.popitem(last=False)
            self._bytes -= len(oldest.content)
