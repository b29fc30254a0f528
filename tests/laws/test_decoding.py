"""The laws of decoding: wide beams are exhaustive, stopping early loses nothing, scores are the model's own."""

import random
from functools import cache
from itertools import product
from math import log
from typing import Any, ClassVar

import pytest
import torch

from dragoman.batch import EOS, Batch
from dragoman.decoding import engines
from dragoman.decoding import search as search_module
from dragoman.decoding.sampling import Sampling, sample
from dragoman.decoding.scoring import score
from dragoman.decoding.search import Ensemble, Hypothesis, search
from dragoman.decoding.translator import Translator
from dragoman.models.transformer import Transformer, TransformerConfig
from tests import oracles
from tests.oracles import PIECES, side

SOURCES = [[4, 5], [6], [5, 5, 6]]
peaked = cache(oracles.peaked)
each_seed = pytest.mark.parametrize("seed", [0, 2, 3, 5, 7])
each_alpha = pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])


@cache
def next_pieces(seed: int, number: int, most: int) -> dict[tuple[int, ...], list[float]]:
    """What a model thinks of the next piece behind every output of up to so many, by one forward pass, not by steps."""
    model, written = peaked(seed), [list(ids) for ids in product(PIECES, repeat=most)]
    with torch.inference_mode():
        logits = model.project(model(Batch.of([SOURCES[number]] * len(written), written)))
    steps = logits.log_softmax(-1).tolist()
    return {tuple(ids[:length]): steps[row][length] for row, ids in enumerate(written) for length in range(most + 1)}


def exhaustive(
    models: list[Transformer], source: list[int], most: int, alpha: float, prefix: tuple[int, ...] = ()
) -> list[Hypothesis]:
    """Every output of at most so many pieces, best first."""
    outputs = [list(ids) for length in range(most + 1) for ids in product(PIECES, repeat=length)]
    outputs = [ids for ids in outputs if tuple(ids[: len(prefix)]) == prefix]
    scores = score(models, [source] * len(outputs), outputs)
    every = [Hypothesis(ids, s.log_probability, s.normalised(alpha)) for ids, s in zip(outputs, scores, strict=True)]
    return sorted(every, key=lambda hypothesis: -hypothesis.score)


def patient_search(seed: int, number: int, beam: int, alpha: float, limit: int, n_best: int) -> list[Hypothesis]:
    """Beam search that never stops before the limit, in plain Python."""
    after = next_pieces(seed, number, limit - 1)
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Hypothesis] = []
    for length in range(1, limit + 1):
        allowed = [EOS, *PIECES] if length < limit else [EOS]
        candidates = [(total + after[ids][piece], (*ids, piece)) for total, ids in live for piece in allowed]
        candidates = sorted(candidates, key=lambda candidate: -candidate[0])[: 2 * beam]
        penalty = ((5 + length) / 6) ** alpha
        finished += [Hypothesis(list(ids[:-1]), total, total / penalty) for total, ids in candidates if ids[-1] == EOS]
        live = [(total, ids) for total, ids in candidates if ids[-1] != EOS][:beam]
    return sorted(finished, key=lambda hypothesis: -hypothesis.score)[:n_best]


def argmax_path(seed: int, number: int, limit: int) -> list[int]:
    """Always the likeliest piece, until that is the end or the limit is reached."""
    after = next_pieces(seed, number, limit - 1)
    written: tuple[int, ...] = ()
    while len(written) + 1 < limit:
        best = max([EOS, *PIECES], key=lambda piece: after[written][piece])
        if best == EOS:
            break
        written = (*written, best)
    return list(written)


