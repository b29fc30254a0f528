"""Beam search with the length penalty of Wu et al. 2016 (section 6.1); a beam of one is greedy search.

Knows `models.interface` and no concrete model. An ensemble averages log-probabilities.
Axes: B sentences, W beam width, N = B*W hypotheses (sentence-major), V vocabulary, T positions written so far,
E hypotheses kept that have ended, A candidates of a step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dragoman.batch import BOS, EOS, PAD, Side
from dragoman.kernels.attention import growing
from dragoman.models.interface import Memory, Model, State

NEVER = slice(PAD, EOS)  # PAD, UNK and BOS are never written; a list would be sent to the GPU at every step
# Steps between two questions who is done: on a GPU each makes the processor wait, and who is done loses nothing by
# going on for a while.
STEPS_BETWEEN_QUESTIONS = {"cuda": 8}
ROWS_AT_ONCE = 32  # whose log-probabilities a CPU's cache holds
STRETCH = 64  # columns of which only the largest is looked at first


class Hypothesis(NamedTuple):
    """A finished translation: its ids without BOS and EOS, its log-probability, and that over the length penalty."""

    ids: list[int]
    log_probability: float
    score: float


def length_penalty(length: Tensor | int, alpha: float) -> Tensor | float:
    """lp(Y) = ((5 + |Y|) / 6)^alpha; |Y| counts the end token."""
    return ((5 + length) / 6) ** alpha


def forced_pieces(prefixes: Sequence[Sequence[int]] | None, source: Side) -> Int[Tensor, "B P"]:
    """The pieces each output begins with, PAD where it is free."""
    forced = torch.full((len(source.ids), max(map(len, prefixes or [[]]))), PAD)
    for number, prefix in enumerate(prefixes or []):
        forced[number, : len(prefix)] = torch.tensor(prefix, dtype=torch.long)
    return forced.to(source.ids.device)


def output_limits(
    models: Sequence[Model], source: Side, extra: int, forced: Int[Tensor, "B P"] | None = None
) -> Int[Tensor, " B"]:
    """Pieces each output may have, EOS included as it is in the source's length; no more than there are positions."""
    given = (source.segments > 0).sum(1)
    begun = torch.ones_like(given) if forced is None else (forced != PAD).sum(1) + 1
    # Where a source is nothing but its end, the input is what the output begins with.
    limits = torch.where(given > 1, given, begun) + extra
    return torch.maximum(limits, begun).clamp(max=min(model.longest for model in models))


@torch.inference_mode()
@growing()
def search(
    models: Sequence[Model],
    source: Side,
    beam: int,
    alpha: float,
    extra: int,
    n_best: int = 1,
    prefixes: Sequence[Sequence[int]] | None = None,
    watch: Callable[[Tensor, Tensor], None] | None = None,
) -> list[list[Hypothesis]]:
    """The n best translations of each sentence, best first, at most `extra` pieces longer than their source.

    Who watches is told after each step which hypotheses live, BOS first, and their log-probabilities.
    """
    # The hypotheses of a sentence begin alike, so there is one of each to begin with.
    ensemble = Ensemble.start(models, source, 1)
    forced = forced_pieces(prefixes, source)
    beams = _Beams.start(output_limits(models, source, extra, forced), n_best, forced)
    results: list[list[Hypothesis]] = [[] for _ in source.ids]
    patience = STEPS_BETWEEN_QUESTIONS.get(source.ids.device.type, 1)
    while len(beams.sentences):
        # (1) How likely is each next piece of each hypothesis, and how likely the whole with it?
        log_probabilities = ensemble.step(beams.tokens[:, -1])
        beams.forbid(log_probabilities)
        # (2) Twice the beam suffices: each hypothesis can end only once, so at least `beam` go on. A beam of one takes
        # the best piece and no other, and so ends where that is the end token: greedy search.
        best, rows, pieces = beams.candidates(log_probabilities, 2 * beam if beam > 1 else 1)
        # (3) Those that end here compete with those that have ended; the best of the others live on.
        beams.finish(best, rows, pieces, alpha)
        chosen = beams.live_on(best, rows, pieces, beam)
        if watch is not None:
            watch(beams.tokens, beams.live)
        # (4) Sentences that cannot improve leave.
        if beams.tokens.shape[1] % patience == 0:
            done = beams.done(alpha)
            for number, found in beams.results(done, alpha):
                results[number] = found
            kept = (~done).nonzero()[:, 0]
            if len(kept) < len(done):
                chosen = chosen.view(len(done), -1)[kept].flatten()  # following leaves behind those done too
                beams.keep(kept)
                ensemble.keep(kept)
        ensemble.follow(chosen)
    return results


