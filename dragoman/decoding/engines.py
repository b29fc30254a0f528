"""What computes behind a translator: our own search in torch, or CTranslate2 with a converted copy of the model.

An engine takes ids and gives hypotheses; text, order, parts and groups are the translator's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from dragoman.batch import EOS, Side
from dragoman.data.vocabulary import Vocabulary
from dragoman.decoding.scoring import Ids, Score, score
from dragoman.decoding.search import NEVER, Hypothesis, length_penalty, search
from dragoman.models.interface import Model
from dragoman.recipe import DecodingConfig

# Source positions times beam that pass at once: enough to fill the device, little enough for its memory.
TOKENS_AT_ONCE = {"cpu": 4096, "cuda": 131072}
CTRANSLATE2_TOKENS_AT_ONCE = {"cpu": 8192, "cuda": 131072}
PRECISIONS = {torch.float32: "float32", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class TorchEngine:
    """Our own search over our own models."""

    models: Sequence[Model]
    name: str = "torch"

    @property
    def precision(self) -> str:
        """That of the weights."""
        return PRECISIONS[next(self.models[0].parameters()).dtype]

    @property
    def longest(self) -> int:
        """What every model can take."""
        return min(model.longest for model in self.models)

    @property
    def tokens_at_once(self) -> int:
        """By the device."""
        return TOKENS_AT_ONCE.get(self.models[0].device.type, TOKENS_AT_ONCE["cpu"])

    def search(
        self, sources: Sequence[Ids], decoding: DecodingConfig, n_best: int, prefixes: Sequence[Ids] | None
    ) -> list[list[Hypothesis]]:
        """Exact beam search."""
        source = Side.of([[*ids, EOS] for ids in sources]).to(self.models[0].device)
        beam = max(decoding.beam, n_best)
        return search(self.models, source, beam, decoding.alpha, decoding.extra, n_best, prefixes)

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Score]:
        """One forced pass."""
        return score(self.models, sources, targets)


@dataclass(frozen=True)
class Ctranslate2Engine:
    """CTranslate2 with a folder that was converted for it.

    It divides log-probabilities by a power of the length. So it is asked for all hypotheses of its beam, undivided, and
    they are ranked here by the penalty of Wu et al. 2016. It stops at as many finished hypotheses as its beam is wide,
    where our own search goes on until none can become better.
    """

    folder: Path
    vocabularies: tuple[Vocabulary, Vocabulary]
    longest: int
    precision: str
    device: str = "cpu"
    name: str = "ctranslate2"

    @cached_property
    def translator(self) -> Any:
        """Read into memory on first use: the folder may go afterwards."""
        import ctranslate2

        # A CPU multiplies in float32 what was stored in half as many bytes; left to itself, it would warn of that.
        computed = "float32" if (self.device, self.precision) == ("cpu", "float16") else self.precision
        threads = torch.get_num_threads()
        return ctranslate2.Translator(str(self.folder), self.device, compute_type=computed, intra_threads=threads)

    @property
    def tokens_at_once(self) -> int:
        """By the device."""
        return CTRANSLATE2_TOKENS_AT_ONCE[self.device]

    def search(
        self, sources: Sequence[Ids], decoding: DecodingConfig, n_best: int, prefixes: Sequence[Ids] | None
    ) -> list[list[Hypothesis]]:
        """Beam search as CTranslate2 does it, ranked as ours is."""
        begun = prefixes or [[]] * len(sources)
        limits = [self._limit(ids, prefix, decoding.extra) for ids, prefix in zip(sources, begun, strict=True)]
        beam = max(decoding.beam, n_best)
        together = self._find(sources, begun, limits, beam)
        # Kept from writing padding, unknown or beginning, CTranslate2 shares their part among all other pieces: scores
        # would be too good. So that is asked for only where nothing else was found, and what comes is scored again.
        if spoilt := [number for number, found in enumerate(together) if not found]:
            some_sources, some_begun = ([each[number] for number in spoilt] for each in (sources, begun))
            some_limits, never = [limits[number] for number in spoilt], range(EOS)[NEVER]
            again = self._find(some_sources, some_begun, some_limits, beam, never)
            for number, found in zip(spoilt, again, strict=True):
                together[number] = found
        self._score_missing(sources, together)
        return [_ranked(each, decoding.alpha)[:n_best] for each in together]

    def _find(
        self, sources: Sequence[Ids], begun: Sequence[Ids], limits: Sequence[int], beam: int, never: Sequence[int] = ()
    ) -> list["_Found"]:
        source, target = self.vocabularies
        has_prefix = any(begun)
        results = self.translator.translate_batch(
            [source.pieces(ids) for ids in sources],
            target_prefix=[target.pieces(ids) for ids in begun] if has_prefix else None,
            beam_size=beam,
            num_hypotheses=beam,
            length_penalty=0,
            min_decoding_length=0,
            max_decoding_length=max(limits),
            max_input_length=0,
            return_scores=True,
            return_end_token=True,
            suppress_sequences=[[piece] for piece in target.pieces(never)] or None,
        )
        found = [self._clean(each.hypotheses, each.scores, n) for each, n in zip(results, limits, strict=True)]
        # What was forced is not in the scores.
        return [dict.fromkeys(each) for each in found] if has_prefix or never else found

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Score]:
        """One forced pass."""
        sides = zip(self.vocabularies, (sources, targets), strict=True)
        pieces = [[vocabulary.pieces(ids) for ids in side] for vocabulary, side in sides]
        found = self.translator.score_batch(*pieces, max_input_length=0, max_batch_size=4096, batch_type="tokens")
        return [Score(sum(each.log_probs), len(each.log_probs)) for each in found]

    def _limit(self, source: Ids, prefix: Ids, extra: int) -> int:
        """As `search.output_limits` has it, the end token included."""
        return min(max(len(source) + 1 + extra, len(prefix) + 1), self.longest)

    def _clean(self, written: list[list[str]], scores: list[float], limit: int) -> "_Found":
        """What was written, cut at its own limit, for the batch had a common one; what was cut has no score yet."""
        found: _Found = {}
        for pieces, total in zip(written, scores, strict=True):
            ids = [self._numbers[piece] for piece in pieces[:limit]]
            is_whole = ids[-1:] == [EOS]
            if min(ids[: limit - 1], default=EOS) >= EOS:
                found.setdefault(tuple(ids[:-1] if is_whole else ids[: limit - 1]), total if is_whole else None)
        return found

    def _score_missing(self, sources: Sequence[Ids], together: Sequence["_Found"]) -> None:
        missing = [(n, ids) for n, found in enumerate(together) for ids, total in found.items() if total is None]
        scores = self.score([sources[n] for n, _ in missing], [ids for _, ids in missing]) if missing else []
        for (n, ids), each in zip(missing, scores, strict=True):
            together[n][ids] = each.log_probability

    @cached_property
    def _numbers(self) -> dict[str, int]:
        pieces = self.vocabularies[1].pieces(range(len(self.vocabularies[1])))
        return {piece: id for id, piece in enumerate(pieces)}


Engine = TorchEngine | Ctranslate2Engine
_Found = dict[tuple[int, ...], float | None]  # log-probabilities of what one sentence may become


def _ranked(found: _Found, alpha: float) -> list[Hypothesis]:
    """Best first, by the score of our own search."""
    hypotheses = [
        Hypothesis(list(ids), total, total / float(length_penalty(len(ids) + 1, alpha)))
        for ids, total in found.items()
        if total is not None
    ]
    return sorted(hypotheses, key=lambda each: -each.score)
