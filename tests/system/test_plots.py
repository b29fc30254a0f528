"""`dragoman plot`, as a user calls it: every picture, the same each time, and one clear error for every mistake."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from typer.main import get_command

from dragoman.cli import app
from dragoman.plots.charts import as_svg
from dragoman.plots.drafts import draft_recipe
from dragoman.recipe import read_recipe
from dragoman.training.journal import JOURNAL
from dragoman.training.schedule import learning_rate
from tests.plots.test_architecture import texts
from tests.system.conftest import Call
from tests.test_repository import PICTURES

ROOT = Path(__file__).parents[2]
PICTURED = {  # what each takes beside a model where it needs one
    "architecture": ("base",),
    "attention": ("MODEL", "--source", "123"),
    "curves": ("MODEL",),
    "head": ("MODEL", "--source", "1"),
    "masks": (),
    "positions": ("--width", "6", "--positions", "5"),
    "schedule": (),
    "smoothing": (),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def words_of(name: str, model: Path) -> list[str]:
    return ["plot", name, *(str(model) if word == "MODEL" else word for word in PICTURED[name])]


def test_there_is_a_command_for_every_picture() -> None:
    assert set(get_command(app).commands["plot"].commands) == set(PICTURES) == set(PICTURED)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_written_here_and_the_same_one_is_the_same_file(
    name: str, reverser: Path, tmp_path: Path, call: Call
) -> None:
    ended = call(*words_of(name, reverser))
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.endswith(f"wrote {name}.svg\n")
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.svg"]
    if name in ("architecture", "attention"):
        assert call(*words_of(name, reverser), "--out", "again.svg").code == 0
        assert (tmp_path / "again.svg").read_bytes() == (tmp_path / f"{name}.svg").read_bytes()


def test_the_suffix_says_the_format(tmp_path: Path, call: Call) -> None:
    assert call("plot", "smoothing", "--out", "a.png").code == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_attention_is_that_of_the_layer_and_the_head(reverser: Path, tmp_path: Path, call: Call) -> None:
    ways = ("cross", "map", "2", "head 2"), ("encoder", "lines", "all", "4 heads"), ("decoder", "map", "2", "head 2")
    for kind, style, head, drawn in ways:
        words = ("--kind", kind, "--style", style, "--head", head, "--layer", "1", "--target", "21")
        ended = call("plot", "attention", reverser, "--source", "12", *words)
        assert (ended.code, ended.err) == (0, "wrote attention.svg\n")
        said = " ".join(texts((tmp_path / "attention.svg").read_text()))
        assert f"layer 1 of 2, {drawn}" in said
        assert "&lt;s&gt;" in said if kind == "decoder" else "&lt;s&gt;" not in said


def test_a_head_of_the_decoder_asks_with_what_was_read(reverser: Path, tmp_path: Path, call: Call) -> None:
    for kind in ("decoder", "cross"):
        ended = call("plot", "head", reverser, "--source", "12", "--target", "21", "--kind", kind)
        assert (ended.code, ended.err) == (0, "wrote head.svg\n")
        said = texts((tmp_path / "head.svg").read_text())
        assert said.count("&lt;s&gt;") == {"decoder": 2 + 2 + 3 + 2, "cross": 2 + 3}[kind]
        assert said.count("&lt;/s&gt;") == {"decoder": 0, "cross": 2 + 2}[kind]


def test_one_word_is_looked_at_alone(reverser: Path, tmp_path: Path, call: Call) -> None:
    words = ("plot", "attention", reverser, "--source", "12", "--target", "4321", "--style", "lines")
    sizes = []
    for more in ((), ("--word", "4")):
        assert call(*words, *more).code == 0
        sizes.append((tmp_path / "attention.svg").read_text().count("stroke-linecap"))
    assert sizes[1] < sizes[0]
    ended = call(*words, "--word", "8")
    assert ended.code == 2
    assert "--word: none of the pieces that look, got 8" in ended.err


def test_the_terminal_shows_what_fits_it(reverser: Path, tmp_path: Path, call: Call) -> None:
    for name in ("attention", "curves", "masks", "schedule"):
        ended = call(*words_of(name, reverser), "--out", "-")
        assert ended.code == 0
        assert len(ended.out.splitlines()) > 8
        assert max(map(len, ended.out.splitlines())) < 100
    assert list(tmp_path.iterdir()) == []


def test_the_terminal_needs_no_matplotlib(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert call("plot", "masks", "--out", "-").code == 0
    ended = call("plot", "masks")
    assert ended.code == 2
    assert "plots: need matplotlib" in ended.err


def test_the_schedule_is_equation_3_or_the_recipes(call: Call) -> None:
    ended = call("plot", "schedule", "--width", "17", "--warmup", "5", "--steps", "50", "--out", "-")
    assert ended.out.split("\n")[1].strip().startswith(f"{(17 * 5) ** -0.5:.3g} │")
    ended = call("plot", "schedule", "tiny", "--steps", "300", "--out", "-")
    recipe = read_recipe("tiny", ["training.steps=300"])
    rates = [learning_rate(recipe.training, recipe.model.width, step, (step - 1) / 300) for step in range(1, 301)]
    assert ended.out.split("\n")[1].strip().startswith(f"{max(rates):.3g} │")
    assert f"{min(rates):.3g} │" in ended.out


def test_runs_are_drawn_together_under_their_names(reverser: Path, tmp_path: Path, call: Call) -> None:
    for name in ("one", "two/one"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(reverser / JOURNAL, tmp_path / name)
    ended = call("plot", "curves", reverser, "one", "--value", "bleu", "--value", "learning-rate")
    assert ended.code == 0
    said = texts((tmp_path / "curves.svg").read_text())
    assert {reverser.name, "one", "validation BLEU", "(greedy search)", "learning rate", "step"} <= set(said)
    ended = call("plot", "curves", "one", "two/one", "--against", "minutes", "--out", "-")
    assert ended.code == 0
    assert {"● one", "○ two/one"} <= set(map(str.strip, ended.out.splitlines()))
    assert " minutes of training\n" in ended.out


def test_positions_are_those_of_the_model(reverser: Path, tmp_path: Path, call: Call) -> None:
    assert call("plot", "positions", "--model", reverser, "--positions", "7").code == 0
    assert any(
        "7 of 1,024 positions of reverser, not learned" in text
        for text in texts((tmp_path / "positions.svg").read_text())
    )


MISTAKES = {
    "--out: this picture has no form for the terminal, got -": ("smoothing", "--out", "-"),
    "a.gif: the suffix says the format": ("masks", "--out", "a.gif"),
    "nowhere/a.svg: there is no folder nowhere": ("masks", "--out", "nowhere/a.svg"),
    "--word: needs --style lines": ("attention", "MODEL", "--source", "1", "--word", "1"),
    "--source: is blank": ("attention", "MODEL", "--source", " "),
    "--target: is blank": ("head", "MODEL", "--source", "1", "--target", ""),
    "--source: is not UTF-8, got '\\udcff'": ("attention", "MODEL", "--source", "\udcff"),
    "--layer: the model has 2 layers, got 3": ("attention", "MODEL", "--source", "1", "--layer", "3"),
    "--head: the model has 4 heads, got 5": ("head", "MODEL", "--source", "1", "--head", "5"),
    "--head: the model has 4 heads, got x": ("attention", "MODEL", "--source", "1", "--head", "x"),
    "nothing: no such folder": ("attention", "nothing", "--source", "1"),
    "nothing: no such recipe": ("architecture", "nothing"),
    "--kind: is a way to draw the sinusoids, not what --model adds": (
        "positions",
        "--model",
        "MODEL",
        "--kind",
        "halves",
    ),
    "tiny: its budget is not in steps alone": ("schedule", "small", "tiny"),
    "--width and --warmup: are said by the recipes": ("schedule", "base", "--width", "7"),
    "nothing: not a run folder: it has no journal.jsonl": ("curves", "MODEL", "nothing"),
}


@pytest.mark.parametrize("said", MISTAKES)
def test_a_mistake_is_one_clear_error(said: str, reverser: Path, tmp_path: Path, call: Call) -> None:
    ended = call("plot", *(reverser if word == "MODEL" else word for word in MISTAKES[said]))
    assert ended.code == 2
    assert re.findall("^error: (.*)$", ended.err, flags=re.MULTILINE) == [said]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_place_for_a_picture(tmp_path: Path, call: Call) -> None:
    (tmp_path / "a.svg").mkdir()
    assert "error: a.svg: is a folder\n" in call("plot", "attention", "nothing", "--source", "1", "--out", "a.svg").err


def test_a_run_that_has_written_nothing_of_it_yet_is_told(tmp_path: Path, call: Call) -> None:
    (tmp_path / JOURNAL).write_text('{"event": "started", "step": 0}\n')
    assert f"{tmp_path}: its journal has nothing to draw yet" in call("plot", "curves", tmp_path).err
    ended = call("plot", "curves", tmp_path, "--value", "bleu")
    assert (ended.code, "--value: no run has written any, got bleu" in ended.err) == (2, True)


def hardly_trained(name: str, reversals: Path, run: Path) -> Path:
    from rich.console import Console

    from dragoman.training.run import run_training

    words = ["model.width=16", "model.layers=1", "training.steps=1", "training.row_length=16"]
    recipe = read_recipe(f"systems/{name}", words)
    run_training(recipe, reversals / "data", run, torch.device("cpu"), Console(quiet=True))
    return run


PAIR = ("--source", "12", "--target", "21")


def test_a_model_without_attention_says_so(
    reversals: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, call: Call
) -> None:
    run = hardly_trained("neural-gpu", reversals, tmp_path_factory.mktemp("neural-gpu") / "run")
    said = call("plot", "attention", run, *PAIR).err
    assert f"{run}: has no cross-attention\n\nhint: it has: no attention\n" in said
    said = call("plot", "head", run, *PAIR).err
    assert f"{run}: has no heads to look into in the encoder's self-attention\n\nhint: it has no attention\n" in said
    assert "adds no positions" in call("plot", "positions", "--model", run).err
    assert list(tmp_path.iterdir()) == []


def test_an_attention_without_heads_is_drawn_as_it_is(
    reversals: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, call: Call
) -> None:
    run = hardly_trained("convs2s", reversals, tmp_path_factory.mktemp("convs2s") / "run")
    said = call("plot", "attention", run, *PAIR, "--kind", "encoder").err
    assert f"{run}: has no encoder's self-attention\n\nhint: it has: cross\n" in said
    said = call("plot", "attention", run, *PAIR, "--head", "2").err
    assert "--head: the model has one head, got 2\n\nhint: say 1, all or mean\n" in said
    assert "hint: plot attention shows what it has\n" in call("plot", "head", run, *PAIR).err
    assert list(tmp_path.iterdir()) == []
    assert "its one head\n" in call("plot", "attention", run, *PAIR, "--out", "-").out
    assert call("plot", "positions", "--model", run, "--positions", "3").code == 0
    said = " ".join(texts((tmp_path / "positions.svg").read_text()))
    assert all(f"3 of 1,024 {side} positions of run, learned" in said for side in ("source", "target"))


def test_the_picture_in_the_guide_is_the_one_that_is_drawn() -> None:
    from dragoman.plots.architecture import draw_architecture

    kept = (ROOT / "docs" / "guides" / "architecture.svg").read_text(encoding="utf-8")
    assert texts(kept) == texts(as_svg(draw_architecture(draft_recipe("base", None))))
