"""docs/notebook.ipynb: a notebook without outputs, whose cells do what they say, in order, in a fresh process."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PATH = ROOT / "docs" / "notebook.ipynb"
NOTEBOOK: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
CELLS: list[dict[str, Any]] = NOTEBOOK["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]
TEXT = "\n\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")


def run(folder: Path, steps: int | None = None) -> str:
    """What the cells print, with so many updates of training or as many as the notebook says."""
    first, count = CODE[0], 1
    if steps is not None:
        first, count = re.subn(r"^steps = \d+", f"steps = {steps}", CODE[0], flags=re.MULTILINE)
    assert count == 1
    script = folder / "cells.py"
    script.write_text("\n".join([first, *CODE[1:]]), encoding="utf-8")
    mine = {"TMPDIR": str(folder), "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | mine, capture_output=True, encoding="utf-8", timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_shows_what_needs_no_training(said: str) -> None:
    for row in ("1.000,  1.000,  1.000", "1.000,  2.000,  4.000", "1.000,  4.000, 16.000"):
        assert row in said  # thirds, sevenths and twenty-firsts
    assert "[[0.833],\n        [1.189],\n        [1.427]]" in said  # a (1, 10/7, 12/7) with a = 0.8326
    assert "labels  tensor([[7, 6, 5, 4, 3]])" in said
    assert "[1.000, 0.000, 0.000],\n        [0.333, 0.667, 0.000]" in said  # nothing later is seen


def test_the_notebook_is_of_format_4_and_holds_no_output() -> None:
    assert NOTEBOOK.keys() == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert NOTEBOOK["metadata"].keys() == {"kernelspec", "language_info"}
    assert NOTEBOOK["metadata"]["kernelspec"].keys() == {"display_name", "language", "name"}
    assert NOTEBOOK["metadata"]["language_info"]["name"] == "python"
    for cell in CELLS:
        of_code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert cell.keys() == {"cell_type", "id", "metadata", "source"} | of_code
        assert cell["cell_type"] in ("code", "markdown")
        assert re.fullmatch(r"[\w-]{1,64}", cell["id"])
        assert cell["metadata"] == {}
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        assert not cell["source"][-1].endswith("\n")
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
    assert len({cell["id"] for cell in CELLS}) == len(CELLS)


def test_the_notebook_is_read_as_prose_between_short_cells_of_plain_python() -> None:
    allowed = {"dragoman", "math", "pathlib", "random", "rich", "tempfile", "torch"}
    for cell in CODE:
        tree = ast.parse(cell)  # no magic words
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {name.partition(".")[0] for name in imported} <= allowed
        assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.walk(tree))
        assert len(cell.splitlines()) < 30
    kinds = [cell["cell_type"] for cell in CELLS]
    assert all("markdown" in pair for pair in zip(kinds[2:], kinds[1:], strict=False))
    assert (kinds[0], kinds[-1]) == ("markdown", "markdown")


def test_the_links_of_the_notebook_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(links) >= 4
    assert not [link for link in links if not (PATH.parent / link).is_file()]


def test_the_notebook_runs_from_the_first_cell_to_the_last(tmp_path: Path) -> None:
    said = run(tmp_path, steps=20)
    assert_shows_what_needs_no_training(said)
    assert re.search(r"^20 updates in \d+ seconds$", said, flags=re.MULTILINE)
    assert re.search(r"^\d+ of 100 numbers it never saw", said, flags=re.MULTILINE)
    assert "layers, heads, target pieces, source pieces: (2, 4, 10, 10)" in said
    assert "(looking at " in said
    assert said.count("█") > 10


@pytest.mark.slow
def test_the_notebook_ends_with_a_model_that_reverses_numbers(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert_shows_what_needs_no_training(said)
    right = re.search(r"^(\d+) of 100 numbers it never saw", said, flags=re.MULTILINE)
    assert right
    assert int(right[1]) >= 95
    # A digit that is written is the digit that is looked at: the map runs from right to left.
    steps = re.findall(r"->  (\d) .*\(looking at (.)\)$", said, flags=re.MULTILINE)
    assert len(steps) >= 8
    assert sum(written == looked_at for written, looked_at in steps) > len(steps) / 2
