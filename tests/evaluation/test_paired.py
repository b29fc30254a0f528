"""Paired bootstrap: the same draws for every translation, and the score that is reported elsewhere."""

import random

import pytest

from dragoman.evaluation.metrics import plain_bleu
from dragoman.evaluation.paired import ResampledBleu

DRAW = random.Random(0)
REFERENCES = [" ".join(DRAW.choices("abcdefg", k=11)) for _ in range(53)]


def spoiled(share: float, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [" ".join("x" if draw.random() < share else word for word in line.split()) for line in REFERENCES]


def test_the_score_is_bleu() -> None:
    assert ResampledBleu(spoiled(0.2), REFERENCES).score == pytest.approx(plain_bleu(spoiled(0.2), REFERENCES))


def test_a_translation_is_no_better_than_itself() -> None:
    one, again = (ResampledBleu(spoiled(0.2), REFERENCES) for _ in range(2))
    assert one.minus(again) == (0, 0, 0)
    assert not one.minus(again).is_significant


def test_what_is_clearly_worse_is_told_from_what_may_be_chance() -> None:
    good, alike, bad = (ResampledBleu(spoiled(*how), REFERENCES) for how in ((0.1, 1), (0.1, 2), (0.3, 3)))
    lost = bad.minus(good)
    assert lost.low < lost.bleu < lost.high < 0
    assert lost.is_significant
    assert good.minus(bad).bleu == -lost.bleu
    assert not alike.minus(good).is_significant


def test_pairing_tells_more_than_two_intervals() -> None:
    # One line worse: alone each score varies by far more than the two differ.
    good = spoiled(0.2)
    worse = [*good[:-1], "x"]
    first, second = ResampledBleu(good, REFERENCES), ResampledBleu(worse, REFERENCES)
    assert second.minus(first).high <= 0
    assert second.drawn.max() > first.drawn.min()
