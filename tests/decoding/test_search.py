"""Beam search on tiny models with random weights: order, limits, prefixes, ensembles."""

from itertools import pairwise

import pytest
import torch

from dragoman.batch import BOS, PAD, UNK, Side
from dragoman.decoding import search as search_module
from dragoman.decoding.scoring import score
from dragoman.decoding.search import NEVER, Ensemble, Hypothesis, follow, output_limits, search
from tests.oracles import PIECES, model_that_always_says, peaked, side

SOURCES = [[4, 5], [6], [5, 5, 6, 4, 4]]
each_seed = pytest.mark.parametrize("seed", range(3))


def agree(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[each.ids for each in best] for best in found] == [[each.ids for each in best] for best in expected]
    for some, others in zip(found, expected, strict=True):
        assert [each.score for each in some] == pytest.approx([each.score for each in others], rel=1e-5)


@each_seed
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_the_n_best_are_sorted_distinct_and_finished(seed: int, alpha: float) -> None:
    for best in search([peaked(seed)], side(SOURCES), beam=7, alpha=alpha, extra=3, n_best=5):
        assert len(best) == 5
        assert all(one.score >= next.score for one, next in pairwise(best))
        assert len({tuple(each.ids) for each in best}) == 5
        for each in best:
            assert set(each.ids) <= set(PIECES)
            assert each.log_probability <= 0
            assert each.log_probability == pytest.approx(each.score * ((5 + len(each.ids) + 1) / 6) ** alpha, rel=1e-5)


@pytest.mark.parametrize("pieces", [17, 64 * 5, 64 * 5 + 1, 64 * 17 + 13, 4099])
@pytest.mark.parametrize("count", [1, 2, 5, 17])
def test_the_largest_are_those_that_topk_finds(pieces: int, count: int) -> None:
    torch.manual_seed(0)
    values = torch.randn(7, pieces)
    values[1, :-1] = -torch.inf
    values[2, 3] = -torch.inf
    best, columns = search_module.largest(values, count)
    assert torch.equal(best, values.topk(count).values)
    assert torch.equal(best, values.gather(1, columns))
    assert all(len(set(row)) == count for row in columns.tolist())


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_log_probabilities_taken_some_rows_at_a_time_are_those_of_all(precision: torch.dtype) -> None:
    for rows in (0, 1, 31, 67):
        logits = torch.randn(rows, 41).to(precision)
        assert torch.equal(search_module.log_softmax(logits), logits.float().log_softmax(-1))


@each_seed
@pytest.mark.parametrize("beam", [1, 3, 11])
def test_a_score_is_what_forced_scoring_says(seed: int, beam: int) -> None:
    model, alpha = peaked(seed), 0.6
    for source, best in zip(SOURCES, search([model], side(SOURCES), beam, alpha, extra=3, n_best=beam), strict=True):
        forced = score([model], [source] * len(best), [each.ids for each in best])
        assert [each.log_probability for each in best] == pytest.approx(
            [each.log_probability for each in forced], rel=1e-5
        )
        assert [each.score for each in best] == pytest.approx([each.normalised(alpha) for each in forced], rel=1e-5)


@each_seed
def test_more_alternatives_begin_with_fewer(seed: int) -> None:
    model = peaked(seed)
    few, many = (search([model], side(SOURCES), beam=7, alpha=0.6, extra=3, n_best=n) for n in (1, 5))
    agree(few, [best[:1] for best in many])


@each_seed
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_company_and_its_order_change_nothing(seed: int, beam: int) -> None:
    model = peaked(seed)
    together = search([model], side(SOURCES), beam, alpha=0.6, extra=3, n_best=beam)
    for number, source in enumerate(SOURCES):
        agree([together[number]], search([model], side([source]), beam, alpha=0.6, extra=3, n_best=beam))
    backwards = search([model], side(SOURCES[::-1]), beam, alpha=0.6, extra=3, n_best=beam)
    agree(backwards[::-1], together)


