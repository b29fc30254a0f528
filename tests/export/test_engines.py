"""Which engine translates, and where the copy it needs is kept."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch

import dragoman
from dragoman.data.store import file_sha256
from dragoman.decoding.engines import Ctranslate2Engine, TorchEngine
from dragoman.decoding.sampling import Sampling
from dragoman.decoding.search import length_penalty
from dragoman.decoding.translator import Translator
from dragoman.errors import ConfigError, DragomanError, ModelError
from dragoman.export import engines
from dragoman.export.engines import load
from dragoman.export.formats import export
from dragoman.recipe import DecodingConfig
from dragoman.saved import find_model, load_model, read_card, verify, write_card
from tests.export.conftest import Save


@pytest.fixture(scope="module")
def model(reverser: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What reverses digits, in a folder of its own."""
    return shutil.copytree(find_model(reverser, "last"), tmp_path_factory.mktemp("engines") / "model")


@pytest.fixture(scope="module")
def exact(model: Path) -> Translator:
    return load(model, device="cpu", engine="ctranslate2", decoding={"precision": "float32"})


def test_in_float32_it_finds_what_our_search_finds(
    exact: Translator, translator: Translator, numbers: list[str]
) -> None:
    assert (exact.engine.name, exact.engine.precision) == ("ctranslate2", "float32")
    theirs, ours = exact.translate(numbers, n_best=3), translator.translate(numbers, n_best=3)
    # It stops earlier than our search, which may once in a while find something better.
    alike = [(one, other) for one, other in zip(theirs, ours, strict=True) if one.text == other.text]
    assert len(alike) >= 0.98 * len(numbers)
    for one, other in alike:
        assert (one.score, one.log_probability) == pytest.approx((other.score, other.log_probability), abs=1e-4)
    for one in theirs:
        scores = [each.score for each in one.alternatives]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)


def test_in_8_bits_it_finds_nearly_the_same(model: Path, translator: Translator, numbers: list[str]) -> None:
    small = load(model, device="cpu", engine="ctranslate2")
    assert small.engine.precision == "int8"
    pairs = list(zip(small.translate(numbers), translator.translate(numbers), strict=True))
    assert sum(one.text == other.text for one, other in pairs) >= 0.9 * len(pairs)
    assert any(one.score != pytest.approx(other.score, abs=1e-5) for one, other in pairs)


def test_prefixes_are_forced_and_counted(exact: Translator, translator: Translator, numbers: list[str]) -> None:
    prefixes = [number[-1] if place % 3 else "" for place, number in enumerate(numbers[:31])]
    theirs, ours = (each.translate(numbers[:31], prefixes=prefixes) for each in (exact, translator))
    assert [each.text for each in theirs] == [each.text for each in ours]
    assert [each.score for each in theirs] == pytest.approx([each.score for each in ours], abs=1e-4)
    assert exact.translate(["12345"], prefixes=["90"])[0].text.startswith("90")


def test_what_it_scores_is_what_it_reported(exact: Translator, numbers: list[str]) -> None:
    found = exact.translate(numbers[:17])
    scores = exact.score(numbers[:17], [each.text for each in found])
    assert [each.log_probability for each in scores] == pytest.approx(
        [each.log_probability for each in found], abs=1e-4
    )


@pytest.mark.parametrize("extra", [0, 3])
def test_what_never_ends_is_cut_at_its_own_limit_and_scored(save: Save, extra: int) -> None:
    """Random weights hardly ever write the end token; the sentences of a batch have limits of their own."""
    saved = save()
    translator = load(saved.folder, engine="ctranslate2", decoding={"precision": "float32", "extra": extra, "beam": 3})
    sources = [[70], [71, 72, 73], [74, 75, 76, 77, 78, 79, 80]]
    found = translator.engine.search(sources, translator.decoding, 3, None)
    for source, hypotheses in zip(sources, found, strict=True):
        assert [len(each.ids) for each in hypotheses] == [len(source) + extra] * len(hypotheses)
        assert len({tuple(each.ids) for each in hypotheses}) == len(hypotheses)
        scores = translator.engine.score([source] * len(hypotheses), [each.ids for each in hypotheses])
        for each, score in zip(hypotheses, scores, strict=True):
            assert each.log_probability == pytest.approx(score.log_probability, abs=1e-4)
            assert each.score == pytest.approx(score.log_probability / length_penalty(len(each.ids) + 1, 0.6), abs=1e-4)


def test_padding_unknown_and_beginning_are_never_written(save: Save) -> None:
    saved = save()
    embedding = saved.model.target_embedding.weight  # type: ignore[union-attr]
    with torch.no_grad():  # the likeliest piece of all, again and again, is one of these
        saved.model.decoder[-1].feed_forward_residual.norm.weight.zero_()  # type: ignore[index, union-attr]
        saved.model.decoder[-1].feed_forward_residual.norm.bias.copy_(torch.eye(21)[0])  # type: ignore[index, union-attr]
        embedding[:, 0] = torch.linspace(0, 1, len(embedding))  # type: ignore[arg-type, index]
        embedding[:3, 0] = torch.tensor([7.0, 8.0, 9.0])  # type: ignore[index]
    engine = engines.converted_copy(saved, "float32", "cpu")
    decoding, sources = DecodingConfig(beam=3, extra=2), [[70, 71], [72]]
    theirs, ours = (each.search(sources, decoding, 3, None) for each in (engine, TorchEngine([saved.model])))
    assert all(theirs)
    for one, other in zip(theirs, ours, strict=True):
        assert one[0].ids == other[0].ids
        assert one[0].score == pytest.approx(other[0].score, abs=1e-4)


