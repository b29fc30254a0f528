"""What a recipe or a model is, in numbers."""

import re
from math import prod
from pathlib import Path

import pytest
from safetensors.torch import load_file

from dragoman.inspection import inspect_model, inspect_recipe, summary
from dragoman.training.average import average_last


def test_the_base_model_has_as_many_parameters_as_counted_by_hand() -> None:
    found = inspect_recipe("base", 40000)
    attention, feed_forward, norm = 4 * 512 * 512, 2 * 512 * 2048 + 2048 + 512, 2 * 512
    expected = {
        "target_embedding": 40000 * 512,
        "encoder": 6 * (attention + feed_forward + 2 * norm),
        "decoder": 6 * (2 * attention + feed_forward + 3 * norm),
    }
    assert found["parts"] == expected
    assert found["parameters"] == sum(expected.values())
    assert found["parameters"] == pytest.approx(65e6, rel=0.03)
    assert found["vocabulary"] == 40000


def test_a_recipe_is_counted_with_its_own_vocabulary_unless_another_is_given() -> None:
    # 37,000 learned pieces, 4 specials and 256 bytes
    found = inspect_recipe("base", None)
    assert found["vocabulary"] == 37260
    fewer = inspect_recipe("base", 40000)["parameters"] - found["parameters"]
    assert fewer == (40000 - 37260) * 512


def test_parts_add_up_and_memory_and_work_follow_from_them() -> None:
    for name in ("base", "tiny", "table3/e-learned-positions", "systems/convs2s"):
        found = inspect_recipe(name, 1009)
        total = found["parameters"]
        assert sum(found["parts"].values()) == total
        # Four bytes a weight; training also keeps the gradient and Adam's two moments.
        assert found["memory_bytes"] == {"weights": 4 * total, "training": 16 * total}
        # Two operations a weight that is multiplied: all but the looked-up positions (the embedding projects).
        looked_up = sum(count for part, count in found["parts"].items() if "positions" in part)
        assert found["operations_per_token"] == {"forward": 2 * (total - looked_up)}


def test_learned_positions_are_a_part_of_their_own() -> None:
    # 1024 positions of width 512
    assert inspect_recipe("table3/e-learned-positions", 1009)["parts"]["positions"] == 1024 * 512


def test_a_run_is_inspected_by_its_newest_checkpoint(reverser: Path) -> None:
    found = inspect_model(reverser, None)
    tensors = load_file(reverser / "checkpoints" / "step-700" / "weights.safetensors")
    assert found["step"] == 700
    assert found["folder"].endswith("step-700")
    assert found["parameters"] == sum(prod(tensor.shape) for tensor in tensors.values())
    assert sum(found["parts"].values()) == found["parameters"]
    assert found["vocabulary"] == 4 + 256 + 11
    assert found["best"]["step"] in (350, 700)
    assert inspect_model(reverser, "350")["step"] == 350
    assert inspect_model(reverser, "350")["weights_sha256"] != found["weights_sha256"]
    assert inspect_model(reverser / "checkpoints" / "step-700", None)["weights_sha256"] == found["weights_sha256"]


def test_the_summary_names_everything_that_was_found(reverser: Path) -> None:
    for found in (inspect_recipe("base", 40000), inspect_model(reverser, None)):
        lines = summary(found).split("\n")
        for name, value in found.items():
            assert sum(line.startswith(name.replace("_", " ")) for line in lines) >= 1
            for inner, each in value.items() if isinstance(value, dict) else ():
                assert any(line.startswith(f"  {inner.replace('_', ' ')}") for line in lines) == (each != [])
    assert f"{inspect_recipe('base', 40000)['parameters']:,}" in summary(inspect_recipe("base", 40000))


def test_what_it_is_comes_first_and_nothing_internal_at_all(reverser: Path, tmp_path: Path) -> None:
    lines = summary(inspect_model(reverser, None)).split("\n")
    assert [re.split("  +", line)[0] for line in lines[:9]] == [
        *("kind", "layers", "width", "heads", "parameters", "vocabulary", "languages", "precision", "step")
    ]
    assert [re.split("  +", line)[1] for line in lines[:4]] == ["transformer", "2", "64", "4"]
    assert "languages                 en -> de" in lines
    assert average_last(reverser, 2, tmp_path / "mean", half=True) == [350, 700]
    text = summary(inspect_model(tmp_path / "mean", None))
    assert re.search(r"^averaged +350, 700$", text, flags=re.MULTILINE)
    assert re.search(r"^precision +float16$", text, flags=re.MULTILINE)
    for said in ("\n".join(lines), text):
        assert not re.search(r"[\[\]{}'_]|None|due", said.partition("\nfolder")[0])


def test_the_shape_is_that_of_the_system_and_vocabularies_apart_are_told_apart(tmp_path: Path) -> None:
    found = inspect_recipe("systems/bahdanau", 1009)
    assert (found["kind"], found["layers"], "heads" in found, "source_vocabulary" in found) == (
        "recurrent",
        1,
        False,
        False,
    )
    (tmp_path / "mine.toml").write_text('extends = "tiny.toml"\n[model]\ndecoder_layers = 1\n[data]\nshared = false\n')
    found = inspect_recipe(str(tmp_path / "mine.toml"), 1009)
    assert (found["layers"], found["decoder_layers"]) == (2, 1)
    assert (found["source_vocabulary"], found["vocabulary"]) == (1009, 1009)
