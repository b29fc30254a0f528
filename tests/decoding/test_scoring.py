"""Forced scoring: the sum by hand, the order, the groups."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.batch import EOS, Batch
from dragoman.decoding.scoring import FEWEST_TOKENS, Score, group_by_length, score
from dragoman.models.transformer import Transformer, TransformerConfig

VOCABULARY = 23
SOURCES = [[5, 6, 7, 8, 9], [10], [11, 12], [13, 14, 15]]
TARGETS = [[12, 13, 14], [15, 16, 17, 18, 19, 20, 21], [22], []]


def make(seed: int) -> Transformer:
    torch.manual_seed(seed)
    config = TransformerConfig(layers=2, width=11, hidden=17, heads=3, key_width=5, value_width=7)
    return Transformer(config, VOCABULARY).eval()


def totals(scores: list[Score]) -> list[float]:
    return [each.log_probability for each in scores]


def test_a_score_is_the_sum_over_the_pieces_and_the_end() -> None:
    model = make(0)
    found = score([model], SOURCES, TARGETS)
    assert [each.pieces for each in found] == [len(target) + 1 for target in TARGETS]
    for source, target, each in zip(SOURCES, TARGETS, found, strict=True):
        with torch.inference_mode():
            steps = model.project(model(Batch.of([source], [target])))[0].log_softmax(-1)
        expected = sum(steps[place, piece].item() for place, piece in enumerate([*target, EOS]))
        assert each.log_probability == pytest.approx(expected, rel=1e-5)


def test_the_probabilities_of_all_next_pieces_and_the_end_make_one() -> None:
    # P(nothing) + sum over first pieces of P(the piece and anything behind it) = 1, one step deep.
    model = make(1)
    whole = score([model], [[5, 6]] * VOCABULARY, [[piece] for piece in range(1, VOCABULARY)] + [[]])
    with torch.inference_mode():
        firsts = [
            model.project(model(Batch.of([[5, 6]], [[piece]])))[0, 1].log_softmax(-1)[EOS].item()
            for piece in range(1, VOCABULARY)
        ]
    begun = [each - end for each, end in zip(totals(whole), firsts, strict=False)]  # P(piece) = P(piece, end) / P(end)
    shares = torch.tensor([*begun]).exp()
    # Every first piece but padding (never a label) and the end, which is the output of no pieces.
    with torch.inference_mode():
        padding = model.project(model(Batch.of([[5, 6]], [[]])))[0, 0].softmax(-1)[0].item()
    assert shares.sum().item() + padding == pytest.approx(1, abs=1e-5)
    assert shares[EOS - 1].item() == pytest.approx(torch.tensor(whole[-1].log_probability).exp().item(), rel=1e-4)


@pytest.mark.parametrize("tokens_at_once", [1, 13, 29, 8192])
def test_company_changes_no_score_and_answers_keep_their_order(tokens_at_once: int) -> None:
    model = make(2)
    alone = [score([model], [source], [target])[0] for source, target in zip(SOURCES, TARGETS, strict=True)]
    together = score([model], SOURCES, TARGETS, tokens_at_once)
    assert totals(together) == pytest.approx(totals(alone), rel=1e-5)
    assert [each.pieces for each in together] == [each.pieces for each in alone]


def test_an_ensemble_s_score_is_the_mean_of_its_models_scores() -> None:
    # The mean of sums of log-probabilities is the sum of their means.
    models = [make(seed) for seed in (3, 4, 5)]
    apart = [totals(score([model], SOURCES, TARGETS)) for model in models]
    expected = [sum(each) / 3 for each in zip(*apart, strict=True)]
    assert totals(score(models, SOURCES, TARGETS)) == pytest.approx(expected, rel=1e-5)
    assert totals(score(models[:1] * 2, SOURCES, TARGETS)) == pytest.approx(apart[0], rel=1e-5)


def test_nothing_has_no_scores() -> None:
    assert score([make(0)], [], []) == []


def test_as_many_targets_as_sources_are_needed() -> None:
    with pytest.raises(ValueError, match="shorter"):
        score([make(0)], SOURCES, TARGETS[:2])


@settings(deadline=None)
@given(st.lists(st.integers(0, 97), max_size=31), st.integers(1, 307))
def test_groups_hold_every_sentence_once_longest_first_and_fit(lengths: list[int], tokens_at_once: int) -> None:
    groups = list(group_by_length(lengths, tokens_at_once))
    flat = [number for group in groups for number in group]
    assert sorted(flat) == list(range(len(lengths)))
    assert [lengths[number] for number in flat] == sorted(lengths, reverse=True)
    for number, group in enumerate(groups):
        longest = max(FEWEST_TOKENS, lengths[group[0]])
        assert len(group) == 1 or len(group) * longest <= tokens_at_once
        if number > 0:  # no group was closed while there was room for the next sentence
            before = groups[number - 1]
            assert (len(before) + 1) * max(FEWEST_TOKENS, lengths[before[0]]) > tokens_at_once
