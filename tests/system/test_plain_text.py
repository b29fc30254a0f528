"""Text by itself: a decoder-only model learns from it to go on writing, and may learn to translate afterwards."""

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.models.language_model import LanguageModelConfig
from dragoman.recipe import Recipe
from dragoman.saved import load_model

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = [
    *("model.layers=1", "model.width=32", "model.hidden=64", "model.heads=2", "model.dropout=0.0"),
    *("training.schedule=landing", "training.batch_tokens=768", "training.row_length=64", "training.warmup=40"),
    *("training.peak=1e-2", "training.save_every=90"),
]


def counting(first: int, length: int) -> str:
    """Digits, each the one before and one more, and 0 behind 9."""
    return "".join(str((first + place) % 10) for place in range(length))


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory, run_dragoman: Run) -> Path:
    """A folder with a run that learned to count from plain text alone."""
    folder, draw = tmp_path_factory.mktemp("plain"), random.Random(7)
    for name, lines in (("train", 150), ("valid", 11)):
        text = [counting(draw.randrange(10), draw.randint(5, 29)) for _ in range(lines)]
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in dict.fromkeys(text)))
    words = ["--vocabulary", "11", "--out", "data", "--json"]
    done = run_dragoman("prepare", "--target", "train.txt", "--valid-target", "valid.txt", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    recipe = ["systems/gpt", "--data", "data", "--out", "run", *SMALL, "training.steps=180"]
    done = run_dragoman("train", *recipe, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_line_is_how_the_output_begins(counter: Path, run_dragoman: Run) -> None:
    begun = [counting(first, length) for first, length in ((3, 4), (8, 3), (0, 7), (5, 11))]
    done = run_dragoman("translate", "run", input="\n".join([*begun[:2], "", *begun[2:]]) + "\n", cwd=counter)
    lines = done.stdout.splitlines()
    assert lines.pop(2) == ""
    for line, start in zip(lines, begun, strict=True):
        assert len(line) > len(start)
        assert line == counting(int(start[0]), len(line))


@pytest.mark.parametrize("words", ["run", "en:de=run"])
def test_it_is_not_served_and_the_reason_comes_first(counter: Path, run_dragoman: Run, words: str) -> None:
    done = run_dragoman("serve", words, "--port", "0", cwd=counter)
    said = "this model learned from plain text: it goes on writing and does not translate"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {words}: {said}\n")


def test_drawing_goes_on_from_the_line_too(counter: Path, run_dragoman: Run) -> None:
    words = ["--sample", "--temperature", "1.5", "--n-best", "7", "--prefix", "90"]
    done = run_dragoman("translate", "run", *words, input="5678\n", cwd=counter)
    texts = [line.split("\t", 2)[2] for line in done.stdout.split("\n")[:-1]]
    assert len(set(texts)) > 1
    assert all(text.startswith("567890") for text in texts)


def test_text_is_scored_by_itself(counter: Path, run_dragoman: Run) -> None:
    (counter / "two.txt").write_text("34567890123\n34567809123\n")
    done = run_dragoman("score", "run", "--target", "two.txt", cwd=counter)
    right, wrong = map(float, done.stdout.split())
    assert right > wrong + 1
    done = run_dragoman("score", "run", "--source", "two.txt", "--target", "two.txt", cwd=counter)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --source: has no use: the model learned from plain text")


def test_an_evaluation_goes_on_from_the_first_half_of_each_line(counter: Path, run_dragoman: Run) -> None:
    (counter / "test.txt").write_text("3456789012\n7890123456\n5678901235\n")  # the last one miscounts at its end
    done = run_dragoman("evaluate", "run", "--target", "test.txt", "--output", "out.txt", "--json", cwd=counter)
    assert done.returncode == 0, done.stderr
    lines = (counter / "out.txt").read_text().split()
    assert [line[:5] for line in lines] == ["34567", "78901", "56789"]
    assert lines == [counting(int(line[0]), len(line)) for line in lines]
    assert lines[2] != "5678901235"


def test_there_are_no_steps_from_a_source_to_show(counter: Path, run_dragoman: Run) -> None:
    done = run_dragoman("translate", "run", "--steps", input="567\n", cwd=counter)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --steps: shows how a source is translated")


def test_what_learned_from_plain_text_may_learn_to_translate(counter: Path, run_dragoman: Run) -> None:
    assert load_model(counter / "run").recipe.data.plain
    (counter / "train.fwd").write_text("".join(f"{number}\n" for number in range(100, 600)))
    (counter / "train.rev").write_text("".join(f"{str(number)[::-1]}\n" for number in range(100, 600)))
    pairs = ["--source", "train.fwd", "--target", "train.rev", "--vocabulary", "11", "--out", "pairs"]
    assert run_dragoman("prepare", *pairs, cwd=counter).returncode == 0
    words = ["systems/gpt", "--data", "pairs", "--out", "tuned", "--from", "run"]
    done = run_dragoman("train", *words, "training.steps=2", "training.row_length=64", cwd=counter)
    assert done.returncode == 0, done.stderr
    tuned: Recipe = load_model(counter / "tuned").recipe
    assert not tuned.data.plain
    assert isinstance(tuned.model, LanguageModelConfig)
    assert tuned.model.width == 32
