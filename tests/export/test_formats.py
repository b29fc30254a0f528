"""Every format: what goes out does what the model does, and what cannot go out is said, all at once."""

import json
from pathlib import Path
from typing import Literal

import pytest
import torch

from dragoman.errors import ConfigError, ModelError
from dragoman.export import ctranslate2, formats
from dragoman.export.formats import export
from dragoman.export.support import Format, unsupported
from dragoman.models.transformer import TransformerConfig
from dragoman.recipe import Recipe, read_recipe
from dragoman.saved import load_model, verify, weights_sha256
from tests.export.conftest import Save

ODDITIES: dict[str, dict[str, object]] = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "rms": {"norm_kind": "rms"},
    "swiglu": {"feed_forward": "swiglu"},
    "rotary": {"positions": "rotary", "heads": 3, "width": 18},
    "learned": {"positions": "learned"},
    "no positions": {"positions": "none"},
    "grouped": {"key_heads": 1},
    "shallow": {"decoder_layers": 1},
    "two vocabularies": {"shared": False},
}
ODDITIES["all"] = {key: value for shape in list(ODDITIES.values())[1:5] for key, value in shape.items()} | {
    "key_heads": 1
}


@pytest.mark.parametrize("shape", ODDITIES.values(), ids=ODDITIES)
def test_ctranslate2_finds_what_we_find(save: Save, tmp_path: Path, shape: dict[str, object]) -> None:
    saved = save(**shape)
    before = weights_sha256(dict(saved.model.named_parameters()))
    parity = export(saved, "ctranslate2", "float32", tmp_path / "out")
    assert parity.same_translations == parity.sentences == 8
    assert parity.score_difference < 1e-5
    assert export(saved, "ctranslate2", "int8", tmp_path / "small").score_difference > 1e-5
    assert weights_sha256(dict(saved.model.named_parameters())) == before  # what quantises writes into its own copy
    card = verify(tmp_path / "out")
    assert card["export"]["format"] == "ctranslate2"
    assert card["export"]["parity"] == parity.values()
    assert (card["languages"], card["weights_sha256"]) == (["en", "de"], before)


@pytest.mark.parametrize("shape", [{}, {"width": 22, "heads": 2, "decoder_layers": 3}, {"shared": False}], ids=str)
def test_marian_finds_what_we_find(save: Save, tmp_path: Path, shape: dict[str, object]) -> None:
    parity = export(save(**shape), "marian", "float32", tmp_path / "out")
    assert parity.same_translations == parity.sentences == 8
    assert parity.score_difference < 1e-5


@pytest.mark.slow  # the exporter takes its time
@pytest.mark.parametrize(
    "shape", [{"window": 3, "key_width": 5, "value_width": 11}, ODDITIES["all"]], ids=["own", "all"]
)
def test_onnxruntime_finds_what_we_find(save: Save, tmp_path: Path, shape: dict[str, object]) -> None:
    saved = save(**shape | {"layers": 1})
    parity = export(saved, "onnx", "float32", tmp_path / "out")
    assert parity.same_translations == parity.sentences == 8
    assert parity.score_difference < 1e-5
    batched = _greedy_onnx(tmp_path / "out", [[70, 81, 92], [70, 81, 92, 103, 74], [93]], pieces=7)
    alone = [_greedy_onnx(tmp_path / "out", [ids], pieces=7)[0] for ids in ([70, 81, 92], [70, 81, 92, 103, 74], [93])]
    assert batched == alone


def _greedy_onnx(folder: Path, sources: list[list[int]], pieces: int) -> list[list[int]]:
    """The loop of docs/guides/exports.md, word for word."""
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "exports.md").read_text(encoding="utf-8")
    block = guide.split("```python\n")[-1].split("```")[0]
    names: dict[str, object] = {"folder": folder, "sources": sources, "pieces": pieces}
    exec(compile(block, "exports.md", "exec"), names)
    written = names["written"]
    assert isinstance(written, list)
    return written


WRONG = {"window": 2, "key_width": 4, "value_width": 5, "norm": "pre", "norm_kind": "rms", "feed_forward": "swiglu"}


