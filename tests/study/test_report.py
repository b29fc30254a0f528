"""A study's report: one HTML file that needs nothing else, Markdown beside its pictures, and the numbers as JSON."""

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dragoman.study.report import Figure, Report, Table, show

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="3" height="5"><title>ä & b</title></svg>'
REPORT = Report(
    "Heads & <tails>",
    "dragoman study heads 'a model' > \"here\"",
    [
        "One paragraph < another.",
        Table("Scores", ["who", "BLEU", "cost | s"], [["<b>", 27.345, 1031], ["a|b", None, 0.00123]], "5 < 7"),
        Figure("curve", "Loss & BLEU", SVG),
    ],
    {"bleu": [27.345], "who": "ü"},
)


class Reader(HTMLParser):
    """Collects what an HTML file shows and where it leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.leads: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.leads += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data


def test_the_html_report_is_well_formed_and_needs_no_other_file() -> None:
    read = Reader(REPORT.html())
    assert read.open == []
    assert read.cells == ["<b>", "27.34", "1,031", "a|b", "-", "0.00123"]
    [picture] = read.leads
    assert base64.b64decode(picture.removeprefix("data:image/svg+xml;base64,")).decode() == SVG
    assert not re.search(r"https?://", REPORT.html())


def test_the_markdown_report_has_the_same_cells_and_links_its_picture() -> None:
    text = REPORT.markdown()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    assert [[cell.strip().replace("\\|", "|") for cell in row] for row in rows] == [
        ["who", "BLEU", "cost | s"],
        ["---", "---", "---"],
        ["<b>", "27.34", "1,031"],
        ["a|b", "-", "0.00123"],
    ]
    assert "![Loss & BLEU](curve.svg)" in text
    assert REPORT.command in text


def test_what_is_written_is_all_there_and_replaces_what_was(tmp_path: Path) -> None:
    for _ in range(2):
        REPORT.write(tmp_path / "study")
    assert {path.name for path in (tmp_path / "study").iterdir()} == {
        "report.html",
        "report.md",
        "results.json",
        "curve.svg",
    }
    assert json.loads((tmp_path / "study" / "results.json").read_text()) == {"bleu": [27.345], "who": "ü"}
    assert (tmp_path / "study" / "curve.svg").read_text() == SVG


def test_a_row_has_a_cell_for_every_column() -> None:
    with pytest.raises(AssertionError, match="Scores"):
        Table("Scores", ["who", "BLEU"], [["a", 1.0], ["b"]])


@pytest.mark.parametrize(
    ("cell", "shown"),
    [(None, "-"), ("x", "x"), (True, "True"), (1031, "1,031"), (-2.5, "-2.5"), (12345.6, "12,346"), (1 / 3, "0.3333")],
)
def test_numbers_are_shown_short(cell: str | int | float | None, shown: str) -> None:
    assert show(cell) == shown