def agree(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [each.ids for each in found] == [each.ids for each in expected]
    for name in ("score", "log_probability"):
        values = ([getattr(each, name) for each in some] for some in (found, expected))
        assert next(values) == pytest.approx(next(values), rel=1e-5)


@each_seed
@each_alpha
def test_a_wide_beam_finds_what_exhaustive_search_finds(seed: int, alpha: float) -> None:
    model, extra, n_best = peaked(seed), 1, 5
    # The third source allows four pieces, 3 + 1: no more than 3^4 = 81 hypotheses can live at once.
    found = search([model], side(SOURCES), 81, alpha, extra, n_best)
    for source, best in zip(SOURCES, found, strict=True):
        agree(best, exhaustive([model], source, len(source) + extra, alpha)[:n_best])


@each_seed
def test_a_wide_beam_of_an_ensemble_finds_what_exhaustive_search_finds(seed: int) -> None:
    models = [peaked(seed), peaked(seed + 100), peaked(seed + 200)]
    found = search(models, side(SOURCES), 81, 0.6, 1, 5)
    for source, best in zip(SOURCES, found, strict=True):
        agree(best, exhaustive(models, source, len(source) + 1, 0.6)[:5])


@each_seed
def test_behind_a_prefix_a_wide_beam_is_exhaustive_too(seed: int) -> None:
    model, prefixes = peaked(seed), [(5, 6), (), (4, 4, 6)]
    found = search([model], side(SOURCES), 81, 1.0, 1, 3, [list(prefix) for prefix in prefixes])
    for source, prefix, best in zip(SOURCES, prefixes, found, strict=True):
        agree(best, exhaustive([model], source, len(source) + 1, 1.0, prefix)[:3])


@pytest.mark.parametrize(("beam", "n_best"), [(2, 1), (2, 2), (3, 1), (5, 3)])
@each_alpha
def test_stopping_early_loses_nothing(beam: int, n_best: int, alpha: float) -> None:
    extra, lengths = 3, set()
    for seed in range(11):
        found = search([peaked(seed)], side(SOURCES), beam, alpha, extra, n_best)
        for number, best in enumerate(found):
            expected = patient_search(seed, number, beam, alpha, len(SOURCES[number]) + 1 + extra, n_best)
            agree(best, expected)
            lengths.add(len(expected[0].ids))
    assert len(lengths) >= 3  # these models write short and long


@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (3, 2)])
@pytest.mark.parametrize("patience", [3, 8])
def test_asking_rarely_who_is_done_changes_nothing(
    beam: int, n_best: int, patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefixes = [[], [5, 6, 4, 5], [6], *([] for _ in SOURCES[3:])][: len(SOURCES)]
    for seed in range(5):
        for begun in (None, prefixes):
            expected = search([peaked(seed)], side(SOURCES), beam, 0.6, 3, n_best, begun)
            with monkeypatch.context() as patch:
                patch.setattr(search_module, "STEPS_BETWEEN_QUESTIONS", {"cpu": patience})
                found = search([peaked(seed)], side(SOURCES), beam, 0.6, 3, n_best, begun)
            for one, other in zip(found, expected, strict=True):
                agree(one, other)


class Asking(Transformer):
    """Remembers whether cuDNN would plan for what it computes."""

    asked: ClassVar[list[bool]] = []

    def step(self, *given: Any) -> Any:
        self.asked.append(torch.backends.cuda.cudnn_sdp_enabled())
        return super().step(*given)


def test_no_step_waits_for_a_plan_that_serves_one_length_alone() -> None:
    model = Asking(TransformerConfig(layers=1, width=4, hidden=5, heads=1, longest=7), 11).eval()
    before = torch.backends.cuda.cudnn_sdp_enabled()
    search([model], side(SOURCES), 2, 0.6, 3)
    sample([model], side(SOURCES), Sampling(), 3, 0.6, torch.Generator().manual_seed(0))
    assert len(model.asked) >= 2
    assert not any(model.asked)
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


def model_that_says(steps: list[list[float]]) -> Transformer:
    """A Transformer that says at each position what it is told to, whatever was written before.

    Its sublayers are silent, its positions so large that the embeddings added to them vanish, and the last norm, whose
    gain and bias undo it, turns position t into the t-th unit vector: column t of the embedding says what comes.
    """
    width, pieces = len(steps), len(steps[0])
    config = TransformerConfig(
        layers=1, width=width, hidden=2, heads=1, norm="pre", positions="learned", longest=width, dropout=0.0
    )
    model = Transformer(config, pieces).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "output" in name or "contract" in name:
                parameter.zero_()
        model.target_embedding.weight.copy_(torch.tensor(steps).log().T)
        assert model.positions.table is not None
        model.positions.table.copy_(1e9 * torch.eye(width))
        # A unit vector of d channels has the mean 1/d and the variance 1/d - 1/d^2.
        model.decoder_norm.weight.fill_((1 / width - 1 / width**2) ** 0.5)
        model.decoder_norm.bias.fill_(1 / width)
    return model


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, []), (0.6, []), (1.0, [4] * 7)])
def test_what_begins_badly_and_goes_on_surely_is_waited_for(alpha: float, expected: list[int]) -> None:
    # First the end 0.5, a 0.3; then only a, 0.98, until the end, 0.98, at the eighth and last position.
    # Nothing scores ln 0.5 = -0.69. Seven times a has ln 0.3 + 7 ln 0.98 = -1.35, over the penalty of eight pieces,
    # 13/6: -0.62 at alpha 1, but -0.85 at 0.6. At the first step a has -1.20, which only length can make good.
    first, last = [1e-9, 1e-9, 1e-9, 0.5, 0.3, 0.1, 0.1], [1e-9, 1e-9, 1e-9, 0.98, 0.01, 0.005, 0.005]
    then = [1e-9, 1e-9, 1e-9, 0.01, 0.98, 0.005, 0.005]
    model = model_that_says([first, *[then] * 6, last])
    for beam in (2, 5):
        best = search([model], side([[4, 5]]), beam, alpha, extra=5)[0][0]
        assert best.ids == expected
        total = log(0.3) + 7 * log(0.98) if expected else log(0.5)
        assert best.log_probability == pytest.approx(total, rel=1e-4)
        assert best.score == pytest.approx(total / ((5 + len(expected) + 1) / 6) ** alpha, rel=1e-4)


