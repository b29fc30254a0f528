"""Scores are sacreBLEU's own, with signature and interval."""

import random
from statistics import fmean, stdev

import pytest
import sacrebleu

from dragoman.evaluation import metrics
from dragoman.evaluation.metrics import bleu, chrf, exact_match, left_empty, plain_bleu

WORDS = ["The", "cat", "sat,", "on", "the", "mat.", "Ein", "Hündchen", "lag", "(schnell)", "3.5", "km"]


def corpus(seed: int, lines: int = 61) -> tuple[list[str], list[str]]:
    """References, and hypotheses in which every fifth word or so is wrong."""
    draw = random.Random(seed)
    references = [draw.choices(WORDS, k=draw.randint(5, 13)) for _ in range(lines)]
    hypotheses = [[draw.choice(WORDS) if draw.random() < 0.2 else word for word in line] for line in references]
    return [" ".join(line) for line in hypotheses], [" ".join(line) for line in references]


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_sacrebleu(seed: int) -> None:
    hypotheses, references = corpus(seed)
    expected = sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert 10 < expected < 90
    assert bleu(hypotheses, references, resamples=101).score == pytest.approx(expected)
    assert plain_bleu(hypotheses, references) == pytest.approx(expected)
    expected = sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert chrf(hypotheses, references, resamples=101).score == pytest.approx(expected)


def test_a_line_that_says_something_may_not_become_nothing() -> None:
    assert left_empty(["a", "a", "a", "", " "], ["b", "", " ", "", "b"]) == 2


def test_case_counts() -> None:
    hypotheses, references = corpus(0)
    lowered = [line.lower() for line in hypotheses]
    for metric in (bleu, chrf):
        assert metric(lowered, references, resamples=2).score < metric(hypotheses, references, resamples=2).score


def test_a_signature_says_how_it_was_measured() -> None:
    hypotheses, references = corpus(1)
    parts = bleu(hypotheses, references, resamples=101).signature.split("|")
    assert {"nrefs:1", "bs:101", "case:mixed", "tok:13a", "smooth:exp"} <= set(parts)
    assert f"version:{sacrebleu.__version__}" in parts
    parts = chrf(hypotheses, references, resamples=101).signature.split("|")
    assert {"nrefs:1", "bs:101", "case:mixed", "nc:6", "nw:0"} <= set(parts)


@pytest.mark.parametrize("seed", range(3))
def test_the_interval_holds_the_score_and_narrows_with_more_text(seed: int) -> None:
    few, many = corpus(seed, lines=61), corpus(seed, lines=61 * 9)
    for metric in (bleu, chrf):
        low, high = metric(*few).interval
        assert low < metric(*few).score < high
        smaller = metric(*many, resamples=301).interval
        # Nine times the text, a third of the spread: between a half and a fifth, say.
        assert (high - low) / 5 < smaller[1] - smaller[0] < (high - low) / 2


def test_the_interval_holds_95_of_100_scores_of_text_drawn_anew() -> None:
    hypotheses, references = corpus(4)
    draw, scores = random.Random(0), []
    for _ in range(101):
        lines = draw.choices(range(len(references)), k=len(references))
        scores.append(plain_bleu([hypotheses[n] for n in lines], [references[n] for n in lines]))
    mean, deviation = fmean(scores), stdev(scores)
    # 95 % of a normal variable lie within 1.96 deviations; of 101 draws the deviation is known to 7 %, and the ends
    # of the interval with it to 0.2 deviations: twice that is allowed.
    low, high = bleu(hypotheses, references).interval
    assert low == pytest.approx(mean - 1.96 * deviation, abs=0.4 * deviation)
    assert high == pytest.approx(mean + 1.96 * deviation, abs=0.4 * deviation)


def test_a_perfect_translation_scores_a_hundred_without_doubt() -> None:
    _, references = corpus(2)
    for metric in (bleu, chrf):
        found = metric(references, references)
        assert [found.score, *found.interval] == pytest.approx([100, 100, 100])


def test_intervals_are_the_same_every_time() -> None:
    hypotheses, references = corpus(3)
    assert bleu(hypotheses, references) == bleu(hypotheses, references)


def test_exact_match_is_the_share_of_lines_that_are_right_to_the_last_character() -> None:
    references = ["a b", "c", "", "d e f", "g"]
    assert exact_match(references, references) == 1.0
    assert exact_match(["a b", "c ", "", "D e f", "h"], references) == pytest.approx(2 / 5)
    assert exact_match(["", "a b", "c", "g", "d e f"], references) == 0.0


def test_an_interval_stays_within_what_a_score_can_be() -> None:
    hypotheses, references = corpus(5, lines=7)
    for metric in (bleu, chrf):
        assert metric(references, references, resamples=101).interval[1] <= 100
        assert metric(["xyz"] * 7, references, resamples=101).interval[0] >= 0
    nearly = [*references[:6], hypotheses[6]]
    assert bleu(nearly, references).interval[1] <= 100


def test_a_huge_test_set_is_drawn_from_less_often_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "RESAMPLED_LINES", 61 * 37)
    assert "bs:37" in chrf(*corpus(6)).signature.split("|")
    assert "bs:29" in chrf(*corpus(6), resamples=29).signature.split("|")
    monkeypatch.setattr(metrics, "RESAMPLED_LINES", 61)
    assert f"bs:{metrics.FEWEST_RESAMPLES}" in chrf(*corpus(6)).signature.split("|")
