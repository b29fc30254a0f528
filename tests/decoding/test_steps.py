"""Decoding in slow motion."""

import re
from ast import literal_eval
from pathlib import Path

import pytest
import torch

from dragoman.batch import EOS
from dragoman.decoding.steps import SHOWN, follow_choices, show_steps, watch_beam
from dragoman.decoding.translator import Translator
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.recipe import DecodingConfig

LINE = re.compile(r" *(\d+)  (['\"].*['\"])  ->  (.*)  \(looking at (.*)\)")


def untrained(translator: Translator, seed: int, longest: int = 23) -> Translator:
    """A model with the same pieces that has learned nothing, and writes any bytes."""
    torch.manual_seed(seed)
    config = TransformerConfig(layers=1, width=11, hidden=17, heads=1, longest=longest, norm="pre", positions="learned")
    model = Transformer(config, len(translator.target_vocabulary)).eval()
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.mul_(3)
    vocabulary = translator.target_vocabulary
    return Translator([model], vocabulary, vocabulary, DecodingConfig(extra=5))


def read(line: str) -> tuple[int, str, list[tuple[str, float]], str]:
    """Number, what is there so far, the candidates with their shares, and the source piece looked at."""
    found = LINE.fullmatch(line)
    assert found is not None, line
    candidates = [pair.rsplit(" ", 1) for pair in found[3].split("  ")]
    return int(found[1]), literal_eval(found[2]), [(piece, float(share)) for piece, share in candidates], found[4]


def test_each_step_shows_five_candidates_until_the_end_is_the_best(translator: Translator) -> None:
    for text in ("1234567", "90", "5"):
        lines = [read(str(line)) for line in show_steps(translator, text)]
        assert [number for number, *_ in lines] == list(range(1, len(lines) + 1))
        for _, _, candidates, _ in lines:
            assert len(candidates) == SHOWN == 5
            assert len({piece for piece, _ in candidates}) == 5
            shares = [share for _, share in candidates]
            assert shares == sorted(shares, reverse=True)
            assert 0 < sum(shares) <= 1.003  # each is rounded to three places
        best = [candidates[0][0] for _, _, candidates, _ in lines]
        assert best[-1] == "</s>"
        assert "</s>" not in best[:-1]


def test_each_step_begins_with_what_the_steps_before_have_written(translator: Translator) -> None:
    lines = [read(str(line)) for line in show_steps(translator, "1234567")]
    written = ""
    for _, so_far, candidates, _ in lines:
        assert so_far == written.replace("▁", " ").removeprefix(" ")
        written += candidates[0][0]


def test_the_steps_write_what_greedy_search_writes(translator: Translator, reversals: Path) -> None:
    vocabulary = translator.target_vocabulary
    greedy = Translator(translator.models, vocabulary, vocabulary, DecodingConfig(beam=1))
    for text in (reversals / "test.fwd").read_text().split()[:13]:
        *_, last = show_steps(translator, text)
        assert read(str(last))[1] == greedy.translate([text])[0].text


def test_shares_are_the_model_s_own(translator: Translator) -> None:
    text = "1234567"
    lines = [read(str(line)) for line in show_steps(translator, text)]
    total = translator.score([text], [lines[-1][1]])[0].log_probability
    product = 1.0
    for _, _, candidates, _ in lines:
        product *= candidates[0][1]
    # Shares are rounded to three places: each of the nine may be off by 0.0005 of at least 0.5, in all by 1 %.
    assert product == pytest.approx(torch.tensor(total).exp().item(), rel=0.01)


def test_a_translation_that_is_given_is_stepped_through(translator: Translator) -> None:
    ids, forced = translator.encode(["1234567"])[0], translator.target_vocabulary.encode(["7 1"])[0]
    steps = follow_choices(translator, ids, forced)
    assert [step.written for step in steps] == [forced[:n] for n in range(len(forced) + 1)]
    assert [step.chosen.id for step in steps] == [*forced, EOS]
    product = torch.tensor([step.chosen.probability for step in steps]).log().sum()
    assert product.item() == pytest.approx(translator.score(["1234567"], ["7 1"])[0].log_probability, rel=1e-4)


def test_the_beam_that_is_watched_is_the_search_s(translator: Translator) -> None:
    (best,) = translator.translate(["1234567"])
    steps, found = watch_beam(translator, translator.encode(["1234567"])[0])
    assert translator.target_vocabulary.decode([found[0].ids])[0] == best.text
    assert found[0].score == pytest.approx(best.score, rel=1e-5)
    for number, step in enumerate(steps, start=1):
        assert {len(each.ids) for each in step} <= {number}
        shares = [each.log_probability for each in step]
        assert shares == sorted(shares, reverse=True)
        assert len(step) <= translator.decoding.beam
    for number in range(1, len(found[0].ids) + 1):
        assert found[0].ids[:number] in [each.ids for each in steps[number - 1]]


def test_what_was_looked_at_is_what_attention_says(translator: Translator) -> None:
    text = "1234567"
    lines = [read(str(line)) for line in show_steps(translator, text)]
    maps = translator.attention(text, lines[-1][1])
    most = maps.cross[-1].mean(0).argmax(-1).tolist()
    assert [piece for *_, piece in lines] == [maps.source_pieces[place] for place in most]


def test_a_blank_text_has_no_steps(translator: Translator) -> None:
    assert show_steps(translator, "") == show_steps(translator, " \t") == []


@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_writes_nonsense_is_shown_too_and_ends_at_the_limit(translator: Translator, seed: int) -> None:
    lines = [read(str(line)) for line in show_steps(untrained(translator, seed), "123")]
    # A blank, three digits and the end token, and five pieces more.
    assert len(lines) <= 5 + 5
    assert lines[-1][2][0][0] == "</s>"


def test_a_text_longer_than_the_model_is_shown_as_far_as_it_goes(translator: Translator) -> None:
    lines = [read(str(line)) for line in show_steps(untrained(translator, 0, longest=7), "123456789")]
    assert 1 <= len(lines) <= 7
