"""The report on a test set, and how a model's card keeps it."""

import json
import math
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import dragoman
from dragoman.decoding.translator import Translator
from dragoman.evaluation.metrics import bleu, chrf, exact_match
from dragoman.evaluation.report import Report, evaluate, keep_in_card, perplexity
from dragoman.saved import find_model, read_card, verify


@pytest.fixture(scope="module")
def translator(reverser: Path) -> Translator:
    return dragoman.load(reverser, checkpoint="last", device="cpu")


@pytest.fixture
def folder(reverser: Path, tmp_path: Path) -> Path:
    """A copy of a run's last checkpoint, to write into."""
    return shutil.copytree(find_model(reverser, "last"), tmp_path / "model")


def lines(folder: Path, name: str, last: int) -> list[str]:
    return (folder / name).read_text().split("\n")[:last]


def test_a_report_holds_the_scores_of_the_translations_it_returns(translator: Translator, reversals: Path) -> None:
    sources, references = lines(reversals, "test.fwd", 31), lines(reversals, "test.rev", 31)
    references[7] = "0" + references[7]  # no model could know
    report, translations = evaluate(translator, sources, references, "recipe's hash", "test.fwd")
    assert translations == [each.text for each in translator.translate(sources)]
    assert report.bleu == bleu(translations, references)
    assert report.chrf == chrf(translations, references)
    assert report.exact_match == exact_match(translations, references) <= 30 / 31
    assert report.perplexity == perplexity(translator, sources, references)
    assert (report.sentences, report.recipe, report.test) == (31, "recipe's hash", "test.fwd")
    assert report.decoding == translator.decoding.model_dump() | {"engine": "torch"}
    assert (report.decoding["beam"], report.decoding["alpha"], report.decoding["extra"]) == (4, 0.6, 50)


def test_perplexity_is_exp_of_the_mean_cost_a_piece(translator: Translator, reversals: Path) -> None:
    sources, references = lines(reversals, "test.fwd", 17), lines(reversals, "test.rev", 17)
    scores = translator.score(sources, references)
    expected = math.exp(-sum(each.log_probability for each in scores) / sum(each.pieces for each in scores))
    assert perplexity(translator, sources, references) == pytest.approx(expected)
    assert 1 < expected < 2  # it has learned this
    # A blank in front and EOS come with every number's digits.
    assert sum(each.pieces for each in scores) == sum(len(reference) + 2 for reference in references)


def test_pairs_too_long_for_the_model_have_no_perplexity(translator: Translator) -> None:
    endless = "1" * (translator.longest + 1)
    alone = perplexity(translator, ["123"], ["321"])
    assert perplexity(translator, ["123", endless, "4"], ["321", "1", endless]) == alone
    assert perplexity(translator, [endless], ["1"]) is None


def test_a_summary_shows_every_score_with_its_signature(translator: Translator) -> None:
    report, _ = evaluate(translator, ["123", "45"], ["321", "54"], "abc", "my test")
    shown = report.summary()
    for expected in ("BLEU", "chrF", "exact match", "perplexity", "tok:13a", "nc:6", "my test", "beam 4", "abc"):
        assert expected in shown
    assert "2 sentences" in shown


def scored(translator: Translator) -> Report:
    return evaluate(translator, ["123", "45"], ["321", "54"], "abc", "my test")[0]


def test_a_card_keeps_the_report_and_the_folder_stays_whole(translator: Translator, folder: Path) -> None:
    before, report = read_card(folder), scored(translator)
    keep_in_card(folder, report)
    card = verify(folder)
    assert card["scores"] == [json.loads(json.dumps(asdict(report)))]
    assert {name: value for name, value in card.items() if name not in ("scores", "sha256")} == {
        name: value for name, value in before.items() if name != "sha256"
    }
    assert dragoman.load(folder, device="cpu").translate(["123"]) == translator.translate(["123"])


def test_a_second_evaluation_replaces_the_first_and_no_other(translator: Translator, folder: Path) -> None:
    first = scored(translator)
    others = [replace(first, test="other test"), replace(first, decoding={**first.decoding, "beam": 5})]
    for report in (first, *others, replace(first, exact_match=0.5)):
        keep_in_card(folder, report)
    found = verify(folder)["scores"]
    assert [(each["test"], each["decoding"]["beam"], each["exact_match"]) for each in found] == [
        ("other test", 4, first.exact_match),
        ("my test", 5, first.exact_match),
        ("my test", 4, 0.5),
    ]
