"""Soft and hard attention over cells (Xu et al. 2015), by what they are."""

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from dragoman.batch import BOS, EOS, PAD
from dragoman.models.captioner import (
    Captioner,
    CaptionerConfig,
    Glimpses,
    Look,
    at_random,
    at_the_likeliest,
    log_likelihood,
    reinforced,
    softly,
    to_come,
)

PICTURES, CELLS, CHANNELS, WORDS = 5, 7, 3, 11


def make(attention: str = "soft", width: int = 13) -> Captioner:
    torch.manual_seed(0)
    config = CaptionerConfig.model_validate({"attention": attention, "width": width, "dropout": 0.0})
    model = Captioner(config, CHANNELS, WORDS)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def some(pictures: int = PICTURES, cells: int = CELLS, words: int = 4) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(pictures, cells, CHANNELS), torch.randint(EOS + 1, WORDS, (pictures, words))


@pytest.mark.parametrize("look", [softly, at_random, at_the_likeliest])
def test_weights_are_of_all_cells_and_so_is_what_is_seen(look: Look) -> None:
    glimpses = make()(*some(), look)
    for each in (glimpses.log_weights.exp(), glimpses.shares):
        torch.testing.assert_close(each.sum(-1), torch.ones(PICTURES, 4))
        assert (each >= 0).all()


def test_hard_attention_sees_one_cell_and_in_the_end_the_likeliest() -> None:
    for look in (at_random, at_the_likeliest):
        shares = make()(*some(), look).shares
        assert sorted(shares.unique().tolist()) == [0.0, 1.0]
    glimpses = make()(*some(), at_the_likeliest)
    assert torch.equal(glimpses.shares.argmax(-1), glimpses.log_weights.argmax(-1))
    _, shares = make("hard").write(some()[0], longest=3)
    first = make()(some()[0], torch.full((PICTURES, 1), BOS), at_the_likeliest)
    assert torch.equal(shares[:, 0], first.shares[:, 0])


def test_cells_are_drawn_as_often_as_they_are_weighted() -> None:
    torch.manual_seed(2)
    weights = torch.tensor([0.1, 0.2, 0.7])
    drawn = at_random(weights.expand(10_000, 3)).mean(0)
    deviation = (weights * (1 - weights) / 10_000).sqrt()
    assert ((drawn - weights).abs() < 5 * deviation).all()


def test_of_one_cell_hard_and_soft_attention_see_the_same() -> None:
    features, words = some(cells=1)
    soft = make()(features, words, softly)
    for look in (at_random, at_the_likeliest):
        assert torch.equal(make()(features, words, look).logits, soft.logits)


@pytest.mark.parametrize("look", [softly, at_the_likeliest])
def test_cells_in_another_order_are_looked_at_in_that_order(look: Look) -> None:
    features, words = some()
    order = torch.randperm(CELLS)
    straight, turned = make()(features, words, look), make()(features[:, order], words, look)
    torch.testing.assert_close(turned.logits, straight.logits)
    torch.testing.assert_close(turned.shares, straight.shares[..., order])


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_writing_is_what_a_forced_pass_finds_likeliest(attention: str) -> None:
    model, look = make(attention), softly if attention == "soft" else at_the_likeliest
    features = some(pictures=31)[0]
    written, shares = model.write(features, longest=5)
    begun = torch.cat((torch.full((31, 1), BOS), written[:, :-1]), dim=1)
    forced = model(features, begun, look)
    has_ended = ((written == EOS).cumsum(1) - (written == EOS).long()) > 0
    assert has_ended.any()
    assert (written[has_ended] == PAD).all()
    assert torch.equal(forced.logits.argmax(-1)[~has_ended], written[~has_ended])
    torch.testing.assert_close(forced.shares, shares)