@each_seed
def test_a_wider_source_rectangle_changes_no_limit(seed: int) -> None:
    model = peaked(seed)
    short = side(SOURCES[:1])
    wide = Side(*(torch.nn.functional.pad(tensor, (0, 5)) for tensor in vars(short).values()))
    assert output_limits([model], short, 3).tolist() == output_limits([model], wide, 3).tolist() == [2 + 1 + 3]
    agree(
        search([model], wide, beam=3, alpha=1.0, extra=3, n_best=3),
        search([model], short, beam=3, alpha=1.0, extra=3, n_best=3),
    )


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("extra", [0, 1, 4])
def test_an_output_is_at_most_so_many_pieces_longer_than_its_source(beam: int, extra: int) -> None:
    # An end token of one in a million: every output is as long as it may be.
    model = model_that_always_says([1e-9, 1e-9, 1e-9, 1e-6, 0.4, 0.35, 0.25])
    for source, best in zip(SOURCES, search([model], side(SOURCES), beam, 1.0, extra), strict=True):
        assert len(best[0].ids) == len(source) + extra


def test_no_output_is_longer_than_the_shortest_model_has_positions() -> None:
    models = [model_that_always_says([1e-9, 1e-9, 1e-9, 1e-6, 0.4, 0.35, 0.25], longest=longest) for longest in (7, 19)]
    assert output_limits(models, side(SOURCES), 50).tolist() == [7, 7, 7]
    for best in search(models, side(SOURCES), beam=3, alpha=1.0, extra=50, n_best=3):
        assert [len(each.ids) for each in best] == [6, 6, 6]


def test_who_is_done_at_the_last_position_may_go_on_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_that_always_says([1e-9, 1e-9, 1e-9, 1e-6, 0.4, 0.35, 0.25], longest=7)
    expected = search([model], side(SOURCES), 3, 1.0, 50)
    monkeypatch.setattr(search_module, "STEPS_BETWEEN_QUESTIONS", {"cpu": 11})
    agree(search([model], side(SOURCES), 3, 1.0, 50), expected)


def test_a_sure_model_says_one_thing_and_its_alternatives_come_in_order() -> None:
    # Always a: 0.5, b: 0.25, c: 0.15, end: 0.1. Without a length penalty the shortest output is the likeliest:
    # "" 0.1; then "a" 0.05, "b" and "aa" tie at 0.025 and "c" has 0.015.
    model = model_that_always_says([1e-9, 1e-9, 1e-9, 0.1, 0.5, 0.25, 0.15])
    best = search([model], side([[4, 5]]), beam=11, alpha=0.0, extra=0, n_best=5)[0]
    assert [each.ids for each in best[:2]] == [[], [4]]
    assert {tuple(each.ids) for each in best[2:4]} == {(5,), (4, 4)}
    assert best[4].ids == [6]
    expected = torch.tensor([0.1, 0.05, 0.025, 0.025, 0.015]).log().tolist()
    assert [each.score for each in best] == pytest.approx(expected, rel=1e-5)


def test_what_may_not_be_written_never_is_however_likely() -> None:
    assert list(range(7))[NEVER] == [PAD, UNK, BOS]
    model = model_that_always_says([0.3, 0.3, 0.3, 0.02, 0.04, 0.03, 0.01])
    for beam in (1, 3):
        for best in search([model], side(SOURCES), beam, 1.0, extra=3, n_best=beam):
            assert all(set(each.ids) <= set(PIECES) for each in best)


def test_fewer_outputs_than_alternatives_asked_for_is_no_failure() -> None:
    # A limit of two pieces, the end token included, leaves "", "a", "b" and "c".
    best = search([peaked(0)], side([[4]]), beam=11, alpha=0.6, extra=0, n_best=11)[0]
    assert sorted(each.ids for each in best) == [[], [4], [5], [6]]


@each_seed
def test_a_prefix_is_written_first_and_counts_in_the_score(seed: int) -> None:
    model = peaked(seed)
    prefixes = [[6, 4], [], [5, 6, 5]]
    found = search([model], side(SOURCES), beam=3, alpha=0.6, extra=3, n_best=3, prefixes=prefixes)
    for source, prefix, best in zip(SOURCES, prefixes, found, strict=True):
        assert all(each.ids[: len(prefix)] == prefix for each in best)
        forced = score([model], [source] * len(best), [each.ids for each in best])
        assert [each.score for each in best] == pytest.approx([each.normalised(0.6) for each in forced], rel=1e-5)


@each_seed
def test_a_prefix_of_another_sentence_changes_nothing(seed: int) -> None:
    model = peaked(seed)
    free = search([model], side(SOURCES), beam=3, alpha=0.6, extra=3)
    for prefixes in ([[], [], []], [[6, 4, 5], [], []]):
        agree(search([model], side(SOURCES), 3, 0.6, 3, prefixes=prefixes)[1:], free[1:])