def test_a_search_that_cannot_improve_stops_long_before_the_limit(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, step = [], Ensemble.step

    def counted(ensemble: Ensemble, tokens: torch.Tensor) -> torch.Tensor:
        steps.append(len(tokens))
        return step(ensemble, tokens)

    monkeypatch.setattr(Ensemble, "step", counted)
    translator.translate(["12345"])
    # A blank, five digits, the end token; the limit is 50 pieces away.
    assert 7 <= len(steps) < 20
    steps.clear()
    translator.translate(["1" * 9, "12"])
    assert steps[:2] == [2, 8]  # two sentences that begin with one hypothesis each, then have a beam of four
    assert steps[-1] == 4  # the sentence that is done has left


@each_seed
def test_a_beam_of_one_is_the_argmax_path(seed: int) -> None:
    model, extra = peaked(seed), 3
    expected = [argmax_path(seed, number, len(source) + 1 + extra) for number, source in enumerate(SOURCES)]
    for alpha in (0.0, 0.6, 1.0):
        assert [best[0].ids for best in search([model], side(SOURCES), 1, alpha, extra)] == expected


def test_a_beam_of_one_never_looks_back_and_a_beam_of_two_does() -> None:
    # First a 0.5, the end 0.4; then the end 0.6, b 0.3. The likeliest piece, then the likeliest again, is "a" with 0.3;
    # nothing at all has 0.4, and is what a wider search finds at alpha 0.
    first, last = [1e-9, 1e-9, 1e-9, 0.4, 0.5, 0.05, 0.05], [1e-9, 1e-9, 1e-9, 0.6, 0.05, 0.3, 0.05]
    model = model_that_says([first, last, last])
    greedy, wider = (search([model], side([[4, 5]]), beam, 0.0, extra=0)[0][0] for beam in (1, 2))
    assert (greedy.ids, wider.ids) == ([4], [])
    assert greedy.log_probability == pytest.approx(log(0.3), rel=1e-4)
    assert wider.log_probability == pytest.approx(log(0.4), rel=1e-4)


@each_seed
@pytest.mark.parametrize("how", [Sampling(temperature=1e-5), Sampling(top_k=1), Sampling(top_p=1e-6)], ids=str)
def test_sampling_from_almost_nothing_is_the_argmax_path(seed: int, how: Sampling) -> None:
    model, extra = peaked(seed), 3
    expected = [argmax_path(seed, number, len(source) + 1 + extra) for number, source in enumerate(SOURCES)]
    drawn = sample([model], side(SOURCES), how, extra, 0.6, torch.Generator().manual_seed(seed))
    assert [best[0].ids for best in drawn] == expected


def test_scoring_a_translation_gives_its_reported_score(translator: Translator, numbers: list[str]) -> None:
    translations = translator.translate(numbers)
    scores = translator.score(numbers, [each.text for each in translations])
    alpha = translator.decoding.alpha
    # To 1e-5 of a log-probability of some whole numbers, or of one.
    assert [each.log_probability for each in translations] == pytest.approx(
        [each.log_probability for each in scores], rel=1e-5, abs=1e-5
    )
    assert [each.score for each in translations] == pytest.approx(
        [each.normalised(alpha) for each in scores], rel=1e-5, abs=1e-5
    )


def test_a_sentence_is_translated_alone_as_in_any_company(
    translator: Translator, numbers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = numbers[:37]
    alone = [translator.translate([number])[0].text for number in numbers]
    assert [each.text for each in translator.translate(numbers)] == alone
    order = list(range(len(numbers)))
    random.Random(0).shuffle(order)
    for tokens_at_once in (401, 4096):
        monkeypatch.setattr(engines, "TOKENS_AT_ONCE", {"cpu": tokens_at_once})
        shuffled = translator.translate([numbers[n] for n in order])
        assert [each.text for each in shuffled] == [alone[n] for n in order]
    among_longer = translator.translate(["98765432109876", *numbers, "1234567890123"])
    assert [each.text for each in among_longer[1:-1]] == alone


def test_answers_come_in_the_order_of_the_questions(translator: Translator, numbers: list[str]) -> None:
    # Longest last, shortest first and mixed: whatever the batches by length did is undone.
    for texts in (sorted(numbers, key=len), sorted(numbers, key=len, reverse=True), numbers):
        right = [each.text == text[::-1] for each, text in zip(translator.translate(texts), texts, strict=True)]
        assert sum(right) >= 98
