"""A text becomes sentences and the white space between them: joined again they are the text, to the character.

Plain rules: a line's end ends a sentence; a full stop of Chinese and Japanese does wherever it stands; that of other
scripts where white space follows and no small letter behind it, unless it belongs to an abbreviation. In doubt a text
is not cut: a model copes better with two sentences than with half of one.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from dragoman.serving.markup import PLACEHOLDER

CLOSERS = "\"'”’»›)]}」』】）］〉》"  # noqa: RUF001
FREE_STOPS = "。！？｡"  # white space need not follow  # noqa: RUF001
SURE_STOPS = "!?…‽؟۔।॥።፧։။៕" + FREE_STOPS  # noqa: RUF001
# Not complete, and need not be. Last in it: single letters, and what has a stop inside ("z.B.", "e.g.", "U.S.").
ABBREVIATIONS = re.compile(
    r"abs|adj|al|approx|art|aug|bd|bspw|bzw|ca|cf|co|corp|dec|dept|dez|dipl|dr|ed|etc|evtl|feb|figs?|fr|gen|ggf|gov|hr|inc"
    r"|ing|jan|jr|jul|jun|kap|ltd|mag|max|mgr|min|mio|mlle|mme|mrd|mrs?|ms|mt|nov|nr|okt|pp|prof|rev|sen|sept?|sgt|sog|sr"
    r"|sra|st|str|tel|usw|vgl|vol|vs|zt|zzgl|[^\W\d_]|(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}",
    re.IGNORECASE,
)
LONGEST_ABBREVIATION = 12
LINE_ENDS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
# A placeholder is passed over whole: a tag may hold white space and full stops.
_CUT = re.compile(rf"{PLACEHOLDER.pattern}|(?P<space>\s+)|(?P<stop>[{FREE_STOPS}]+[{re.escape(CLOSERS)}]*(?=\S))")


def split_sentences(text: str) -> list[str]:
    """Gap, sentence, gap, ..., sentence, gap: gaps may be empty, no sentence is, nor has it white space around it."""
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    if first >= last:
        return [text]
    gaps = [(0, first), *_gaps(text, first, last), (last, len(text))]
    parts = [text[:first]]
    for (_, start), (stop, end) in pairwise(gaps):
        parts += [text[start:stop], text[stop:end]]
    return parts


def _gaps(text: str, first: int, last: int) -> Iterator[tuple[int, int]]:
    for match in _CUT.finditer(text, first, last):
        if match["stop"]:
            yield match.end(), match.end()
        elif match["space"] and (not LINE_ENDS.isdisjoint(match[0]) or _is_end(text, *match.span())):
            yield match.span()


def _is_end(text: str, start: int, end: int) -> bool:
    """Whether white space there stands between two sentences."""
    before = text[max(0, start - 2 * LONGEST_ABBREVIATION) : start].rstrip(CLOSERS)
    if before[-1:] in SURE_STOPS:
        return bool(before) and not text[end].islower()
    return before.endswith(".") and not text[end].islower() and not _is_abbreviation(before)


def _is_abbreviation(before: str) -> bool:
    word = re.split(r"[\s(\[{\"'\u201e\u201c\u00ab-]", before[:-1])[-1]
    if word.isdecimal():
        return len(word) <= 2  # 3. Mai; a year may end a sentence
    return word != "I" and ABBREVIATIONS.fullmatch(word) is not None
