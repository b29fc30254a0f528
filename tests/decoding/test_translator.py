"""From text to text with a model that has learned to reverse digits."""

from pathlib import Path

import pytest
import torch

import dragoman
from dragoman.batch import EOS, Side
from dragoman.data.vocabulary import Vocabulary, train_vocabulary
from dragoman.decoding import engines
from dragoman.decoding.sampling import Sampling
from dragoman.decoding.search import Hypothesis, search
from dragoman.decoding.translator import Translator
from dragoman.errors import ConfigError, DataError, ModelError
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.recipe import DecodingConfig
from dragoman.saved import find_model, load_model, save_model


@pytest.fixture
def short_sighted(reverser: Path) -> Translator:
    """The same model with seven positions: six pieces and the end token."""
    whole = dragoman.load(reverser, checkpoint="last", device="cpu")
    whole.models[0].longest = 7
    return Translator(whole.models, whole.source_vocabulary, whole.target_vocabulary, whole.decoding)


def parts_of(translator: Translator, text: str, most: int = 6) -> list[list[Hypothesis]]:
    """What search makes of each run of so many pieces by itself."""
    ids, decoding = translator.encode([text])[0], translator.decoding
    found = []
    for start in range(0, len(ids), most):
        source = Side.of([[*ids[start : start + most], EOS]])
        found += search(translator.models, source, decoding.beam, decoding.alpha, decoding.extra)
    return found


def test_the_package_offers_its_names_and_no_others() -> None:
    assert dragoman.Translator is Translator
    assert all(getattr(dragoman, name) is not None for name in dragoman.__all__)
    with pytest.raises(AttributeError, match="no attribute 'translate'"):
        dragoman.translate  # noqa: B018


def test_blank_lines_are_answered_with_empty_ones_in_their_places(translator: Translator) -> None:
    texts = ["", "12", "   ", "\t", "345", "\u00a0\u3000"]
    found = translator.translate(texts)
    assert [bool(each.text) for each in found] == [False, True, False, False, True, False]
    expected = iter(translator.translate(["12", "345"]))
    assert [each.text for each in found if each.text] == [each.text for each in expected]
    assert found[0].alternatives == []
    assert translator.translate([]) == []


def test_alternatives_are_sorted_distinct_and_begin_with_the_translation(
    translator: Translator, numbers: list[str]
) -> None:
    for each in translator.translate(numbers[:11], n_best=5):
        assert len(each.alternatives) == 5
        first = each.alternatives[0]
        assert (first.text, first.score, first.log_probability) == (each.text, each.score, each.log_probability)
        scores = [one.score for one in each.alternatives]
        assert scores == sorted(scores, reverse=True)
        assert not any(one.alternatives for one in each.alternatives)
    assert [len(each.alternatives) for each in translator.translate(numbers[:3])] == [1, 1, 1]


@pytest.mark.parametrize("extra", [0, 1, 5])
def test_a_translation_that_never_ends_is_cut_so_many_pieces_beyond_its_source(
    translator: Translator, extra: int
) -> None:
    # A model whose last norm says the same at every position, so that the first column of the embedding is its logits:
    # "1" is e^10 times as likely as anything else, the end included.
    vocabulary = translator.target_vocabulary
    config = TransformerConfig(layers=1, width=3, hidden=5, heads=1, longest=31)
    model = Transformer(config, len(vocabulary)).eval()
    last = model.decoder[-1].feed_forward_residual.norm
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
        model.target_embedding.weight[:, 0] = 0.0
        model.target_embedding.weight[vocabulary.encode(["1"])[0][-1], 0] = 10.0
    endless = Translator([model], vocabulary, vocabulary, DecodingConfig(extra=extra, alpha=1.0))
    texts = ["7", "123", "4567890"]
    expected = ["1" * (1 + len(text) + extra) for text in texts]  # a blank comes before the digits
    assert [each.text for each in endless.translate(texts)] == expected
    cold = Sampling(temperature=0.1)
    assert [each.text for each in endless.translate(texts, sampling=cold)] == expected


