"""docs/guides/other-tasks.md: its spelling corrector is trained as it stands, its keys are keys and do what it says."""

import re
import shlex
from pathlib import Path

import pytest

import dragoman
from dragoman.data.store import open_data
from dragoman.recipe import read_recipe
from tests.system.conftest import Call

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "other-tasks.md").read_text(encoding="utf-8")
SHORT = [
    "training.steps=1",
    "training.samples=0",
    "model.width=16",
    "model.hidden=16",
    "model.heads=2",
    "model.layers=1",
]


def section(title: str) -> str:
    return GUIDE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def follow(call: Call, command: str, *more: str) -> str:
    """Run a command of the guide, with what makes it short; without its redirections."""
    program, *words = shlex.split(re.split(r" [<>]", command)[0])
    assert program == "dragoman"
    ended = call(*words, *more)
    assert ended.code == 0, ended.err
    return ended.out + ended.err


@pytest.mark.slow
def test_the_spelling_corrector_mends_what_it_never_saw(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (script,) = blocks(section("Spelling"), "python")
    exec(compile(script, "other-tasks.md", "exec"), {})
    wrong, right = ((tmp_path / f"test.{suffix}").read_text().split() for suffix in ("wrong", "right"))
    learned = set((tmp_path / "train.wrong").read_text().split())
    assert len(wrong) == 300
    assert not learned & set(wrong)
    assert set(right) <= learned  # words that are right are there too, and stay
    prepare, train, evaluate, translate = blocks(section("Spelling"), "sh")[0].splitlines()
    for command in (prepare, train):
        follow(call, command)
    assert translate == "dragoman translate runs/spelling < test.wrong > test.out"
    report = follow(call, evaluate)
    share = re.search(r"exact match +(\d\.\d+)", report)
    assert share
    assert "more than nine in ten" in section("Spelling")
    assert float(share[1]) > 0.9
    assert re.search(r"^BLEU +0\.00", report, flags=re.MULTILINE)  # as the guide warns of single words
    kept = dragoman.load("runs/spelling").translate(["weird", "friend"])
    assert [each.text for each in kept] == ["weird", "friend"]


def test_the_keys_of_the_summaries_let_long_texts_through(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [f"w{number % 89}" for number in range(199)]  # about 600 pieces
    texts = [" ".join(words[start:] + words[:start]) for start in range(11)]
    (tmp_path / "train.text").write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "train.summary").write_text("".join(f"{text[:14]}\n" for text in texts))
    prepare, train = blocks(section("Summaries"), "sh")[0].splitlines()
    prepare = prepare.replace("--vocabulary 16000", "--vocabulary 13")
    follow(call, prepare)
    data = open_data(Path("data/summaries"))
    assert len(data.train) == len(texts)
    assert min(len(data.train.pair(number)[0]) for number in range(len(texts))) > 500
    said = follow(call, train, *SHORT)
    assert "left out" not in said
    translator = dragoman.load("runs/summaries")
    assert max(map(len, translator.encode(texts))) <= translator.decoding.longest  # nothing is taken in parts
    # With the keys as they stand the same texts do not come through.
    plain = re.sub(r" data\.\w+=\S+", "", prepare).replace("data/summaries", "data/plain")
    ended = call(*shlex.split(plain)[1:])
    assert (ended.code, "11 ratio" in ended.err) == (2, True)


def test_every_key_of_the_guide_is_a_key() -> None:
    settings = re.findall(r"\b((?:data|model|training|decoding)\.\w+=[\w.-]+\w)", GUIDE)
    assert len(settings) > 15
    for setting in settings:
        read_recipe("base", [setting])
    base = read_recipe("base").model_dump()
    table = section("What all have in common").split("| key |")[1]
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \| (?:\D+ )?([\d.]+)[: ]", table, flags=re.MULTILINE)
    assert len(rows) == 7
    for part, key, value in rows:
        assert float(value) == base[part][key], key
