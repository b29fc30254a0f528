"""Drawing: what is kept, how often it is drawn, and what a draw says of itself."""

from functools import partial
from itertools import product
from math import log

import pytest
import torch

from dragoman.batch import BOS, EOS, PAD, UNK, Batch
from dragoman.decoding.sampling import Sampling, narrow, sample
from dragoman.decoding.scoring import score
from dragoman.errors import ConfigError
from dragoman.models.transformer import Transformer
from tests import oracles
from tests.oracles import PIECES, side

SOURCES = [[4, 5], [6], [5, 5, 6]]
peaked = partial(oracles.peaked, spread=0.75, layers=1)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def distributions(seed: int) -> torch.Tensor:
    """Log-probabilities of some pieces; the first is never written."""
    torch.manual_seed(seed)
    logits = 2 * torch.randn(13, 29)
    logits[:, 0] = -torch.inf
    return logits.log_softmax(-1)


@pytest.mark.parametrize(
    "how", [Sampling(), Sampling(0.5), Sampling(2.0), Sampling(top_k=5), Sampling(top_p=0.7), Sampling(0.7, 11, 0.9)]
)
def test_what_is_drawn_from_is_a_distribution(how: Sampling) -> None:
    probabilities = narrow(distributions(0), how)
    assert (probabilities >= 0).all()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(13))
    assert not probabilities[:, 0].any()


def test_nothing_asked_for_changes_nothing() -> None:
    given = distributions(1)
    for how in (Sampling(), Sampling(1.0, 29), Sampling(1.0, 1000), Sampling(top_p=1.0)):
        torch.testing.assert_close(narrow(given, how), given.exp())


@pytest.mark.parametrize("temperature", [0.25, 0.5, 2.0])
def test_temperature_raises_probabilities_to_its_inverse(temperature: float) -> None:
    given = distributions(2)
    powers = given.double().exp() ** (1 / temperature)
    found = narrow(given, Sampling(temperature))
    torch.testing.assert_close(found.double(), powers / powers.sum(-1, keepdim=True), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("top_k", [1, 2, 7])
def test_top_k_keeps_the_k_likeliest_in_proportion(top_k: int) -> None:
    given = distributions(3)
    found = narrow(given, Sampling(top_k=top_k))
    for row, probabilities in zip(given, found, strict=True):
        kept = probabilities.nonzero()[:, 0]
        assert sorted(kept.tolist()) == sorted(row.topk(top_k).indices.tolist())
        torch.testing.assert_close(probabilities[kept], row[kept].softmax(-1))


@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 0.99])
def test_top_p_keeps_the_smallest_set_that_reaches_p_in_proportion(top_p: float) -> None:
    given = distributions(4)
    found = narrow(given, Sampling(top_p=top_p))
    for row, probabilities in zip(given, found, strict=True):
        kept = probabilities.nonzero()[:, 0]
        shares = row[kept].exp()
        assert shares.sum() >= top_p - 1e-6
        assert shares.sum() - shares.min() < top_p + 1e-6  # one piece fewer would not do
        dropped = sorted(set(range(29)) - set(kept.tolist()))
        assert row[dropped].max() < row[kept].min()  # and no other set of this size reaches more
        torch.testing.assert_close(probabilities[kept], row[kept].softmax(-1))


@pytest.mark.parametrize("top_p", [0.0, 1e-30])
def test_the_likeliest_piece_is_always_kept(top_p: float) -> None:
    given = distributions(5)
    found = narrow(given, Sampling(top_p=top_p))
    torch.testing.assert_close(found, torch.nn.functional.one_hot(given.argmax(-1), 29).float())


def test_top_p_counts_shares_of_what_temperature_and_top_k_have_left() -> None:
    # Shares 1/2, 1/4, 1/8, 1/8: the two likeliest make 2/3 and 1/3 of their sum, so 0.6 keeps one of them and 0.7 two;
    # at temperature 1/2 all four are as 16 : 4 : 1 : 1, and 16/22 = 0.73 reaches 0.7 alone.
    given = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    counts = [
        narrow(given, how).count_nonzero().item()
        for how in (Sampling(1.0, 2, 0.6), Sampling(1.0, 2, 0.7), Sampling(0.5, None, 0.7), Sampling(1.0, None, 0.7))
    ]
    assert counts == [1, 2, 1, 2]


