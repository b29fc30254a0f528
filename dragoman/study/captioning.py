"""How a captioner learns (Xu et al. 2015, section 4), and what it is worth."""

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from dragoman.batch import EOS, PAD, UNK, Batch
from dragoman.config import Section
from dragoman.data.pictures import RELATIONS, Captioned
from dragoman.errors import ConfigError, RunError
from dragoman.models.captioner import Captioner, Look, at_random, log_likelihood, reinforced, softly, to_come

SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]  # the first four ids, as in every vocabulary
LOUD = 0.5  # how loudly a cell says where it is, beside all that it shows (docs/LOG.md, 2026-11-19)
CLIP = 1.0  # largest norm of the gradient
AT_ONCE = 250  # pictures described together
SECONDS_BETWEEN_LINES = 15.0
FORM = re.compile(rf"a (\S+) (\S+) ({'|'.join(RELATIONS)}) a (\S+) (\S+)")


class CaptionTraining(Section):
    """How a captioner learns; of the budgets, the one that is reached first ends it."""

    batch: int = Field(64, ge=1, le=65536)  # pictures an update
    steps: int | None = Field(None, ge=1)
    minutes: float | None = Field(None, gt=0)
    warmup: int = Field(100, ge=1)  # updates until the learning rate peaks; then it falls to zero where the run ends
    peak: float = Field(4e-3, gt=0)
    entropy: float = Field(0.01, ge=0)  # how far hard attention is rewarded for looking around (lambda_e)
    baseline: float = Field(0.9, ge=0, lt=1)  # how much of its moving average stays from update to update
    seed: int = Field(0, ge=0, lt=1 << 63)


class Words:
    """The words of some captions, numbered."""

    def __init__(self, captions: Sequence[str]) -> None:
        self.words = SPECIALS + sorted({word for caption in captions for word in caption.split()})
        self.ids = {word: number for number, word in enumerate(self.words)}
        self.longest = max(len(caption.split()) for caption in captions) + 1  # EOS included

    def encode(self, caption: str) -> list[int]:
        """The numbers of its words."""
        return [self.ids.get(word, UNK) for word in caption.split()]

    def decode(self, ids: Sequence[int]) -> str:
        """The words before EOS."""
        ids = list(ids)
        return " ".join(self.words[each] for each in (ids[: ids.index(EOS)] if EOS in ids else ids))


class Cells:
    """The features of pictures as a captioner wants them: alike in size, and each saying where its cell is."""

    def __init__(self, learned: Captioned) -> None:
        self.mean = learned.cells.mean((0, 1), dtype=np.float64).astype(np.float32)
        self.deviation = learned.cells.std((0, 1), dtype=np.float32).clip(min=1e-6)
        channels = learned.cells.shape[2]  # of deviation 1 each
        self.places = np.float32(LOUD * math.sqrt(channels)) * _places(*learned.grid)
        self.channels = channels + self.places.shape[1]

    def of(self, pictures: Captioned, chosen: NDArray[np.int64] | slice) -> Float[Tensor, "B K _"]:
        """The features of some pictures."""
        features = (pictures.cells[chosen] - self.mean) / self.deviation
        places = np.broadcast_to(self.places, (*features.shape[:2], self.places.shape[1]))
        return torch.from_numpy(np.concatenate((features, places), axis=2))


def _places(rows: int, columns: int) -> NDArray[np.float32]:
    """Of each cell, its row and its column: which it is, and how far along."""
    at = np.divmod(np.arange(rows * columns), columns)
    which = [np.eye(count)[each] for count, each in zip((rows, columns), at, strict=True)]
    along = [2 * each[:, None] / max(1, count - 1) - 1 for count, each in zip((rows, columns), at, strict=True)]
    return np.concatenate((*which, *along), axis=1, dtype=np.float32)


def train(
    model: Captioner,
    pictures: Captioned,
    words: Words,
    config: CaptionTraining,
    say: Callable[[str], None],
) -> int:
    """Learn until the budget is spent; returns how many updates that took."""
    if config.steps is None and config.minutes is None:
        raise ConfigError("training", "no budget: set training.steps or training.minutes")
    draw, learner, cells = np.random.default_rng(config.seed), Learner(model, config, words.longest), Cells(pictures)
    captions = [words.encode(caption) for caption in pictures.captions]
    begun = said = time.monotonic()
    step, spent = 0, 0.0
    while spent < 1:
        chosen = draw.integers(0, len(pictures), config.batch)
        batch = Batch.of([[]] * len(chosen), [captions[each] for each in chosen])
        step += 1
        rate = config.peak * min(1.0, step / config.warmup) * (1 - spent)
        loss = learner.learn(cells.of(pictures, chosen), batch, rate, min(1.0, 2 * (1 - spent)))
        now = time.monotonic()
        spent = max(step / (config.steps or math.inf), (now - begun) / (60 * (config.minutes or math.inf)))
        if spent >= 1 or now - said > SECONDS_BETWEEN_LINES:
            if not math.isfinite(loss.item()):
                raise RunError(f"step {step}", "the loss is not finite", hint="try a lower training.peak")
            said, left = now, max(0, round((now - begun) * (1 - spent) / spent))
            say(f"step {step:,}  loss {loss.item():.3f}  {left // 60}:{left % 60:02} left")
    return step


