"""What the README says is so: its commands and its Python run, its tree is the tree."""

import ast
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from dragoman.cli import app, main
from dragoman.recipe import read_recipe

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PICTURES = (ROOT / "docs" / "guides" / "plots.md").read_text(encoding="utf-8")

SHORTER = "training.batch_tokens=256 training.save_every=1"
SMALLER = f"{SHORTER} model.width=16 model.heads=2 model.hidden=16"
# Every command of the README, and what makes it short here.
COMMANDS = {
    'echo "Hello, how are you?" | dragoman translate': "> hello.de",
    'echo "Where is the train station?" | dragoman translate --to fr': "> station.fr",
    "dragoman demo --source en --target fr": "--minutes 0.01 --out demo",
    "dragoman prepare --source train.en --target train.de --valid-source valid.en --valid-target valid.de "
    "--vocabulary 8000 --out data": "--vocabulary 11",
    "dragoman train recipes/small.toml --data data --out runs/mine": f"{SMALLER} model.layers=1 training.steps=5",
    "dragoman evaluate runs/mine --source test.en --target test.de": "",
    "dragoman translate runs/mine < test.en > test.out": "",
    "dragoman train small --data data --out runs/short model.layers=2 training.minutes=10": f"{SMALLER} "
    "training.steps=1",
    "dragoman average runs/mine --last 5 --out models/mine": "",
    "dragoman train small --data new-data --out runs/tuned --from runs/mine": f"{SHORTER} training.steps=1",
    "dragoman translate runs/mine --steps < test.en": "> test.steps",
    "dragoman score runs/mine --source test.en --target test.de": "",
    "dragoman export models/mine --format ctranslate2 --out exports/mine": "",
    "dragoman inspect runs/mine": "",
    "dragoman inspect recipes/base.toml": "",
    'dragoman plot attention runs/mine --source "Two dogs run." --style lines': "",
    "dragoman plot architecture": "",
}
ELSEWHERE = {
    "dragoman demo": "tests/system/test_demo.py runs it",
    "dragoman serve runs/mine": "tests/serving/ run it",
}


def commands(text: str) -> list[str]:
    """What a reader is given to type, in blocks and between words, in order."""
    found = []
    for block, span in re.findall(r"```sh\n(.*?)```|`(dragoman [^`\n]+)`", text, flags=re.DOTALL):
        lines = [line.split("  #")[0].strip() for line in block.splitlines()]
        found += [span] if span else [line for line in lines if "dragoman " in line]
    return found


def blocks(language: str, document: str = README) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", document, flags=re.DOTALL | re.MULTILINE)
    return [text for said, text in fenced if said == language]


def write_corpora(folder: Path, reversals: Path) -> None:
    for split, count in (("train", 400), ("valid", 5), ("test", 7)):
        for language, suffix in (("en", "fwd"), ("de", "rev")):
            lines = (reversals / f"{split}.{suffix}").read_text().splitlines(keepends=True)
            (folder / f"{split}.{language}").write_text("".join(lines[:count]))


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory, reversals: Path) -> Iterator[Path]:
    """A folder in which somebody did all that the README says, in its order."""
    folder = tmp_path_factory.mktemp("reader")
    write_corpora(folder, reversals)
    tools = Path(sys.executable).parent
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PATH", str(tools), prepend=":")
        new_text = "dragoman prepare --source train.de --target train.en --vocabulary 11 --out new-data"
        for command in [new_text, *(command for command in commands(README) if command in COMMANDS)]:
            words = f"{command} {COMMANDS.get(command, '')}"
            if words.startswith("dragoman demo") or re.search("[<>|]", words):
                subprocess.run(words, shell=True, timeout=120, check=True)
                continue
            patch.setattr(sys, "argv", shlex.split(words))
            with pytest.raises(SystemExit) as end:
                main()
            assert not end.value.code, command
        yield folder


def run_block(block: str) -> tuple[list[Any], dict[str, Any]]:
    """What a block prints, and the names it leaves."""
    printed: list[Any] = []
    names: dict[str, Any] = {"print": printed.append}
    exec(compile(block, "README.md", "exec"), names)
    return printed, names


def test_the_first_sentence_names_the_paper() -> None:
    title, first = README.split("\n\n")[:2]
    assert title == "# dragoman"
    assert "implementation of *Attention Is All You Need* (Vaswani et al. 2017)" in " ".join(
        first.split(":")[0].split()
    )


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert README.count("\n") < 200


def test_every_command_of_the_readme_is_known_here() -> None:
    found = commands(README)
    assert set(found) == COMMANDS.keys() | ELSEWHERE.keys()
    assert len(found) == len(set(found))


