"""The models that come along: what they say to everyday sentences, how large they are, how they are chosen."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import dragoman
from dragoman.data.corpora import read_text_pairs
from dragoman.evaluation.metrics import plain_bleu
from dragoman.everyday.find import everyday_models, find_everyday
from dragoman.saved import verify

ROOT = Path(__file__).parents[1]
LANGUAGES = ("de", "fr")
MULTI30K = ROOT.parent / "shared" / "data" / "multi30k"


def sentences() -> list[tuple[str, dict[str, set[str]]]]:
    """English sentences, and for each language what a reader accepts as their translation."""
    found = []
    for line in (Path(__file__).parent / "everyday.tsv").read_text(encoding="utf-8").splitlines():
        source, *accepted = line.split("\t")
        found.append((source, {name: set(each.split(" | ")) for name, each in zip(LANGUAGES, accepted, strict=True)}))
    return found


def bare(text: str) -> str:
    """Without how it ends, and with one kind of apostrophe."""
    return text.replace("\u2019", "'").rstrip(".!? \u202f\xa0")


def test_there_are_a_hundred_sentences_with_answers_as_they_are_compared() -> None:
    found = sentences()
    assert len({source for source, _ in found}) == len(found) == 100
    assert all(bare(each) == each for _, accepted in found for name in LANGUAGES for each in accepted[name])


@pytest.mark.parametrize("language", LANGUAGES)
def test_nine_of_ten_everyday_sentences_are_translated_acceptably(language: str) -> None:
    found = sentences()
    answers = dragoman.load(find_everyday(language), device="cpu").translate([source for source, _ in found])
    wrong = {
        source: answer.text
        for (source, accepted), answer in zip(found, answers, strict=True)
        if bare(answer.text) not in accepted[language]
    }
    assert len(wrong) <= 10, wrong


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_model_is_whole_small_and_says_what_it_learned_from(language: str) -> None:
    folder = everyday_models()[language]
    card = verify(folder)
    assert card["languages"] == ["en", language]
    assert "Tatoeba (CC BY 2.0" in card["about"]
    assert "Multi30k" in card["about"]
    assert sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) < 16_000_000


@pytest.mark.slow
@pytest.mark.skipif(not MULTI30K.is_dir(), reason="Multi30k is not beside this checkout")
@pytest.mark.parametrize(("language", "least"), [("de", 34), ("fr", 50)])
def test_captions_are_translated_well(language: str, least: float) -> None:
    files = (MULTI30K / f"test_2016_flickr.{name}.xz" for name in ("en", language))
    sources, references = read_text_pairs(*files)
    answers = dragoman.load(find_everyday(language), device="cpu").translate(sources)
    assert plain_bleu([answer.text for answer in answers], references) >= least


def test_without_a_model_the_one_that_comes_along_translates(
    run_dragoman: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    asked = "Hello, how are you?\n\nI am hungry.\n"
    for words, expected in (
        ([], "Hallo, wie geht es dir?\n\nIch habe Hunger.\n"),
        (["--to", "FR"], "Bonjour, comment allez-vous\u202f?\n\nJ'ai faim.\n"),
    ):
        answered = run_dragoman("translate", "--engine", "torch", *words, input=asked)
        assert (answered.returncode, answered.stdout) == (0, expected)
        assert "comes along" in answered.stderr


def test_a_language_that_does_not_come_along_is_told(
    run_dragoman: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    for words, said in (
        (["--to", "es"], "no model into 'es' comes along"),
        (["--to", ""], "no model into '' comes along"),
        (["--with", find_everyday()], "need a MODEL"),
        ([find_everyday(), "--to", "fr"], "has no use"),
    ):
        answered = run_dragoman("translate", *words, input="Hello\n")
        assert (answered.returncode, answered.stdout) == (2, "")
        assert said in answered.stderr
        assert "Traceback" not in answered.stderr