def test_all_that_a_format_cannot_hold_is_named_at_once(save: Save, tmp_path: Path) -> None:
    saved = save(nfkc=True, positions="learned", key_heads=1, **WRONG)
    with pytest.raises(ModelError) as error:
        export(saved, "marian", "int8", tmp_path / "new" / "out")
    said = error.value.what.splitlines()
    assert all(line.startswith("marian cannot hold ") for line in said)
    assert [line.removeprefix("marian cannot hold ") for line in said] == [
        "'model.key_width' = 4",
        "'model.value_width' = 5",
        "'model.key_heads' = 1",
        "'model.feed_forward' = 'swiglu'",
        "'model.positions' = 'learned'",
        "'model.norm' = 'pre'",
        "'model.norm_kind' = 'rms'",
        "'model.window' = 2",
        "'data.source_nfkc' = true",
        "--precision int8 (it is float32)",
    ]
    assert unsupported(saved.recipe, "ctranslate2") == [
        f"'model.{key}' = {WRONG[key]}" for key in ("key_width", "value_width", "window")
    ]
    assert unsupported(saved.recipe, "onnx") == []
    assert not (tmp_path / "new").exists()


def test_widths_that_are_said_but_are_the_usual_ones_do_no_harm() -> None:
    config = TransformerConfig(width=24, heads=4, key_width=6, value_width=6, key_heads=4)
    assert unsupported(Recipe(model=config), "marian") == []


@pytest.mark.parametrize("format", ["ctranslate2", "marian", "onnx"])
def test_only_transformers_go_out(format: Format) -> None:
    assert unsupported(read_recipe("systems/bahdanau"), format) == ["'model.kind' = 'recurrent', only a Transformer"]


def test_a_rotation_of_odd_channels_is_not_theirs() -> None:
    config = TransformerConfig(width=21, heads=3, positions="rotary")
    assert unsupported(Recipe(model=config), "ctranslate2") == [
        "'model.positions' = 'rotary' with an odd 'model.key_width' = 7"
    ]


@pytest.mark.parametrize("kind", ["batch", "none"])
@pytest.mark.parametrize("format", ["ctranslate2", "marian"])
def test_norms_of_which_they_know_nothing_are_refused(format: Format, kind: Literal["batch", "none"]) -> None:
    recipe = Recipe(model=TransformerConfig(norm_kind=kind, residual=False))
    expected = [f"'model.norm_kind' = {kind!r}", "'model.residual' = false"]
    assert sorted(unsupported(recipe, format)) == expected


def test_what_does_not_do_the_same_is_not_written(save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = save()
    fill = ctranslate2._fill_norm

    def wrong(spec: object, norm: torch.nn.Module) -> None:
        fill(spec, norm)
        spec.gamma = norm.weight * 1.2  # type: ignore[attr-defined, operator]

    monkeypatch.setattr(ctranslate2, "_fill_norm", wrong)
    with pytest.raises(ModelError, match=r"sample 1: scores [\d.]+ a piece apart, more than 0.001"):
        export(saved, "ctranslate2", "float32", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_is_there_stays_as_it_is(save: Save, tmp_path: Path) -> None:
    saved = save()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis").write_text("mine")
    for place in (tmp_path / "full", tmp_path / "full" / "thesis"):
        with pytest.raises(ModelError, match="already exists"):
            export(saved, "ctranslate2", "float32", place)
    assert (tmp_path / "full" / "thesis").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    export(saved, "ctranslate2", "float32", tmp_path / "empty")


def test_what_is_missing_is_named_with_what_installs_it(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="onnx, onnxruntime, onnxscript is not installed") as error:
        export(save(), "onnx", "float32", tmp_path / "out")
    assert error.value.hint == "pip install 'dragoman[onnx]'"


def test_an_export_is_no_model(save: Save, tmp_path: Path) -> None:
    export(save(), "ctranslate2", "float32", tmp_path / "out")
    with pytest.raises(ModelError, match="an export for ctranslate2, not a model"):
        load_model(tmp_path / "out")


def test_ctranslate2_reads_the_folder_by_itself(save: Save, tmp_path: Path) -> None:
    """Vocabularies, roles of the specials and the end of the source: a bare Translator needs nothing of ours."""
    import ctranslate2 as theirs

    saved = save()
    export(saved, "ctranslate2", "float32", tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["unk_token"], config["bos_token"], config["eos_token"]) == ("<unk>", "<s>", "</s>")
    assert (config["decoder_start_token"], config["add_source_eos"]) == ("<s>", True)
    source, target = saved.source_vocabulary.encode(["abc def", "ghi"])
    translator = theirs.Translator(str(tmp_path / "out"))
    pieces = [saved.source_vocabulary.pieces(ids) for ids in (source, target)]
    (scored,) = translator.score_batch([pieces[0]], [pieces[1]])
    from dragoman.decoding.scoring import score

    (ours,) = score([saved.model], [source], [target])
    assert sum(scored.log_probs) == pytest.approx(ours.log_probability, abs=1e-4)
