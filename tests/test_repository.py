"""The repository keeps its own rules: sizes, names, layers, links, and what the documents say of the code."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import requires
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dragoman
from dragoman.config import Section, check
from dragoman.recipe import BUDGETS, Recipe

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dragoman"
TOOLS = Path(sys.executable).parent

LONGEST_FILE = 300
LONGER_FILES: dict[str, str] = {}
LONGEST_FUNCTION = 60
LONGER_FUNCTIONS: dict[str, str] = {}
SHORT_FUNCTION = 30  # nine functions in ten are shorter

PICTURES = ("architecture", "attention", "curves", "head", "masks", "positions", "schedule", "smoothing")
VAGUE_NAMES = {"utils", "util", "helpers", "common", "misc", "constants", "manager", "base"}
# What docs/notation.md does not name: an axis free of names, any axes, heads times channels.
FURTHER_AXES = {"_", "*any", "HC"}
SHAPED = {"Bool", "Float", "Int", "Shaped", "UInt8"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> dict[str, ast.Module]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def functions() -> dict[str, Function]:
    return {
        f"{name}:{node.name}:{node.lineno}": node
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, Function)
    }


def lines_of(node: Function) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


@cache
def kept_files() -> list[Path]:
    """Every file that git keeps, or would keep."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def documents() -> list[Path]:
    return sorted(chain(ROOT.glob("*.md"), (ROOT / "docs").rglob("*.md")))