def test_a_text_longer_than_the_model_is_translated_in_parts(short_sighted: Translator) -> None:
    for text in ("123456789", "12345", "123456", "98765432109876543210"):
        found = short_sighted.translate([text])[0]
        parts = [best[0] for best in parts_of(short_sighted, text)]
        assert len(parts) == -(-(len(text) + 1) // 6)  # a blank comes before the digits
        ids = [id for part in parts for id in part.ids]
        assert found.text == short_sighted.target_vocabulary.decode([ids])[0]
        assert found.log_probability == pytest.approx(sum(part.log_probability for part in parts), rel=1e-5)
        assert found.score == pytest.approx(sum(part.score for part in parts) / len(parts), rel=1e-5)


def test_where_memory_runs_out_less_is_translated_at_once(
    translator: Translator, numbers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [each.text for each in translator.translate(numbers)]
    tried: list[int] = []

    def short_of_memory(models: object, source: Side, *rest: object) -> list[list[Hypothesis]]:
        tried.append(len(source.ids))
        if len(source.ids) > 7:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return search(models, source, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(engines, "search", short_of_memory)
    assert [each.text for each in translator.translate(numbers)] == expected
    assert max(tried) > 7

    def no_memory(*_: object) -> list[list[Hypothesis]]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(engines, "search", no_memory)
    with pytest.raises(torch.OutOfMemoryError):
        translator.translate(numbers)


def test_half_precision_writes_nearly_the_same(translator: Translator, reverser: Path, numbers: list[str]) -> None:
    halved = dragoman.load(reverser, checkpoint="last", device="cpu", decoding={"precision": "bf16"})
    assert {parameter.dtype for parameter in halved.models[0].parameters()} == {torch.bfloat16}
    pairs = zip(halved.translate(numbers), translator.translate(numbers), strict=True)
    assert sum(half.text == whole.text for half, whole in pairs) >= 0.95 * len(numbers)


def test_settings_replace_those_of_the_recipe(reverser: Path) -> None:
    given = {"beam": 7, "alpha": 0.25}
    own = dragoman.load(reverser, device="cpu").decoding
    assert dragoman.load(reverser, device="cpu", decoding=given).decoding == own.model_copy(update=given) != own
    with pytest.raises(ConfigError, match=r"unknown key 'beams', did you mean 'beam'\?"):
        dragoman.load(reverser, device="cpu", decoding={"beams": 7})


def test_parts_may_be_shorter_than_the_model_allows(reverser: Path) -> None:
    text = "12345678901"
    for most in (1, 4, 11, 12):
        whole = dragoman.load(reverser, checkpoint="last", device="cpu", decoding={"longest": most, "extra": 3})
        parts = [best[0].ids for best in parts_of(whole, text, most)]
        assert len(parts) == -(-12 // most)
        expected = whole.target_vocabulary.decode([[id for part in parts for id in part]])[0]
        assert whole.translate([text])[0].text == expected


def test_texts_in_parts_stay_in_order_among_others(short_sighted: Translator) -> None:
    texts = ["12", "98765432109876543210", "", "123456789", "7"]
    alone = [short_sighted.translate([text])[0].text for text in texts]
    assert [each.text for each in short_sighted.translate(texts)] == alone
    assert [each.text for each in short_sighted.translate(texts[::-1])] == alone[::-1]


def test_a_prefix_begins_a_text_in_parts_once(short_sighted: Translator) -> None:
    found = short_sighted.translate(["123456789"], prefixes=["54"])[0]
    second = short_sighted.target_vocabulary.decode([parts_of(short_sighted, "123456789")[1][0].ids])[0]
    assert found.text.startswith("54")
    assert found.text.endswith(second)  # the second part is free


def test_prefixes_are_forced_and_what_follows_is_free(translator: Translator, numbers: list[str]) -> None:
    free = [each.text for each in translator.translate(numbers[:31])]
    forced = translator.translate(numbers[:31], prefixes=[text[:2] for text in free])
    assert [each.text for each in forced] == free
    for number, each in zip(numbers, translator.translate(numbers[:31], prefixes=["90"] * 31), strict=False):
        assert each.text.startswith("90")
        assert each.text != "90" or len(number) == 2
    assert [each.text for each in translator.translate(numbers[:31], prefixes=[""] * 31)] == free


def test_a_forced_prefix_lowers_the_score_of_a_sure_model(translator: Translator) -> None:
    free, forced = translator.translate(["12345"] * 2, prefixes=["", "90"])
    assert forced.log_probability < free.log_probability
    score = translator.score(["12345"], [forced.text])[0]
    assert forced.log_probability == pytest.approx(score.log_probability, rel=1e-4)


def test_prefixes_that_cannot_be_are_refused(translator: Translator) -> None:
    with pytest.raises(DataError, match="one for each text is needed, got 1 for 2 texts"):
        translator.translate(["12", "34"], prefixes=["1"])
    with pytest.raises(DataError, match=f"prefix 2: longer than the model's {translator.longest} positions"):
        translator.translate(["12", "34"], prefixes=["1", "1" * (translator.longest + 1)])


def test_what_is_drawn_begins_with_its_prefix(translator: Translator, numbers: list[str]) -> None:
    hot = Sampling(temperature=3.0)
    drawn = translator.translate(numbers[:7], prefixes=["90", ""] * 3 + ["4"], sampling=hot, n_best=5)
    for prefix, each in zip(["90", ""] * 3 + ["4"], drawn, strict=True):
        assert all(one.text.startswith(prefix) for one in each.alternatives)
        assert len({one.text for one in each.alternatives}) > 1


def test_a_prefix_that_the_model_cannot_write_is_refused() -> None:
    proto = train_vocabulary(lambda: ["abcdefghij abc"] * 9, 11, "bpe", byte_fallback=False)
    model = Transformer(TransformerConfig(layers=1, width=6, hidden=7, heads=3), len(Vocabulary(proto)))
    spelled_in_letters = Translator([model.eval()], Vocabulary(proto), Vocabulary(proto), DecodingConfig())
    with pytest.raises(DataError, match="prefix 2: has characters the model never writes, got 'aé'"):
        spelled_in_letters.translate(["abc", "abc"], prefixes=["ab", "aé"])
    assert spelled_in_letters.translate(["abc"], prefixes=["ab"])[0].text.startswith("ab")


def test_no_translation_holds_the_end_of_a_line(translator: Translator) -> None:
    # The end of a line has a byte piece, so a prefix can force the model to write it.
    assert "\n" in translator.target_vocabulary.decode(translator.target_vocabulary.encode(["1\n2"]))[0]
    for each in translator.translate(["12345"] * 2, n_best=3, prefixes=["5\n4", "\r\n"]):
        for one in (each, *each.alternatives):
            assert not set(one.text) & set("\r\n")
    assert translator.translate(["12345"], prefixes=["5\n4"])[0].text.startswith("5 4")


def test_a_draw_is_decided_by_its_seed_and_likely_when_cold(translator: Translator, numbers: list[str]) -> None:
    hot = Sampling(temperature=2.0)
    draws = [[each.text for each in translator.translate(numbers[:7], sampling=hot, seed=seed)] for seed in (1, 1, 2)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]
    cold = [each.text for each in translator.translate(numbers, sampling=Sampling(temperature=1e-4))]
    greedy = Translator(
        translator.models, translator.source_vocabulary, translator.target_vocabulary, DecodingConfig(beam=1)
    )
    assert cold == [each.text for each in greedy.translate(numbers)]


def test_several_draws_are_alternatives(translator: Translator) -> None:
    found = translator.translate(["123456", "7"], n_best=13, sampling=Sampling(temperature=2.0))
    for each in found:
        assert len(each.alternatives) == 13
        scores = [one.score for one in each.alternatives]
        assert scores == sorted(scores, reverse=True)
    assert len({one.text for one in found[0].alternatives}) > 1


def test_an_ensemble_of_a_run_with_itself_is_the_run(
    reverser: Path, translator: Translator, numbers: list[str]
) -> None:
    twins = dragoman.load(find_model(reverser, "last"), find_model(reverser, "last"), device="cpu")
    assert len(twins.models) == 2
    alone, together = (each.translate(numbers[:31]) for each in (translator, twins))
    assert [each.text for each in together] == [each.text for each in alone]
    assert [each.score for each in together] == pytest.approx([each.score for each in alone], rel=1e-5, abs=1e-6)


def test_an_ensemble_of_two_checkpoints_is_scored_by_their_mean(reverser: Path, numbers: list[str]) -> None:
    checkpoints = [reverser / "checkpoints" / f"step-{step}" for step in (350, 700)]
    both = dragoman.load(*checkpoints, device="cpu")
    apart = [dragoman.load(each, device="cpu") for each in checkpoints]
    found = both.translate(numbers[:13])
    texts = [each.text for each in found]
    scores = [[score.log_probability for score in each.score(numbers[:13], texts)] for each in apart]
    means = [sum(each) / 2 for each in zip(*scores, strict=True)]
    assert scores[0] != pytest.approx(scores[1], rel=1e-3)
    assert [each.log_probability for each in found] == pytest.approx(means, rel=1e-4, abs=1e-5)


def test_models_of_different_vocabularies_are_no_ensemble(reverser: Path, tmp_path: Path) -> None:
    saved = load_model(reverser, "last")
    other = Vocabulary(train_vocabulary(lambda: ["abcdefghij abc"] * 9, 11, "bpe", byte_fallback=True))
    assert len(other) == len(saved.target_vocabulary)
    save_model(tmp_path / "other", saved.model, saved.recipe, (other, other), {})
    with pytest.raises(ModelError, match="its vocabulary is not that of"):
        dragoman.load(reverser, tmp_path / "other", device="cpu")


def test_attention_has_a_map_for_every_layer_and_head(translator: Translator) -> None:
    source, target = "1234567", "7654"
    maps = translator.attention(source, target)
    assert maps.source_pieces == ["▁", *source, "</s>"]
    assert maps.target_pieces == ["▁", *target, "</s>"]
    assert maps.read_pieces == ["<s>", "▁", *target]
    assert maps.encoder.shape == (2, 4, 9, 9)
    assert maps.decoder.shape == (2, 4, 6, 6)
    assert maps.cross.shape == (2, 4, 6, 9)
    for weights in (maps.encoder, maps.decoder, maps.cross):
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert not maps.decoder.triu(diagonal=1).any()


def test_a_model_that_reverses_looks_at_its_source_backwards(translator: Translator, numbers: list[str]) -> None:
    hits, places = torch.zeros(2, 4), 0
    for number in [number for number in numbers if len(number) >= 5][:23]:
        cross = translator.attention(number, number[::-1]).cross
        # Position 0 of either side is the blank; the digit that is written at i stands at n + 1 - i.
        digits = torch.arange(1, len(number) + 1)
        hits += (cross.argmax(-1)[:, :, digits] == len(number) + 1 - digits).sum(-1)
        places += len(number)
    assert hits.max().item() / places > 0.7


def test_too_long_a_pair_is_refused_by_name(short_sighted: Translator) -> None:
    fits, too_long = "12345", "123456"  # with the blank six pieces, and seven
    assert len(short_sighted.score([fits], [fits[:3]])) == 1
    assert short_sighted.attention(fits, fits[:3]).cross.shape[2:] == (5, 7)
    refusals = [
        ("source 2", lambda: short_sighted.score([fits, too_long], [fits, fits])),
        ("target 1", lambda: short_sighted.score([fits], [too_long])),
        ("source", lambda: short_sighted.attention(too_long, fits)),
        ("target", lambda: short_sighted.attention(fits, too_long)),
    ]
    for where, ask in refusals:
        with pytest.raises(DataError, match=f"^{where}: longer than the model's 6 positions, got 7 pieces"):
            ask()


def test_half_a_character_is_survived_wherever_text_is_given(translator: Translator) -> None:
    broken = "12\ud80034"
    assert translator.translate([broken])[0].text == translator.translate(["12?34"])[0].text
    assert translator.translate(["12"], prefixes=[broken])[0].text.startswith("12")
    assert translator.score([broken], [broken])[0] == translator.score(["12?34"], ["12?34"])[0]
    assert len(translator.attention(broken, broken).source_pieces) == 7
