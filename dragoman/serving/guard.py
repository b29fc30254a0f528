"""What no sound translation looks like: words in a loop, a text that runs away from its source, or none at all."""

import re

_LOOP = re.compile(r"(\w.{0,39}?)\1{3,}", re.DOTALL)  # the same up to 40 characters, four times over or more
SHORTEST_LOOP = 16  # characters
# In bytes, in which scripts differ less than in characters, of which Chinese needs a third.
MOST_BYTES_A_BYTE, MOST_BYTES_BESIDE = 4, 40


def trouble(source: str, translation: str) -> str | None:
    """What is wrong with a translation, if anything is."""
    if source.strip() and not translation.strip():
        return "empty"
    if _longest_loop(translation) > 2 * _longest_loop(source):
        return "repetition"
    length = len(source.encode("utf-8", "replace"))
    if len(translation.encode("utf-8", "replace")) > MOST_BYTES_A_BYTE * length + MOST_BYTES_BESIDE:
        return "length"
    return None


def _longest_loop(text: str) -> int:
    return max((len(match[0]) for match in _LOOP.finditer(text) if len(match[0]) >= SHORTEST_LOOP), default=0)