class Learner:
    """A captioner with its optimiser, and how likely what it says has been lately."""

    def __init__(self, model: Captioner, config: CaptionTraining, longest: int) -> None:
        self.model, self.config = model.train(), config
        self.device = next(model.parameters()).device
        self.optimizer = torch.optim.Adam(model.parameters(), fused=True)
        self.usual = torch.zeros(longest, device=self.device)  # to come at each word: the baseline of REINFORCE
        self.is_first = True

    def learn(
        self, features: Float[Tensor, "B K _"], batch: Batch, rate: float, soft_share: float
    ) -> Float[Tensor, ""]:
        """One update; returns the loss of a word, in nats."""
        batch = batch.to(self.device)
        is_word = batch.labels != PAD
        glimpses = self.model(features.to(self.device), batch.target.ids, self._look(len(features), soft_share))
        said = gain = log_likelihood(glimpses, batch.labels)
        if self.model.attention == "hard":
            gain = reinforced(glimpses, said, is_word, self._baseline(said.detach(), is_word), self.config.entropy)
        self.optimizer.zero_grad()
        (-gain.sum() / is_word.sum()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return -said.detach().sum() / is_word.sum()

    def _look(self, pictures: int, soft_share: float) -> Look:
        if self.model.attention == "soft":
            return softly
        # Section 4.1: some pictures are looked at softly, which steadies what is learned. Departs from Xu et al.: not
        # half of them all the time, but all for half of the time, then fewer and fewer. Where a glimpse is of no use
        # before others are, hard attention may never learn to take it (docs/LOG.md, 2026-11-19).
        is_soft = torch.rand(pictures, 1, device=self.device) < soft_share
        return lambda weights: torch.where(is_soft, weights, at_random(weights))

    def _baseline(self, said: Float[Tensor, "B T"], is_word: Bool[Tensor, "B T"]) -> Float[Tensor, " T"]:
        """What was usual before this batch, of which the average then takes its part."""
        length, kept = said.shape[1], 0.0 if self.is_first else self.config.baseline
        now = to_come(said).sum(0) / is_word.sum(0).clamp(min=1)
        before = now if self.is_first else self.usual[:length].clone()
        self.usual[:length] = kept * before + (1 - kept) * now
        self.is_first = False
        return before


@dataclass(frozen=True)
class Written:
    """What a captioner said of some pictures, and where it looked before each word."""

    captions: list[str]
    shares: NDArray[np.float32]  # pictures x words x cells


def describe(model: Captioner, pictures: Captioned, words: Words, cells: Cells) -> Written:
    """A caption for each picture, word by word the likeliest; hard attention looks at the likeliest cell."""
    model.eval()
    device = next(model.parameters()).device
    captions, shares = [], []
    for first in range(0, len(pictures), AT_ONCE):
        features = cells.of(pictures, slice(first, first + AT_ONCE)).to(device)
        ids, looked = model.write(features, words.longest)
        captions += [words.decode(each) for each in ids.tolist()]
        shares.append(looked.cpu().numpy())
    return Written(captions, np.concatenate(shares))


@dataclass(frozen=True)
class Rate:
    """A mean with its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Rate":
        """Of numbers from 0 to 1; Wilson's interval stays there, and is too wide where they are neither 0 nor 1."""
        n, mean, z = len(values), float(np.mean(values)), 1.96
        middle = (mean + z * z / (2 * n)) / (1 + z * z / n)
        reach = z * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return cls(mean, max(0.0, middle - reach), min(1.0, middle + reach))


def assess(written: Written, pictures: Captioned) -> dict[str, Rate]:
    """How often shape, colour, relation and all are right, and how far the things are looked at as they are named.

    A caption that has not the form of those it learned from is wrong in everything, and looked nowhere.
    """
    names = ["shape", "colour", "relation", "all", "looks for colour", "looks for shape"]
    values: dict[str, list[float]] = {name: [] for name in names}
    assert pictures.things is not None
    for caption, shares, truth, things in zip(
        written.captions, written.shares, pictures.captions, pictures.things, strict=True
    ):
        said, true = FORM.fullmatch(caption), FORM.fullmatch(truth)
        assert true is not None
        for name, groups in (("colour", (1, 4)), ("shape", (2, 5)), ("relation", (3,))):
            values[name].append(float(said is not None and all(said[each] == true[each] for each in groups)))
        values["all"].append(float(caption == truth))
        for name, groups in (("looks for colour", (1, 4)), ("looks for shape", (2, 5))):
            words = [caption[: said.start(group)].count(" ") if said else None for group in groups]
            found = [0.0 if at is None else shares[at][thing].sum() for at, thing in zip(words, things, strict=True)]
            values[name].append(float(np.mean(found)))
    return {name: Rate.of(each) for name, each in values.items()}
