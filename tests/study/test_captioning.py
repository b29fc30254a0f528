"""How a captioner learns and is assessed; that it learns what it should is slow to show."""

from math import log

import numpy as np
import pytest
import torch
from torch import nn

from dragoman.batch import Batch
from dragoman.data.pictures import Captioned, PicturesConfig, draw_pictures
from dragoman.errors import ConfigError, RunError
from dragoman.models.captioner import Captioner, CaptionerConfig
from dragoman.study.captioning import CaptionTraining, Cells, Learner, Rate, Words, Written, assess, describe, train

TRAIN, TEST = draw_pictures(PicturesConfig(train=97, test=13), seed=1)
WORDS = Words(TRAIN.captions)


def make(attention: str) -> Captioner:
    torch.manual_seed(0)
    config = CaptionerConfig.model_validate({"attention": attention, "width": 17, "dropout": 0.0})
    return Captioner(config, Cells(TRAIN).channels, len(WORDS.words))


def quiet(text: str) -> None:
    pass


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_a_few_steps_make_what_is_said_likelier(attention: str) -> None:
    model, said = make(attention), []
    steps = train(model, TRAIN, WORDS, CaptionTraining(steps=40, batch=17, warmup=1, peak=1e-2), said.append)
    assert steps == 40
    assert said[-1].startswith("step 40  loss ")
    assert float(said[-1].split()[3]) < 0.7 * log(len(WORDS.words))
    written = describe(model, TEST, WORDS, Cells(TRAIN))
    assert len(written.captions) == len(TEST)
    np.testing.assert_allclose(written.shares.sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_the_same_seed_learns_the_same(attention: str) -> None:
    found = []
    for _ in range(2):
        model = make(attention)
        train(model, TRAIN, WORDS, CaptionTraining(steps=3, batch=7), quiet)
        found.append(nn.utils.parameters_to_vector(model.parameters()))
    assert torch.equal(*found)


def test_a_budget_is_needed_and_minutes_are_one() -> None:
    with pytest.raises(ConfigError, match=r"no budget: set training.steps or training.minutes$"):
        train(make("soft"), TRAIN, WORDS, CaptionTraining(), quiet)
    assert train(make("soft"), TRAIN, WORDS, CaptionTraining(steps=10_000, minutes=1e-3, batch=2), quiet) < 10_000


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    model = make("soft")
    nn.init.constant_(model.output.bias, torch.nan)
    with pytest.raises(RunError, match="step 2: the loss is not finite"):
        train(model, TRAIN, WORDS, CaptionTraining(steps=2, batch=3), quiet)


def test_the_baseline_is_what_was_usual_before() -> None:
    learner = Learner(make("hard"), CaptionTraining(baseline=0.75), longest=3)
    is_word = torch.tensor([[True, True], [True, False]])
    one, two = torch.tensor([[-1.0, -2.0], [-5.0, 0.0]]), torch.tensor([[-1.0, -1.0], [-1.0, 0.0]])
    assert learner._baseline(one, is_word).tolist() == [-4.0, -2.0]  # the first batch has nothing before it
    assert learner._baseline(two, is_word).tolist() == [-4.0, -2.0]
    assert learner._baseline(two, is_word).tolist() == [0.75 * -4 + 0.25 * -1.5, 0.75 * -2 + 0.25 * -1]
    assert learner.usual[2] == 0


def test_a_share_of_the_pictures_is_looked_at_softly() -> None:
    torch.manual_seed(0)
    learner = Learner(make("hard"), CaptionTraining(), longest=3)
    looked = learner._look(5000, 0.3)(torch.full((5000, 7), 1 / 7))
    assert (looked.amax(-1) < 1).float().mean() == pytest.approx(0.3, abs=0.03)


def test_cells_are_alike_in_size_and_say_where_they_are() -> None:
    features = Cells(TRAIN).of(TRAIN, slice(None))
    pixels = TRAIN.cells.shape[2]
    torch.testing.assert_close(features[..., :pixels].mean((0, 1)), torch.zeros(pixels), atol=1e-3, rtol=0)
    torch.testing.assert_close(features[..., :pixels].std((0, 1)), torch.ones(pixels), atol=1e-2, rtol=0)
    places = features[0, :, pixels:]
    assert len(places.unique(dim=0)) == 25
    assert torch.equal(places, features[-1, :, pixels:])


def test_one_cell_has_a_place_too() -> None:
    one = Captioned(np.ones((3, 1, 2), dtype=np.float32), (1, 1), ["a", "b", "c"])
    assert torch.isfinite(Cells(one).of(one, slice(None))).all()


def test_words_come_back_and_unknown_ones_are_told() -> None:
    words = Words(["a red circle", "ein Hündchen läuft schnell"])
    assert words.decode([*words.encode("Hündchen a circle"), 3, 5]) == "Hündchen a circle"
    assert words.decode(words.encode("a blue circle")) == "a <unk> circle"
    assert words.longest == 5


def test_what_is_right_and_where_it_is_looked_is_counted() -> None:
    things = np.zeros((3, 2, 4), dtype=bool)
    things[:, 0, :2] = things[:, 1, 3] = True
    truth = ["a red circle left of a blue square"] * 3
    said = [truth[0], "a red square left of a green square", "a red red"]
    shares = np.full((3, 9, 4), 0.25, dtype=np.float32)
    shares[0, 1], shares[0, 6] = [0.4, 0.6, 0, 0], [0.5, 0, 0, 0.5]  # at "red" and at "blue"
    found = assess(Written(said, shares), Captioned(np.zeros((3, 4, 1)), (2, 2), truth, things))
    means = {name: rate.mean for name, rate in found.items()}
    assert means == pytest.approx(
        {
            "colour": 1 / 3,
            "shape": 1 / 3,
            "relation": 2 / 3,
            "all": 1 / 3,
            "looks for colour": ((1 + 0.5) / 2 + (0.5 + 0.25) / 2) / 3,
            "looks for shape": 2 * (0.5 + 0.25) / 2 / 3,
        }
    )


def test_intervals_are_wilsons() -> None:
    rate = Rate.of([1.0] * 8 + [0.0] * 2)
    assert (rate.mean, rate.low, rate.high) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)
    always = Rate.of([1.0] * 500)
    assert (always.mean, always.low, always.high) == pytest.approx((1.0, 0.9924, 1.0), abs=1e-4)


def test_an_update_follows_the_rate_it_is_given() -> None:
    model = make("soft")
    before = nn.utils.parameters_to_vector(model.parameters()).clone()
    batch = Batch.of([[]] * 2, [WORDS.encode(caption) for caption in TRAIN.captions[:2]])
    Learner(model, CaptionTraining(), WORDS.longest).learn(Cells(TRAIN).of(TRAIN, slice(2)), batch, 1e-3, 0.0)
    moved = (nn.utils.parameters_to_vector(model.parameters()) - before).abs().max().item()
    assert moved == pytest.approx(1e-3, rel=1e-2)  # Adam's first step