@pytest.mark.parametrize("beam", [1, 3])
def test_a_prefix_stays_with_its_sentence_when_others_are_done(beam: int) -> None:
    # The end has 0.97: a sentence that is free ends at once and leaves, while the prefixes of the others go on.
    model = model_that_always_says([1e-9, 1e-9, 1e-9, 0.97, 0.01, 0.01, 0.01])
    prefixes = [[], [5, 6, 5, 4], [], [6, 6]]
    found = search([model], side([[4, 5], [6], [4], [5, 5, 6]]), beam, 0.0, extra=5, prefixes=prefixes)
    assert [best[0].ids for best in found] == prefixes


@each_seed
def test_the_beginning_of_the_best_translation_as_a_prefix_leads_back_to_it(seed: int) -> None:
    model = peaked(seed)
    # Beam 81 holds every output of at most four pieces, so a prefix can lose nothing.
    free = search([model], side([[4, 5]]), beam=81, alpha=1.0, extra=2)
    for cut in range(len(free[0][0].ids) + 1):
        agree(search([model], side([[4, 5]]), 81, 1.0, 2, prefixes=[free[0][0].ids[:cut]]), free)


def test_where_there_is_no_source_the_limit_counts_from_the_prefix() -> None:
    never_ends = model_that_always_says([1e-9, 1e-9, 1e-9, 1e-9, 0.5, 0.3, 0.2])
    prefixes = [[5, 6, 5], [], [6]]
    found = search([never_ends], side([[], [], [4, 4, 4, 4]]), beam=1, alpha=0.0, extra=2, prefixes=prefixes)
    assert [len(best[0].ids) for best in found] == [5, 2, 6]


def test_a_prefix_may_be_longer_than_the_limit_but_then_nothing_follows_it() -> None:
    best = search([peaked(1)], side([[4]]), beam=3, alpha=0.6, extra=0, prefixes=[[5, 6, 5, 6, 5]])[0]
    assert [each.ids for each in best] == [[5, 6, 5, 6, 5]]


@each_seed
def test_an_ensemble_of_a_model_with_itself_is_the_model(seed: int) -> None:
    model = peaked(seed)
    alone = search([model], side(SOURCES), beam=3, alpha=0.6, extra=3, n_best=3)
    agree(search([model, model, model], side(SOURCES), beam=3, alpha=0.6, extra=3, n_best=3), alone)


def test_models_of_an_ensemble_may_be_of_different_shapes() -> None:
    other = peaked(7, width=13, heads=1, key_width=None, value_width=None, layers=1, norm="pre", positions="none")
    models = [peaked(3), other]
    for source, best in zip(SOURCES, search(models, side(SOURCES), 3, 0.6, 3, n_best=3), strict=True):
        forced = score(models, [source] * 3, [each.ids for each in best])
        assert [each.log_probability for each in best] == pytest.approx(
            [each.log_probability for each in forced], rel=1e-5
        )


@each_seed
def test_an_ensemble_s_step_is_the_mean_of_its_models_log_probabilities(seed: int) -> None:
    models = [peaked(seed), peaked(seed + 100)]
    tokens = torch.full((len(SOURCES) * 2,), BOS)
    with torch.inference_mode():
        together, *apart = (Ensemble.start(some, side(SOURCES), 2).step(tokens) for some in (models, *zip(models)))
    torch.testing.assert_close(together, (apart[0] + apart[1]) / 2)
    torch.testing.assert_close(apart[0].exp().sum(-1), torch.ones(len(tokens)))


def test_following_takes_the_chosen_rows_of_everything_in_a_state() -> None:
    state = {"position": torch.arange(5), "keys": torch.randn(5, 2, 3)}
    rows = torch.tensor([4, 4, 0])
    followed = follow(state, rows)
    assert followed.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(followed[name], tensor[rows])


@pytest.mark.parametrize("beam", [1, 3])
def test_a_broken_model_writes_nothing_for_no_longer_than_a_whole_one(beam: int) -> None:
    model = model_that_always_says([1e-9, 1e-9, 1e-9, 0.1, 0.4, 0.3, 0.2])
    with torch.no_grad():
        model.target_embedding.weight.fill_(torch.nan)
    assert search([model], side(SOURCES), beam, 0.6, extra=3) == [[]] * len(SOURCES)