def section_of(text: str, heading: str) -> str:
    """A TOML table's lines, comments included."""
    return re.split(r"^\[", text.split(f"[{heading}]", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def tool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(TOOLS / words[0]), *map(str, words[1:])]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_a_file_is_short_or_listed_with_a_reason() -> None:
    lengths = {name: len((PACKAGE / name).read_text(encoding="utf-8").splitlines()) for name in modules()}
    assert {name for name, length in lengths.items() if length > LONGEST_FILE} == LONGER_FILES.keys()


def test_a_function_is_short_or_listed_with_a_reason() -> None:
    longer = {name for name, node in functions().items() if lines_of(node) > LONGEST_FUNCTION}
    assert {name.rsplit(":", 1)[0] for name in longer} == LONGER_FUNCTIONS.keys()


def test_nine_functions_in_ten_are_shorter_still() -> None:
    lengths = sorted(map(lines_of, functions().values()))
    assert len(lengths) > 100
    assert lengths[len(lengths) * 9 // 10] < SHORT_FUNCTION


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = set(chain.from_iterable(Path(name).with_suffix("").parts for name in modules()))
    assert not names & VAGUE_NAMES


def test_no_function_takes_whatever_it_is_given() -> None:
    assert not [name for name, node in functions().items() if node.args.kwarg]


def test_models_read_no_files_print_nothing_and_know_no_ranks() -> None:
    forbidden = re.compile(r"\bopen\(|\bos\.environ|\bprint\(|\bdist\.|\btorch\.distributed|\bpathlib\b|\blogging\b")
    found = {
        path.name: forbidden.findall(path.read_text(encoding="utf-8")) for path in (PACKAGE / "models").glob("*.py")
    }
    assert len(found) > 5
    assert not {name: words for name, words in found.items() if words}


def shapes() -> Iterator[tuple[str, str]]:
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in SHAPED:
                assert isinstance(node.slice, ast.Tuple), (name, node.lineno)
                shape = node.slice.elts[1]
                assert isinstance(shape, ast.Constant), (name, node.lineno)
                yield f"{name}:{node.lineno}", str(shape.value)


def test_axes_come_from_one_alphabet() -> None:
    axes_table = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8").split("| letter | axis |")[1]
    rows = re.findall(r"^\| ([A-Z](?:, [A-Z])*) \|", axes_table, flags=re.MULTILINE)
    alphabet = set(", ".join(rows).split(", "))
    assert alphabet == set("BSTQKDHCFVWNEAPUL")
    found = list(shapes())
    assert len(found) > 50
    axes = {(where, axis.removeprefix("#")) for where, shape in found for axis in shape.split()}
    assert not {(where, axis) for where, axis in axes if axis not in alphabet | FURTHER_AXES}
    assert {axis for _, axis in axes} >= FURTHER_AXES  # nothing stands in the list in vain


def test_what_the_package_offers_is_sorted_and_there() -> None:
    assert dragoman.__all__ == sorted(dragoman.__all__)
    for name in dragoman.__all__:
        thing = getattr(dragoman, name)
        assert getattr(importlib.import_module(thing.__module__), name) is thing
    with pytest.raises(AttributeError, match="no attribute 'transformer_config'"):
        _ = dragoman.transformer_config


def test_the_version_is_the_newest_in_the_changelog() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings[0] == dragoman.__version__


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_to_a_file_leads_to_one(document: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8"))
    files = [link.partition("#")[0] for link in links if not re.match(r"[a-z]+:|#", link)]
    assert not [file for file in files if not (document.parent / file).exists()]


def test_the_documents_are_there() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in documents()}
    assert names >= {
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/paper.md",
        "docs/misreadings.md",
        "docs/references.md",
        "docs/tour.md",
        "docs/notation.md",
        "docs/format.md",
        "docs/results.md",
        "docs/guides/training.md",
        "docs/guides/other-tasks.md",
        "docs/guides/plots.md",
        "docs/guides/studies.md",
        "docs/guides/exports.md",
        "docs/guides/serving.md",
    }


def test_the_paper_is_held_by_files_and_tests_that_exist() -> None:
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    row = r"^\| [\d.]+ \| .+ \| `(dragoman/\S+\.py)` \| `(tests/\S+\.py)::(\w+)` \| (?:`plot (\w+)`|-) \|$"
    rows = re.findall(row, text, flags=re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| \d", text, flags=re.MULTILINE)) >= 15
    missing = []
    for file, tests, function, _ in rows:
        here = [ROOT / file, ROOT / tests]
        missing += [path for path in here if not path.is_file()]
        if here[1].is_file() and f"\ndef {function}(" not in here[1].read_text(encoding="utf-8"):
            missing.append(ROOT / tests / function)
    assert not missing
    assert {picture for *_, picture in rows} == {*PICTURES, ""}


def test_every_figure_of_the_paper_has_its_picture() -> None:
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    figures = re.findall(r"^\| Figures? (\d)(?: to (\d))? \| .+ \| `plot (\w+) [^`]+` \|$", text, flags=re.MULTILINE)
    numbers = [number for first, last, _ in figures for number in range(int(first), int(last or first) + 1)]
    assert numbers == [1, 2, 3, 4, 5]
    assert {picture for *_, picture in figures} <= set(PICTURES)


def test_the_base_recipe_has_every_key() -> None:
    text = (ROOT / "recipes" / "base.toml").read_text(encoding="utf-8")
    missing = []
    for section, field in Recipe.model_fields.items():
        kind = next(iter(get_args(field.annotation)), field.annotation)  # of several, the Transformer comes first
        assert isinstance(kind, type)
        assert issubclass(kind, Section)
        lines = section_of(text, section)
        for key in kind.model_fields:
            # The budgets exclude one another, so those that are not set stand in the comment of the one that is.
            pattern = rf"^steps = .*#.*\b{key}\b" if key in BUDGETS else rf"^(# )?{key} = "
            if not re.search(pattern, lines, flags=re.MULTILINE):
                missing.append(f"{section}.{key}")
    assert not missing


def test_what_the_base_recipe_leaves_in_comments_may_be_set() -> None:
    text = (ROOT / "recipes" / "base.toml").read_text(encoding="utf-8")
    set_too, count = re.subn(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    assert count >= 5
    check(Recipe, tomllib.loads(set_too), "base.toml")


def test_no_file_names_a_folder_of_the_machine_it_was_written_on() -> None:
    machine = re.compile(rb"/(?:work|root|home/\w+)/[\w.]")
    assert not [path for path in kept_files() if machine.search(path.read_bytes())]


def test_a_fresh_clone_installs_what_the_tests_were_seen_to_pass_with() -> None:
    pinned = re.findall(r"^([\w.-]+)==\S+$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    known = set(map(canonicalize_name, pinned))
    needed, seen = [Requirement("dragoman[dev]")], set()
    while needed:
        one = needed.pop()
        seen.add(str(one))
        if one.name == "torch":  # what it needs in turn differs from build to build
            continue
        for further in map(Requirement, requires(one.name) or []):
            is_wanted = [not further.marker or further.marker.evaluate({"extra": each}) for each in one.extras or {""}]
            if any(is_wanted) and str(further) not in seen:
                needed.append(further)
    assert len(seen) > 30
    assert {canonicalize_name(Requirement(each).name) for each in seen} - known == {"dragoman"}


def test_layers_import_only_what_lies_below() -> None:
    done = tool("lint-imports", "--no-cache")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("words", [("check",), ("format", "--check")], ids=" ".join)
def test_ruff_has_nothing_to_say(words: tuple[str, ...]) -> None:
    done = tool("ruff", *words, "--no-cache", "--quiet", ".")
    assert done.returncode == 0, done.stdout


def test_words_are_spelled_right() -> None:
    done = tool("codespell", *kept_files())
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_types_are_right() -> None:
    done = tool("mypy")
    assert done.returncode == 0, done.stdout