def gradients(module: nn.Module, objective: Tensor) -> Tensor:
    found = torch.autograd.grad(
        objective, list(module.parameters()), retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return torch.cat([each.flatten() for each in found])


def forced(cells: tuple[int, ...], count: int) -> Look:
    """Look at these cells, one after the other."""
    following: Iterator[int] = iter(cells)
    return lambda weights: nn.functional.one_hot(torch.tensor([next(following)] * len(weights)), count).float()


LABELS = torch.tensor([[7, 9, EOS]])
EVERY_WAY = list(product(range(3), repeat=3))  # to look at three cells, once before each word
baselines = pytest.mark.parametrize("baseline", [[0.0, 0.0, 0.0], [-6.0, -4.0, -2.0]])


def tiny() -> tuple[Captioner, Tensor, Tensor]:
    return make(width=3), *some(pictures=1, cells=3, words=3)


def worth(glimpses: Glimpses, baseline: list[float]) -> Tensor:
    labels = LABELS.expand(len(glimpses.logits), -1)
    said, is_word = log_likelihood(glimpses, labels), torch.ones(labels.shape, dtype=torch.bool)
    return reinforced(glimpses, said, is_word, torch.tensor(baseline), 0.0).sum()


def exact(model: Captioner, features: Tensor, words: Tensor) -> tuple[Tensor, list[Glimpses], list[Tensor]]:
    """The gradient of the log-likelihood expected over every way to look, the ways, and how likely each is."""
    ways = [model(features, words, forced(cells, 3)) for cells in EVERY_WAY]
    chances = [(way.shares * way.log_weights).sum().exp() for way in ways]
    expected = sum(chance * log_likelihood(way, LABELS).sum() for chance, way in zip(chances, ways, strict=True))
    return gradients(model, expected), ways, chances  # type: ignore[arg-type]


@baselines
def test_reinforce_is_right_on_average_over_every_way_to_look(baseline: list[float]) -> None:
    model, features, words = tiny()
    meant, ways, chances = exact(model, features, words)
    torch.testing.assert_close(torch.stack(chances).sum(), torch.tensor(1.0))
    done = sum(chance.detach() * worth(way, baseline) for chance, way in zip(chances, ways, strict=True))
    torch.testing.assert_close(gradients(model, done), meant, rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]
    # What may not be left out: the gradient that passes through what was seen is not all of it.
    plain = sum(chance.detach() * log_likelihood(way, LABELS).sum() for chance, way in zip(chances, ways, strict=True))
    assert (gradients(model, plain) - meant).norm() > 0.01 * meant.norm()  # type: ignore[arg-type]


@baselines
def test_reinforce_is_right_on_average_over_many_draws(baseline: list[float]) -> None:
    model, features, words = tiny()
    meant, *_ = exact(model, features, words)
    torch.manual_seed(3)
    many, parts = 4000, []
    for _ in range(30):  # in parts, whose scatter says how near their mean should be
        glimpses = model(features.expand(many, -1, -1), words.expand(many, -1), at_random)
        parts.append(gradients(model, worth(glimpses, baseline) / many))
    found = torch.stack(parts)
    error = found.std(0) / len(parts) ** 0.5
    assert meant.norm() > 20 * error.norm()
    assert (found.mean(0) - meant).norm() < 2 * error.norm()


def test_looking_softly_there_is_nothing_to_reinforce() -> None:
    model, (features, words) = make(), some()
    labels = words.roll(1, 1)
    glimpses = model(features, words, softly)
    said = log_likelihood(glimpses, labels)
    plain = gradients(model, said.sum())
    glimpses = model(features, words, softly)
    said = log_likelihood(glimpses, labels)
    is_word, baseline = torch.ones_like(said, dtype=torch.bool), torch.tensor([-3.0, 1.0, 0.0, 5.0])
    together = reinforced(glimpses, said, is_word, baseline, 0.0)
    torch.testing.assert_close(together, said)
    torch.testing.assert_close(gradients(model, together.sum()), plain, rtol=1e-4, atol=1e-5)


def test_entropy_is_rewarded_where_there_is_a_word() -> None:
    glimpses = make()(*some(), at_random)
    said = torch.zeros(PICTURES, 4)
    is_word = torch.tensor([True, True, True, False]).expand(PICTURES, 4)
    reward = reinforced(glimpses, said, is_word, torch.zeros(4), 0.3)
    entropy = torch.distributions.Categorical(logits=glimpses.log_weights).entropy()
    torch.testing.assert_close(reward, 0.3 * entropy * is_word)


def test_what_is_to_come_is_a_word_and_all_behind_it() -> None:
    assert to_come(torch.tensor([[-1.0, -2.0, -4.0]])).tolist() == [[-7.0, -6.0, -4.0]]


def test_behind_the_end_nothing_is_said() -> None:
    glimpses = make()(*some(), softly)
    said = log_likelihood(glimpses, torch.tensor([[5, EOS, PAD, PAD]] * PICTURES))
    assert (said[:, :2] < 0).all()
    assert (said[:, 2:] == 0).all()
