"""docs/references.md: every work that is cited anywhere is there, and says who, what, where and why."""

import re
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
REFERENCES = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
CITING = {"dragoman": "*.py", "docs": "*.md", "recipes": "*.toml", "bench": "*.py"}

NAME = r"[A-Z][\w'-]*\w"
YEAR = r"\(?((?:19|20)\d\d)\b"


class Work(NamedTuple):
    """An entry: `**KEY YEAR**: AUTHORS, *TITLE*, VENUE. WHAT FOR AND WHERE`."""

    key: str
    year: str
    authors: str
    title: str
    rest: str


@cache
def works() -> list[Work]:
    entries = re.findall(r"^- (.+(?:\n  .+)*)", REFERENCES, flags=re.MULTILINE)
    found = []
    for entry in entries:
        shape = re.fullmatch(r"\*\*(.+?) (\d{4})\*\*: (.+?), \*(.+?)\*, (.+)", " ".join(entry.split()))
        assert shape, entry
        found.append(Work(*shape.groups()))
    return found


def first_author(key: str) -> str:
    return re.split(r" et al\.| and ", key)[0]


def citations(text: str) -> set[tuple[str, str | None]]:
    """The first author and the year of each work cited in a text; no year where the text leaves it out."""
    text = re.sub(r"\s*\n[\s#]*", " ", text)
    several = re.findall(rf"({NAME}) et al\.(?:,? {YEAR})?", text)
    two_or_three = re.findall(rf"({NAME})(?:, {NAME})* and {NAME},? {YEAR}", text)
    one = re.findall(rf"\(({NAME}) ((?:19|20)\d\d)[,)]", text)
    return {(name, year or None) for name, year in chain(several, two_or_three, one)}


def test_citations_are_found_however_they_are_written() -> None:
    text = """As in Cho et al. and Sutskever et al. 2014, (Shazeer 2020), Luong, Pham and
    # Manning 2015; Popović et al. (2015), Zhang and Sennrich 2019 (not NeurIPS 2017, nor "Tom and Ann")."""
    assert citations(text) == {
        ("Cho", None),
        ("Sutskever", "2014"),
        ("Shazeer", "2020"),
        ("Luong", "2015"),
        ("Popović", "2015"),
        ("Zhang", "2019"),
    }


def test_every_work_that_is_cited_is_among_the_references() -> None:
    known = {(first_author(work.key), work.year) for work in works()}
    known_names = {name for name, _ in known}
    files = [path for folder, pattern in CITING.items() for path in (ROOT / folder).rglob(pattern)]
    assert len(files) > 80
    cited = {
        path.relative_to(ROOT).as_posix(): citations(path.read_text(encoding="utf-8"))
        for path in [ROOT / "README.md", *files]
        if path.name != "references.md"
    }
    assert len(set().union(*cited.values())) > 20
    assert not {
        (where, name, year)
        for where, found in cited.items()
        for name, year in found
        if ((name, year) not in known if year else name not in known_names)
    }


@pytest.mark.parametrize("work", works(), ids=lambda work: f"{work.key} {work.year}")
def test_a_reference_says_who_what_where_and_why(work: Work) -> None:
    authors = re.split(", | and others", work.authors)
    surnames = [author.rsplit(". ", 1)[-1] for author in authors if author]
    if len(authors) > 2:
        assert work.key == f"{surnames[0]} et al."
    else:
        assert work.key == " and ".join(surnames)
    venue, _, purpose = work.rest.partition(". ")
    assert len(venue) > 2
    # Where it is: here, or, of what the paper only names, in the paper.
    assert re.search(r"\w.*(\]\((\.\./(dragoman|recipes|bench)|\w+\.md)|section \d)", purpose), purpose


def test_no_work_stands_twice() -> None:
    titles = [work.title.lower() for work in works()]
    assert len(titles) == len(set(titles)) > 30
    assert len(works()) == len({(work.key, work.year) for work in works()})
