"""The way back from MarianMT: bit for bit what went out, and nothing that the paper does not have."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dragoman.errors import ModelError
from dragoman.export.formats import export
from dragoman.export.from_marian import import_marian
from dragoman.saved import WEIGHTS, load_model, read_tensors, weights_sha256
from tests.export.conftest import Save


@pytest.fixture
def marian(save: Save, tmp_path: Path) -> Path:
    export(save(), "marian", "float32", tmp_path / "marian")
    return tmp_path / "marian"


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("shape", [{}, {"shared": False, "decoder_layers": 1}, {"width": 22, "heads": 2}], ids=str)
def test_what_went_out_comes_back_bit_for_bit(save: Save, tmp_path: Path, shape: dict[str, object]) -> None:
    saved = save(**shape)
    export(saved, "marian", "float32", tmp_path / "marian")
    count = import_marian(tmp_path / "marian", tmp_path / "back")
    hashes = [weights_sha256(read_tensors(folder / WEIGHTS)) for folder in (saved.folder, tmp_path / "back")]
    assert hashes[0] == hashes[1]
    back = load_model(tmp_path / "back")
    assert back.recipe == saved.recipe
    assert (back.card["languages"], back.card["step"]) == (["en", "de"], 7)
    assert count == back.card["parameters"]


def test_a_folder_that_transformers_wrote_is_read_without_our_recipe(marian: Path, tmp_path: Path) -> None:
    from transformers import MarianMTModel, MarianTokenizer

    theirs = tmp_path / "theirs"
    MarianMTModel.from_pretrained(marian).save_pretrained(theirs)
    with pytest.warns(UserWarning, match="sacremoses"):
        MarianTokenizer.from_pretrained(marian).save_pretrained(theirs)
    assert not (theirs / "recipe.toml").exists()
    import_marian(theirs, tmp_path / "back")
    model, back = load_model(tmp_path / "model"), load_model(tmp_path / "back")
    assert back.recipe.model.model_dump() | {"decoder_layers": None} == model.recipe.model.model_dump()
    assert weights_sha256(dict(back.model.named_parameters())) == weights_sha256(dict(model.model.named_parameters()))


def test_all_that_cannot_be_held_is_named_at_once(marian: Path, tmp_path: Path) -> None:
    change(marian / "config.json", activation_function="swish", scale_embedding=False, decoder_start_token_id=0)
    change(marian / "vocab.json", **{"<s>": 3})
    with pytest.raises(ModelError) as error:
        import_marian(marian, tmp_path / "back")
    assert error.value.what.splitlines() == [
        'cannot be imported: activation_function = "swish", only "relu"',
        "cannot be imported: decoder_start_token_id = 0, only 2",
        "cannot be imported: scale_embedding = false, only true",
        "cannot be imported: vocab.json does not number the pieces as source.spm does",
        "cannot be imported: vocab.json does not number the pieces as target.spm does",
    ]
    assert not (tmp_path / "back").exists()


def test_weights_that_the_paper_does_not_have_are_named(marian: Path, tmp_path: Path) -> None:
    tensors = load_file(marian / "model.safetensors")
    tensors["final_logits_bias"][0, 5] = 1.0
    tensors["model.encoder.layers.0.self_attn.q_proj.bias"][2] = 1.0
    tensors["model.adapter"] = torch.zeros(1)
    del tensors["model.decoder.layers.1.fc1.weight"]
    save_file(tensors, marian / "model.safetensors")
    with pytest.raises(ModelError) as error:
        import_marian(marian, tmp_path / "back")
    assert [line.split("'")[1] for line in error.value.what.splitlines()] == [
        "model.decoder.layers.1.fc1.weight",
        "final_logits_bias",
        "model.adapter",
        "model.encoder.layers.0.self_attn.q_proj.bias",
    ]


def test_nothing_that_can_run_code_is_read(marian: Path, tmp_path: Path) -> None:
    (marian / "model.safetensors").rename(marian / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"no model\.safetensors here; other files of weights can run code"):
        import_marian(marian, tmp_path / "back")


def test_folders_that_are_none_are_told_from_those_that_are(marian: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no MarianMT folder: it has no config\.json"):
        import_marian(tmp_path / "nowhere", tmp_path / "back")
    with pytest.raises(ModelError, match="already exists"):
        import_marian(marian, marian)
    shutil.copytree(marian, tmp_path / "torn")
    (tmp_path / "torn" / "config.json").write_text('{"d_model": ')
    with pytest.raises(ModelError, match=r"config\.json: corrupt"):
        import_marian(tmp_path / "torn", tmp_path / "back")
    (marian / "source.spm").unlink()
    with pytest.raises(ModelError, match=r"source\.spm and target\.spm cannot be read"):
        import_marian(marian, tmp_path / "back")