@dataclass
class Ensemble:
    """Models that write the same hypotheses together; mostly just one."""

    models: Sequence[Model]
    memories: list[Memory]
    states: list[State]

    @classmethod
    def start(cls, models: Sequence[Model], source: Side, beam: int) -> "Ensemble":
        """Read the source with every model."""
        memories = [model.encode(source) for model in models]
        states = [model.start(memory, beam) for model, memory in zip(models, memories, strict=True)]
        return cls(models, memories, states)

    def step(self, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
        """Log-probabilities of the next piece, averaged over the models."""
        together = []
        for number, model in enumerate(self.models):
            logits, self.states[number] = model.step(tokens, self.states[number], self.memories[number])
            together.append(log_softmax(logits))
        return average(together)

    def follow(self, rows: Int[Tensor, " N"]) -> None:
        """Each hypothesis goes on from the row it was chosen from."""
        self.states = [follow(state, rows) for state in self.states]

    def keep(self, sentences: Int[Tensor, " B"]) -> None:
        """Forget the sentences that are done."""
        self.memories = [memory.rows(sentences) for memory in self.memories]


def log_softmax(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """In single precision; some rows at a time, so that a CPU's cache holds them."""
    found = logits.new_empty(logits.shape, dtype=torch.float32)
    at_once = ROWS_AT_ONCE if logits.device.type == "cpu" else max(1, len(logits))
    for first in range(0, len(logits), at_once):
        rows = slice(first, first + at_once)
        torch.log_softmax(logits[rows].float(), -1, out=found[rows])
    return found


def largest(values: Float[Tensor, "N V"], count: int) -> tuple[Float[Tensor, "N K"], Int[Tensor, "N K"]]:
    """What `topk` finds, of equal ones any: none is outside of the stretches with the largest peaks and the rest."""
    stretches = values.shape[1] // STRETCH
    if stretches <= count:
        return values.topk(count)
    end = stretches * STRETCH
    peaks = values[:, :end].reshape(-1, stretches, STRETCH).amax(-1)
    inside = torch.arange(STRETCH, device=values.device) + STRETCH * peaks.topk(count).indices[:, :, None]
    behind = torch.arange(end, values.shape[1], device=values.device).expand(len(values), -1)
    columns = torch.cat((inside.flatten(1), behind), dim=1)
    best, chosen = values.gather(1, columns).topk(count)
    return best, columns.gather(1, chosen)


def average(log_probabilities: list[Tensor]) -> Tensor:
    """The mean over the models of an ensemble; of one model, its own."""
    return torch.stack(log_probabilities).mean(0) if len(log_probabilities) > 1 else log_probabilities[0]


def follow(state: State, rows: Int[Tensor, " N"]) -> State:
    """The state of the hypotheses that were chosen; the only place where rows are reordered."""
    return {name: tensor.index_select(0, rows) for name, tensor in state.items()}


@dataclass
class _Beams:
    """What has been written so far, for the sentences that are not done."""

    sentences: Int[Tensor, " B"]  # which sentence of the batch each one is
    limits: Int[Tensor, " B"]  # pieces each may have, EOS included
    shortest: int  # the smallest limit of all, known without asking the device
    prefixes: Int[Tensor, "B P"]  # forced first pieces, PAD where free
    tokens: Int[Tensor, "N T"]  # BOS and what was written behind it
    live: Float[Tensor, "B W"]  # log-probabilities of the live hypotheses
    finished: Float[Tensor, "B E"]  # scores of the best finished ones, best first
    finished_tokens: Int[Tensor, "B E T"]  # theirs, PAD behind EOS

    @classmethod
    def start(cls, limits: Int[Tensor, " B"], n_best: int, forced: Int[Tensor, "B P"]) -> "_Beams":
        sentences = len(limits)
        device = limits.device
        return cls(
            torch.arange(sentences, device=device),
            limits,
            int(limits.min()) if sentences else 0,
            forced,
            torch.full((sentences, 1), BOS, device=device),
            torch.zeros((sentences, 1), device=device),
            torch.full((sentences, n_best), -torch.inf, device=device),
            torch.full((sentences, n_best, 1), PAD, device=device),
        )

    def forbid(self, log_probabilities: Float[Tensor, "N V"]) -> None:
        """Never write padding; write the prefix first; at the limit write nothing but EOS."""
        length = self.tokens.shape[1]
        log_probabilities[:, NEVER] = -torch.inf
        if self.prefixes.shape[1] < length < self.shortest:
            return  # everybody is free: no need to look at every piece
        only = torch.where(length >= self.limits, EOS, PAD)
        if length <= self.prefixes.shape[1]:
            forced = self.prefixes[:, length - 1]
            only = torch.where(forced != PAD, forced, only)
        only = only.repeat_interleave(self.live.shape[1])[:, None]
        pieces = torch.arange(log_probabilities.shape[1], device=only.device)
        log_probabilities.masked_fill_((only != PAD) & (pieces != only), -torch.inf)

    def candidates(
        self, log_probabilities: Float[Tensor, "N V"], count: int
    ) -> tuple[Float[Tensor, "B A"], Int[Tensor, "B A"], Int[Tensor, "B A"]]:
        """The likeliest continuations of each sentence: their log-probabilities, the beam they continue, the piece."""
        # None of them is missing among as many of each hypothesis: so nothing as large as the vocabulary is added up.
        each, pieces = largest(log_probabilities, min(count, log_probabilities.shape[1]))
        totals = (self.live[:, :, None] + each.view(*self.live.shape, -1)).flatten(1)
        best, chosen = totals.topk(min(count, totals.shape[1]))
        return best, chosen // each.shape[1], pieces.view(totals.shape).gather(1, chosen)

    def finish(
        self, best: Float[Tensor, "B A"], rows: Int[Tensor, "B A"], pieces: Int[Tensor, "B A"], alpha: float
    ) -> None:
        """Keep the n best of those that have ended before and those that end now."""
        length = self.tokens.shape[1]
        scores = (best / length_penalty(length, alpha)).masked_fill(pieces != EOS, -torch.inf)
        ended = torch.cat((self._written(rows)[:, :, 1:], pieces[:, :, None]), dim=2)
        earlier = torch.nn.functional.pad(self.finished_tokens, (0, length - self.finished_tokens.shape[2]), value=PAD)
        self.finished, order = torch.cat((self.finished, scores), dim=1).topk(self.finished.shape[1])
        self.finished_tokens = torch.cat((earlier, ended), dim=1).gather(1, order[:, :, None].expand(-1, -1, length))

    def live_on(
        self, best: Float[Tensor, "B A"], rows: Int[Tensor, "B A"], pieces: Int[Tensor, "B A"], beam: int
    ) -> Int[Tensor, " N"]:
        """Write the best pieces that are not EOS, at most a beam of them; return the rows they were written behind."""
        first_rows = torch.arange(len(rows), device=rows.device)[:, None] * self.live.shape[1]
        live, order = best.masked_fill(pieces == EOS, -torch.inf).topk(min(beam, best.shape[1]))
        rows, pieces = rows.gather(1, order), pieces.gather(1, order)
        self.tokens = torch.cat((self._written(rows), pieces[:, :, None]), dim=2).flatten(0, 1)
        self.live = live
        return (first_rows + rows).flatten()

    def done(self, alpha: float) -> Bool[Tensor, " B"]:
        """Log P only falls, so a live hypothesis can reach at best its log P over the penalty of the longest."""
        reachable = self.live.amax(1) / length_penalty(self.limits, alpha)
        # Said by count too: NaN, of a broken model, compares with nothing.
        is_at_its_end = self.tokens.shape[1] > self.limits
        return (self.finished[:, -1] >= reachable) | torch.isneginf(self.live).all(1) | is_at_its_end

    def keep(self, kept: Int[Tensor, " B"]) -> None:
        """Forget the sentences that are done."""
        self.tokens = self.tokens.view(*self.live.shape, -1)[kept].flatten(0, 1)
        for name in ("sentences", "limits", "prefixes", "live", "finished", "finished_tokens"):
            setattr(self, name, getattr(self, name)[kept])

    def results(self, done: Bool[Tensor, " B"], alpha: float) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The finished hypotheses of the sentences that are done, each with the number of its sentence."""
        columns = (self.sentences[done], self.finished[done], self.finished_tokens[done])
        for number, scores, written in zip(*(column.tolist() for column in columns), strict=True):
            hypotheses = []
            for score, tokens in zip(scores, written, strict=True):
                if score > -torch.inf:
                    length = tokens.index(EOS)
                    total = score * float(length_penalty(length + 1, alpha))
                    hypotheses.append(Hypothesis(tokens[:length], total, score))
            yield number, hypotheses

    def _written(self, rows: Int[Tensor, "B A"]) -> Int[Tensor, "B A T"]:
        length = self.tokens.shape[1]
        tokens = self.tokens.view(*self.live.shape, length)
        return tokens.gather(1, rows[:, :, None].expand(-1, -1, length))
