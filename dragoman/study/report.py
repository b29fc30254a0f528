"""What a study found, as a folder: report.html (which needs no other file), report.md, pictures and results.json."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from dragoman.durable import replace_file

Cell = str | int | float | None

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --line: #ccc; --shade: #f3f3f3 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #161616; --line: #444; --shade: #222 } }
@media print { :root { --ink: #000; --paper: #fff; --line: #999; --shade: #eee } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
       margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem; font-variant-numeric: tabular-nums; display: block;
        overflow-x: auto }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
thead th { border-bottom: 2px solid var(--line) }
figure { margin: 1.5rem 0 } figure img { max-width: 100%; background: #fff; border-radius: 4px; padding: .5rem }
figcaption, .note { color: inherit; opacity: .75; font-size: .9rem }
pre { background: var(--shade); padding: .6rem .8rem; border-radius: 4px; white-space: pre-wrap }
"""


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers under column headings, which carry the units."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), self.title


@dataclass(frozen=True)
class Figure:
    """A picture as SVG, with its caption; `name` is its file beside the Markdown report."""

    name: str
    caption: str
    svg: str


Part = str | Table | Figure  # a string is a paragraph


@dataclass(frozen=True)
class Report:
    """A study's findings in reading order: paragraphs, tables and figures."""

    title: str
    command: str  # what makes this report again
    parts: Sequence[Part]
    results: Mapping[str, Any] = field(default_factory=dict)  # the numbers, for programs

    def write(self, folder: Path) -> None:
        """Write all of it; what an earlier run of the study wrote is replaced, file by file."""
        folder.mkdir(parents=True, exist_ok=True)
        for part in self.parts:
            if isinstance(part, Figure):
                replace_file(folder / f"{part.name}.svg", part.svg)
        replace_file(folder / "results.json", json.dumps(self.results, indent=2, ensure_ascii=False) + "\n")
        replace_file(folder / "report.md", self.markdown())
        replace_file(folder / "report.html", self.html())

    def markdown(self) -> str:
        """For a repository or a terminal."""
        parts = [f"# {self.title}", f"```sh\n{self.command}\n```", *map(_part_as_markdown, self.parts)]
        return "\n\n".join(parts) + "\n"

    def html(self) -> str:
        """For a browser, on screen and on paper."""
        body = "\n".join(map(_part_as_html, self.parts))
        return (
            f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width">\n<title>{escape(self.title)}</title>\n'
            f"<style>{STYLE}</style>\n<h1>{escape(self.title)}</h1>\n<pre>{escape(self.command)}</pre>\n{body}\n</html>\n"
        )


def show(cell: Cell) -> str:
    """A number as short as it is still told apart from its neighbours; a dash for what there is not."""
    match cell:
        case None:
            return "-"
        case bool() | str():
            return str(cell)
        case int():
            return f"{cell:,}"
        case _:
            return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"


def _part_as_markdown(part: Part) -> str:
    match part:
        case Table():
            lines = [part.columns, ["---"] * len(part.columns), *([show(cell) for cell in row] for row in part.rows)]
            table = "\n".join("| " + " | ".join(each.replace("|", "\\|") for each in line) + " |" for line in lines)
            return f"## {part.title}\n\n{table}" + (f"\n\n{part.note}" if part.note else "")
        case Figure():
            return f"![{part.caption}]({part.name}.svg)\n\n{part.caption}"
        case _:
            return part


def _part_as_html(part: Part) -> str:
    match part:
        case Table():
            head = "".join(f"<th>{escape(column)}</th>" for column in part.columns)
            rows = "\n".join(
                "<tr>" + "".join(f"<td>{escape(show(cell))}</td>" for cell in row) + "</tr>" for row in part.rows
            )
            note = f'\n<p class="note">{escape(part.note)}</p>' if part.note else ""
            return (
                f"<h2>{escape(part.title)}</h2>\n<table>\n<thead><tr>{head}</tr></thead>\n"
                f"<tbody>\n{rows}\n</tbody>\n</table>{note}"
            )
        case Figure():
            # As an image, so that what two pictures call alike cannot get mixed up.
            data = base64.b64encode(part.svg.encode()).decode()
            alt, caption = escape(part.caption, quote=True), escape(part.caption)
            image = f'<img alt="{alt}" src="data:image/svg+xml;base64,{data}">'
            return f"<figure>\n{image}\n<figcaption>{caption}</figcaption>\n</figure>"
        case _:
            return f"<p>{escape(part)}</p>"
