"""What must survive a translation to the character: tags, and placeholders such as %1$s or {name}.

Everything here is linear in the length of the text, since strangers send it.
"""

import re
from collections.abc import Iterator

# Quantifiers are bounded: a text full of openings must not be read again from each of them.
PLACEHOLDER = re.compile(
    r"%%"
    r"|%(?:\d{1,3}\$|\([^()\s]{1,64}\))?[-+#0]{0,3}\d{0,3}(?:\.\d{1,3})?[sdiufFeEgGxXoc@]"  # printf: %s, %1$d, %(name)s
    r"|\{\{\s?[^{}\s]{1,64}\s?\}\}|\$?\{[^{}\s]{0,64}\}"  # {{ name }}, {name}, ${name}, {}
    r"|</?[A-Za-z][^<>]{0,256}>"
)

# What is not closed reaches to the end of the text, as it does in a browser.
_MARKUP = re.compile(
    r"<!--(?:.*?-->|.*\Z)"
    r"|<[!?][^>]*(?:>|\Z)"
    r"""|<(?P<close>/?)(?P<name>[A-Za-z][^\s/>]*)(?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z)|[^'">])*+(?:>|\Z)""",
    re.DOTALL,
)
_RAW = {"script", "style", "textarea"}
_UNTOUCHED = _RAW | {"code", "kbd", "pre", "samp", "var", "svg", "math"}
_KEPT = re.compile(r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE)


def placeholders(text: str) -> list[str]:
    """Those of a text, in an order of their own, so that two texts can be compared."""
    return sorted(PLACEHOLDER.findall(text))


def split_placeholders(text: str) -> list[str]:
    """Text, placeholder, text, ..., text: joined again they are the text."""
    return _alternate(text, (match.span() for match in PLACEHOLDER.finditer(text)))


def split_html(text: str) -> list[str]:
    """Text, markup, text, ..., text: joined again they are the document.

    Markup are tags with their attributes, comments, and whole elements that are not language or say translate="no".
    """
    return _alternate(text, _markup_spans(text))


def _alternate(text: str, spans: Iterator[tuple[int, int]]) -> list[str]:
    parts, end = [], 0
    for start, stop in spans:
        parts += [text[end:start], text[start:stop]]
        end = stop
    return [*parts, text[end:]]


def _markup_spans(text: str) -> Iterator[tuple[int, int]]:
    position = 0
    unclosed: set[str] = set()  # names that are known to be closed nowhere behind
    while match := _MARKUP.search(text, position):
        position = match.end()
        name = (match["name"] or "").lower()
        is_untouched = name in _UNTOUCHED or _KEPT.search(match[0])
        if name and is_untouched and not match["close"] and not match[0].endswith("/>") and name not in unclosed:
            end = _end_of_element(text, name, position)
            if end is None:
                unclosed.add(name)
            position = len(text) if end is None and name in _RAW else end or position
        yield match.start(), position


def _end_of_element(text: str, name: str, position: int) -> int | None:
    """Behind the closing tag; elements of the same name may stand within, but for raw ones, which hold no tags."""
    depth = 1
    for tag in re.finditer(rf"<(/?){re.escape(name)}(?=[\s/>])[^>]*>", text[position:], re.IGNORECASE):
        depth += -1 if tag[1] else name not in _RAW and not tag[0].endswith("/>")
        if not depth:
            return position + tag.end()
    return None
