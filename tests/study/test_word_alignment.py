"""IBM Model 1 finds a dictionary from nothing but pairs of sentences."""

import random

import numpy as np
import pytest

from dragoman.study.word_alignment import NONE, _learn, align

WORDS = 43


def test_a_dictionary_is_found_whatever_the_order_of_the_words() -> None:
    draw = random.Random(0)
    meaning = draw.sample(range(WORDS), WORDS)
    sources = [draw.sample(range(WORDS), draw.randint(2, 7)) for _ in range(400)]
    orders = [draw.sample(range(len(source)), len(source)) for source in sources]
    targets = [[meaning[source[place]] for place in order] for source, order in zip(sources, orders, strict=True)]
    expected = [{(place, number) for number, place in enumerate(order)} for order in orders]
    assert align(sources, targets) == expected


def test_what_has_no_counterpart_is_linked_with_nothing() -> None:
    draw = random.Random(1)
    filler = WORDS  # stands in every target sentence, whatever the source
    sources = [draw.sample(range(WORDS), draw.randint(2, 5)) for _ in range(400)]
    links = align(sources, [[*source, filler] for source in sources])
    assert links == [{(place, place) for place in range(len(source))} for source in sources]


def test_a_piece_that_stands_for_two_is_linked_with_one_of_them() -> None:
    draw = random.Random(3)
    targets = [draw.sample(range(WORDS), draw.randint(2, 5)) for _ in range(400)]
    sources = [[half for word in target for half in (word, WORDS + word)] for target in targets]
    assert [len(links) for links in align(sources, targets)] == list(map(len, targets))


def test_of_equal_pieces_the_nearer_to_the_diagonal_is_taken() -> None:
    sources = [[3, 5, 3], [5, 7], [3, 7], [7, 5, 3]]
    assert align(sources, sources)[0] == {(0, 0), (1, 1), (2, 2)}


def test_expectation_and_maximisation_worked_by_hand() -> None:
    # One round from even chances: each target piece is shared among none, and the source pieces of its sentence.
    sources, targets = [[1, 2], [1]], [[11, 12], [11]]
    learned = _learn([[NONE, *source] for source in sources], targets, rounds=1)
    # p(11 | 1) = (1/3 + 1/2) / (1/3 + 1/3 + 1/2) = 5/7, p(12 | 1) = 2/7; the same for none; 2 stands with both once.
    assert learned.tolist() == pytest.approx([5 / 7, 2 / 7, 5 / 7, 2 / 7, 1 / 2, 1 / 2, 5 / 7, 5 / 7])


def test_more_rounds_make_the_text_likelier() -> None:
    draw = random.Random(2)
    pairs = [([NONE, *draw.choices(range(7), k=3)], draw.choices(range(7), k=5)) for _ in range(50)]
    sources, targets = map(list, zip(*pairs, strict=True))
    likelihoods = []
    for rounds in range(1, 7):
        tables = _learn(sources, targets, rounds).reshape(50, 4, 5)
        likelihoods.append(float(np.log(tables.sum(1)).sum()))
    assert likelihoods == sorted(likelihoods)
    assert likelihoods[0] < likelihoods[-1]