def test_the_commands_do_what_they_say(followed: Path) -> None:
    assert len((followed / "test.out").read_bytes().split(b"\n")) == 7 + 1
    assert (followed / "hello.de").read_text() == "Hallo, wie geht es dir?\n"
    assert (followed / "station.fr").read_text() in ("Où est la gare\u202f?\n", "Où est la gare ?\n")
    assert re.match(r" *1  ''  ->  \S+ \d\.\d{3}", (followed / "test.steps").read_text())
    for model in ("runs/mine", "runs/short", "runs/tuned", "models/mine", "demo/run"):
        assert (followed / model).is_dir()
    assert {path.name for path in followed.rglob(".*")} == {".dragoman-demo"}  # nothing half-written is left


def test_every_picture_of_the_guide_is_drawn_or_printed(
    followed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(followed)
    found = [words for words in map(shlex.split, commands(PICTURES)) if len(words) > 2]
    assert {words[2] for words in found} == {"architecture", "attention", "curves", "head", "masks", "positions"} | {
        "schedule",
        "smoothing",
    }
    for words in found:
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        assert not end.value.code, words
        out = words[words.index("--out") + 1] if "--out" in words else f"{words[2]}.svg"
        assert said.out.count("\n") > 8 if out == "-" else f"wrote {out}\n" in said.err
        assert out == "-" or (followed / out).stat().st_size > 1000


def test_the_first_block_translates_and_looks_inside(followed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(followed)
    printed, names = run_block(blocks("python")[0])
    text, shape = printed
    assert isinstance(text, str)
    maps = names["maps"]
    assert "# layers x heads x target pieces x source pieces" in blocks("python")[0]
    assert tuple(shape) == (1, 2, len(maps.target_pieces), len(maps.source_pieces))


def test_the_second_block_prints_what_its_comments_say() -> None:
    block = blocks("python")[1]
    printed, names = run_block(block)
    said = re.findall(r"^print\(.*\) +# (.+)$", block, flags=re.MULTILINE)
    states, layers, weights, sums = printed
    assert len(said) == 4
    assert tuple(states) == ast.literal_eval(said[0])
    assert f"{layers} layers" == said[1]
    assert tuple(weights) == ast.literal_eval(said[2].split(":")[0])
    assert said[3] == "every row sums to 1"
    assert bool(((sums - 1).abs() < 1e-5).all())
    assert names["model"].width == 512
    assert len(blocks("python")) == 2


MODULES = {path for path in (ROOT / "dragoman").rglob("*.py") if path.name != "__init__.py"}


def tree(text: str) -> str:
    (block,) = (block for block in blocks("", text) if block.startswith("dragoman/"))
    return block


def test_the_tree_names_every_module_and_no_other() -> None:
    lines = re.sub(r",\n +", ", ", tree(README)).splitlines()
    listed = []
    for line in lines[: next(number for number, line in enumerate(lines) if line.startswith("recipes/"))]:
        folder, names = line.split()[0], line.rsplit(": ", 1)[1].split(", ")
        inside = ROOT / "dragoman" / ("" if folder == "dragoman/" else folder)
        listed += [inside / f"{name}.py" for name in names]
    assert sorted(listed) == sorted(MODULES)


def test_the_tour_has_a_phrase_for_every_module() -> None:
    folders: list[str] = []
    listed = []
    for line in tree((ROOT / "docs" / "tour.md").read_text(encoding="utf-8")).splitlines():
        name, depth = line.split()[0], (len(line) - len(line.lstrip())) // 2
        del folders[depth:]
        if name.endswith("/"):
            folders.append(name)
        else:
            listed.append(ROOT / "".join(folders) / name)
        assert len(line.split()) > 1 or name.endswith("/"), f"{name} is not described"
    assert sorted(listed) == sorted(MODULES)


def test_the_recipes_in_the_tree_are_the_recipes() -> None:
    line = re.search(r"^recipes/ +([\w, ]+);", README, flags=re.MULTILINE)
    assert line
    assert set(line[1].split(", ")) == {path.stem for path in (ROOT / "recipes").glob("*.toml")}
    for name in line[1].split(", "):
        read_recipe(name)


def test_the_two_commands_are_targets_and_need_the_python_that_is_said() -> None:
    targets = re.findall(r"^make (\w+)", README, flags=re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    for target in targets:
        assert f"\n{target}: " in makefile
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in README
    assert shutil.which("make")


def flags(command: Any) -> set[str]:
    """The flags of a command; of a group, those of all that stand in it."""
    own = {flag for parameter in command.params for flag in parameter.opts} | {"--help"}
    return own.union(*(flags(each) for each in getattr(command, "commands", {}).values()))


def test_every_flag_that_a_document_gives_a_command_is_one_of_its_flags() -> None:
    known = {name: flags(command) for name, command in get_command(app).commands.items()}  # type: ignore[attr-defined]
    documents = [README, *(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))]
    given = [command.rpartition("| ")[2].split() for text in documents for command in commands(text)]
    assert len(given) > 15
    unknown = [
        " ".join(words)
        for words in given
        if not {word.partition("=")[0] for word in words if word.startswith("--")} <= known.get(words[1], set())
    ]
    assert not unknown
    mentioned = set(re.findall(r"`(--[\w-]+)", README))
    assert mentioned <= set().union(*known.values())