def copies(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "converted").glob("*"))


def test_the_copy_is_kept_and_leaves_the_model_whole(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save().folder
    card = (folder / "card.json").read_bytes()
    first = load(folder, engine="ctranslate2")
    (kept,) = copies(folder)
    assert verify(folder)
    assert (folder / "card.json").read_bytes() == card
    monkeypatch.setattr(engines, "export", lambda *_: pytest.fail("converted again"))
    again = load(folder, engine="ctranslate2")
    assert copies(folder) == [kept]
    assert [each.text for each in first.translate(["abc"])] == [each.text for each in again.translate(["abc"])]
    write_card(folder, read_card(folder) | {"scores": []})  # another score is not another model
    load(folder, engine="ctranslate2")


def test_a_copy_that_lies_there_is_verified_once(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read = save().folder, list[Path]()
    load(folder, engine="ctranslate2")

    def counted(path: Path) -> str:
        read.append(path)
        return file_sha256(path)

    monkeypatch.setattr("dragoman.saved.file_sha256", counted)
    load(folder, engine="ctranslate2")
    (kept,) = (folder / "converted").iterdir()
    assert sorted(path for path in read if path.parent == kept) == sorted(set(kept.iterdir()) - {kept / "card.json"})


def test_a_copy_that_is_damaged_or_of_another_model_is_made_anew(save: Save) -> None:
    folder = save().folder
    load(folder, engine="ctranslate2")
    (kept,) = copies(folder)
    (folder / "converted" / kept / "model.bin").write_bytes(b"nonsense")
    load(folder, engine="ctranslate2")
    assert verify(folder / "converted" / kept)
    other = save("other", hidden=31).folder
    for file in other.iterdir():
        shutil.copy(file, folder / file.name)
    load(folder, engine="ctranslate2")
    (new,) = copies(folder)
    assert new != kept


def test_where_no_copy_can_be_kept_one_is_made_for_the_moment(save: Save) -> None:
    folder = save().folder
    (folder / "converted").write_text("a file where a folder should be")
    assert load(folder, engine="ctranslate2").translate(["abc def"])
    assert (folder / "converted").read_text() == "a file where a folder should be"


def test_auto_takes_what_loses_nothing(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save().folder
    held, odd = load_model(folder).folder, save("odd", window=3).folder

    def chosen(*folders: Path, **given: object) -> str:
        return load(*folders, device="cpu", engine="auto", **given).engine.name  # type: ignore[arg-type]

    assert chosen(held) == "ctranslate2"
    assert chosen(odd) == chosen(held, held) == chosen(held, decoding={"precision": "float32"}) == "torch"
    assert load(held, device="cpu").engine.name == dragoman.load(held, device="cpu").engine.name == "torch"
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    assert chosen(held) == "torch"


def test_auto_says_when_a_copy_was_not_like_its_model(
    save: Save, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unlike(*_: object) -> None:
        raise ModelError("model", "not exported: sample 1")

    monkeypatch.setattr(engines, "export", unlike)
    folder = save().folder
    with caplog.at_level(logging.WARNING):
        assert load(folder, device="cpu", engine="auto").engine.name == "torch"
    assert "not exported: sample 1; computing with torch instead" in caplog.text
    with pytest.raises(ModelError, match="not exported: sample 1"):
        load(folder, device="cpu", engine="ctranslate2")


def test_what_ctranslate2_cannot_do_is_said(save: Save) -> None:
    folder, odd = save().folder, save("odd", window=3).folder
    with pytest.raises(ModelError, match=r"ctranslate2 cannot hold 'model\.window' = 3"):
        load(odd, engine="ctranslate2")
    with pytest.raises(ConfigError, match="--engine ctranslate2: takes one model, not an ensemble"):
        load(folder, folder, engine="ctranslate2")
    with pytest.raises(ConfigError, match="multiplies in float32, or as it sees fit, got bf16"):
        load(folder, engine="ctranslate2", decoding={"precision": "bf16"})
    with pytest.raises(ConfigError, match="computes on cpu and cuda, got --device mps"):
        engines._device_of("mps")


def test_an_export_translates_by_itself(exact: Translator, model: Path, tmp_path: Path, numbers: list[str]) -> None:
    export(load_model(model), "ctranslate2", "float32", tmp_path / "out")
    alone = load(tmp_path / "out", device="cpu", engine="auto")
    assert isinstance(alone.engine, Ctranslate2Engine)
    assert alone.translate(numbers[:7]) == exact.translate(numbers[:7])
    assert alone.loss(numbers[:7], numbers[:7]) == exact.loss(numbers[:7], numbers[:7])
    for ask in (lambda: alone.attention("12", "21"), lambda: alone.translate(["12"], sampling=Sampling())):
        with pytest.raises(ModelError, match="a converted copy neither draws nor shows attention"):
            ask()
    refused: list[tuple[dict[str, object], str]] = [
        ({"engine": "torch"}, "it takes --engine ctranslate2, and no model beside it"),
        ({"engine": "auto", "decoding": {"precision": "bf16"}}, "holds float32, got bf16"),
    ]
    for given, said in refused:
        with pytest.raises(DragomanError, match=said):
            load(tmp_path / "out", **given)  # type: ignore[arg-type]
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    write_card(tmp_path / "out", card | {"export": card["export"] | {"format": "marian"}})
    with pytest.raises(
        ModelError, match="an export for marian: only a model, or an export for ctranslate2, translates"
    ):
        load(tmp_path / "out")