def test_a_seed_decides_the_draws() -> None:
    model = peaked(0)
    once, again, other = (
        sample([model], side(SOURCES), Sampling(), 3, 0.6, generator(seed), draws=11) for seed in (1, 1, 2)
    )
    assert once == again
    assert once != other


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", [Sampling(), Sampling(0.5, 3, 0.9)], ids=str)
def test_a_draw_carries_the_model_s_own_probability(seed: int, how: Sampling) -> None:
    models = [peaked(seed), peaked(seed + 100)]
    for source, draws in zip(SOURCES, sample(models, side(SOURCES), how, 3, 0.6, generator(seed), 13), strict=True):
        forced = score(models, [source] * 13, [each.ids for each in draws])
        assert [each.log_probability for each in draws] == pytest.approx(
            [each.log_probability for each in forced], rel=1e-5
        )
        assert [each.score for each in draws] == pytest.approx([each.normalised(0.6) for each in forced], rel=1e-5)
        assert [each.score for each in draws] == sorted((each.score for each in draws), reverse=True)


def test_draws_begin_with_their_prefix_and_count_it() -> None:
    model, prefixes = peaked(2), [[6, 4], [], [5, 6, 5, 4]]
    found = sample([model], side(SOURCES), Sampling(2.0), 3, 0.6, generator(0), 13, prefixes)
    for source, prefix, draws in zip(SOURCES, prefixes, found, strict=True):
        assert all(each.ids[: len(prefix)] == prefix for each in draws)
        forced = score([model], [source] * 13, [each.ids for each in draws])
        assert [each.log_probability for each in draws] == pytest.approx(
            [each.log_probability for each in forced], rel=1e-5
        )


def test_draws_keep_to_the_limit_and_to_real_pieces() -> None:
    for seed in range(3):
        found = sample([peaked(seed)], side(SOURCES), Sampling(temperature=5.0), 2, 0.6, generator(seed), draws=101)
        for source, draws in zip(SOURCES, found, strict=True):
            assert len(draws) == 101
            assert max(len(each.ids) for each in draws) == len(source) + 2
            assert not {PAD, UNK, BOS, EOS} & {piece for each in draws for piece in each.ids}


def outcomes(model: Transformer, source: list[int], most: int, how: Sampling) -> dict[tuple[int, ...], float]:
    """The probability of every output, by whole forward passes; at the limit the end is certain."""
    found = {}
    for ids in (ids for length in range(most + 1) for ids in product(PIECES, repeat=length)):
        with torch.no_grad():
            logits = model.project(model(Batch.of([source], [list(ids)])))[0].log_softmax(-1)
        logits[:, [PAD, UNK, BOS]] = -torch.inf
        steps = narrow(logits, how)
        total = 0.0 if len(ids) < most else -log(steps[most, EOS].item())
        total += sum(log(max(steps[place, piece].item(), 1e-30)) for place, piece in enumerate((*ids, EOS)))
        found[ids] = torch.tensor(total).exp().item()
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", [Sampling(), Sampling(temperature=0.7)], ids=str)
def test_outputs_are_drawn_as_often_as_they_are_likely(seed: int, how: Sampling) -> None:
    model, source, draws = peaked(seed), [4, 5], 3001
    expected = outcomes(model, source, most=2, how=how)
    assert sum(expected.values()) == pytest.approx(1, rel=1e-4)
    found = [tuple(each.ids) for each in sample([model], side([source]), how, 0, 0.6, generator(seed), draws)[0]]
    # Pearson's chi-square over the outputs expected at least five times, the others taken together: its mean is the
    # number of cells less one and its variance twice that; four deviations above the mean come once in ten thousand.
    often = [ids for ids, share in expected.items() if share * draws >= 5]
    assert len(often) >= 5
    cells = [(found.count(ids), expected[ids] * draws) for ids in often]
    cells.append((draws - sum(count for count, _ in cells), draws - sum(mean for _, mean in cells) + 1e-9))
    cells = [(count, mean) for count, mean in cells if mean >= 1]
    chi_square = sum((count - mean) ** 2 / mean for count, mean in cells)
    freedom = len(cells) - 1
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5


def test_sentences_of_a_batch_are_drawn_independently() -> None:
    same = sample([peaked(1)], side([[4, 5]] * 5), Sampling(temperature=3.0), 5, 0.6, generator(0), draws=7)
    assert len({tuple(tuple(each.ids) for each in draws) for draws in same}) == 5


@pytest.mark.parametrize(
    "words",
    [
        {"temperature": 0.0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": 0},
        {"top_k": -3},
        {"top_p": -0.1},
        {"top_p": 1.1},
        {"top_p": float("nan")},
    ],
)
def test_what_cannot_be_drawn_from_is_refused_by_name(words: dict[str, float]) -> None:
    (name,) = words
    with pytest.raises(ConfigError, match=name):
        Sampling(**words)


def test_the_coldest_temperature_draws_the_likeliest() -> None:
    given = distributions(2)
    probabilities = narrow(given, Sampling(1e-38))
    torch.testing.assert_close(probabilities.max(-1).values, torch.ones(13))
    assert torch.equal(probabilities.argmax(-1), given.argmax(-1))
