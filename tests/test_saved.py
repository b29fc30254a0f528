"""A model folder is read only as it was written: each flipped bit is noticed, and nothing in it can run code."""

import hashlib
import json
import logging
import random
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

import dragoman
from dragoman.data.prepare import DataConfig
from dragoman.data.store import file_sha256
from dragoman.data.vocabulary import Vocabulary, train_vocabulary
from dragoman.errors import ConfigError, ModelError
from dragoman.models.transformer import TransformerConfig
from dragoman.recipe import Recipe
from dragoman.saved import (
    CARD,
    FORMAT,
    RECIPE,
    WEIGHTS,
    build_model,
    find_model,
    load_model,
    load_weights,
    newest_good,
    read_card,
    read_recipe_file,
    read_tensors,
    save_model,
    verify,
    weights_sha256,
    write_card,
)

FILES = (CARD, RECIPE, "source.model", "target.model", WEIGHTS)
MODEL = TransformerConfig(layers=2, width=11, hidden=13, heads=3, key_width=5, value_width=7)

each_file = pytest.mark.parametrize("name", FILES)


@cache
def vocabularies() -> tuple[Vocabulary, Vocabulary]:
    text = ["the interpreter stood between", "two peoples who shared no language"]
    first, second = (train_vocabulary(lambda: text, size, "bpe", byte_fallback=True) for size in (29, 23))
    return Vocabulary(first), Vocabulary(second)


def save(folder: Path, card: dict[str, object] | None = None, shared: bool = False, seed: int = 0) -> Path:
    recipe = Recipe(data=DataConfig(shared=shared), model=MODEL)
    source, target = vocabularies()
    source = target if shared else source
    torch.manual_seed(seed)
    model = build_model(recipe, len(source), len(target))
    save_model(folder, model, recipe, (source, target), {"scores": [], **(card or {})})
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return shutil.copytree(saved, tmp_path / "model")


def replace(folder: Path, name: str, content: bytes) -> None:
    """Replace a file as somebody would who also knows how to write a card."""
    (folder / name).write_bytes(content)
    card = json.loads((folder / CARD).read_text())
    write_card(folder, card | {"files": card["files"] | {name: file_sha256(folder / name)}})


# What is written is read.


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_saved_is_loaded(shared: bool, tmp_path: Path) -> None:
    save(tmp_path / "model", {"languages": ["en", "de"]}, shared)
    loaded = load_model(tmp_path / "model")
    torch.manual_seed(0)
    expected = build_model(loaded.recipe, len(loaded.source_vocabulary), len(loaded.target_vocabulary))
    parameters = dict(loaded.model.named_parameters())
    assert parameters.keys() == dict(expected.named_parameters()).keys()
    assert all(torch.equal(parameters[name], tensor) for name, tensor in expected.named_parameters())
    assert not loaded.model.training
    assert loaded.recipe.model == MODEL
    assert loaded.recipe.data.shared == shared
    assert loaded.target_vocabulary.proto == vocabularies()[1].proto
    assert loaded.source_vocabulary.proto == vocabularies()[shared].proto
    assert loaded.folder == tmp_path / "model"


def test_the_card_says_what_the_model_is_and_what_its_files_hash_to(saved: Path) -> None:
    card = read_card(saved)
    recipe = Recipe(data=DataConfig(shared=False), model=MODEL)
    assert (card["format"], card["dragoman"], card["recipe"]) == (FORMAT, dragoman.__version__, recipe.hash)
    assert card["parameters"] == sum(tensor.numel() for tensor in read_tensors(saved / WEIGHTS).values())
    assert card["files"] == {name: file_sha256(saved / name) for name in FILES if name != CARD}
    assert {path.name for path in saved.iterdir()} == set(FILES)
    assert verify(saved) == card


def test_further_files_are_verified_like_the_rest(tmp_path: Path) -> None:
    recipe = Recipe(data=DataConfig(shared=False), model=MODEL)
    model = build_model(recipe, *map(len, vocabularies()))
    extra: dict[str, bytes | dict[str, Tensor]] = {
        "notes.txt": b"kept",
        "state.safetensors": {"moments": torch.arange(7.0)},
    }
    save_model(tmp_path / "model", model, recipe, vocabularies(), {}, extra)
    verify(tmp_path / "model")
    assert read_tensors(tmp_path / "model" / "state.safetensors")["moments"].tolist() == list(range(7))
    (tmp_path / "model" / "notes.txt").write_bytes(b"Kept")
    with pytest.raises(ModelError, match=r"notes.txt: corrupt: it is not what was written$"):
        load_model(tmp_path / "model")


def test_a_rewritten_card_keeps_verifying(folder: Path) -> None:
    before = verify(folder)
    for score in (27.3, 28.4):
        card = read_card(folder)
        write_card(folder, card | {"scores": [*card["scores"], {"bleu": score, "signature": "nrefs:1|größe:✓"}]})
    after = load_model(folder).card
    assert [score["bleu"] for score in after["scores"]] == [27.3, 28.4]
    assert {key: after[key] for key in before.keys() - {"scores", "sha256"}} == {
        key: before[key] for key in before.keys() - {"scores", "sha256"}
    }
    assert {path.name for path in folder.iterdir()} == set(FILES)


# What is damaged is refused.


def test_one_flipped_bit_in_each_of_100_copies_is_refused_100_times(saved: Path, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print("seed", seed)
    draw = random.Random(seed)
    sizes = [(saved / name).stat().st_size for name in FILES]
    # Every file in turn, then files by their size.
    names = [*FILES * 5, *draw.choices(FILES, sizes, k=100 - 5 * len(FILES))]
    refused = []
    for number, name in enumerate(names):
        copy = shutil.copytree(saved, tmp_path / str(number))
        content = bytearray((copy / name).read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        (copy / name).write_bytes(content)
        with pytest.raises(ModelError, match=rf"^{copy / name}: corrupt: ."):
            load_model(copy)
        refused.append(number)
        shutil.rmtree(copy)
    assert len(refused) == 100


def test_a_flipped_bit_is_noticed_at_every_byte_of_the_card(folder: Path) -> None:
    whole = (folder / CARD).read_bytes()
    for position in range(len(whole)):
        content = bytearray(whole)
        content[position] ^= 1 << position % 8
        (folder / CARD).write_bytes(content)
        with pytest.raises(ModelError, match=rf"^{folder / CARD}: corrupt: ."):
            read_card(folder)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "one byte": lambda whole: whole[:1],
    "eight bytes": lambda whole: whole[:8],
    "a hundred bytes": lambda whole: whole[:100],
    "half": lambda whole: whole[: len(whole) // 2],
    "all but one byte": lambda whole: whole[:-1],
    "trailing bytes": lambda whole: whole + b"\n",
    "garbage": lambda whole: random.Random(0).randbytes(len(whole)),
    "zeros": lambda whole: bytes(len(whole)),
}


@pytest.mark.parametrize("damage", DAMAGE)
@each_file
def test_a_cut_or_longer_or_overwritten_file_is_refused(name: str, damage: str, folder: Path) -> None:
    (folder / name).write_bytes(DAMAGE[damage]((folder / name).read_bytes()))
    with pytest.raises(ModelError, match=rf"^{folder / name}: corrupt: .") as refusal:
        load_model(folder)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("damage", [name for name in DAMAGE if name != "trailing bytes"])
def test_weights_that_are_no_weights_are_corrupt_even_where_the_card_agrees(damage: str, folder: Path) -> None:
    replace(folder, WEIGHTS, DAMAGE[damage]((folder / WEIGHTS).read_bytes()))
    with pytest.raises(ModelError, match=rf"^{folder / WEIGHTS}: corrupt: ."):
        load_model(folder)


@each_file
def test_a_missing_file_is_refused(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelError, match="no model here$" if name == CARD else f"^{folder / name}: corrupt: "):
        load_model(folder)


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", '{"sha256": 3}', '"card"'])
def test_a_card_that_is_no_card_is_corrupt(text: str, folder: Path) -> None:
    (folder / CARD).write_text(text)
    with pytest.raises(ModelError, match=rf"^{folder / CARD}: corrupt: it is not what was written$") as refusal:
        read_card(folder)
    assert refusal.value.hint == "copy the folder again"


def test_what_is_no_model_is_refused_in_other_words(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"^{tmp_path}: no model here$") as refusal:
        load_model(tmp_path)
    assert "card.json" in refusal.value.report()
    with pytest.raises(ModelError, match=f"^{tmp_path / 'gone'}: no such folder$"):
        load_model(tmp_path / "gone")
    (tmp_path / "file").write_text("text")
    with pytest.raises(ModelError, match=f"^{tmp_path / 'file'}"):
        load_model(tmp_path / "file")


def test_a_newer_format_is_refused_by_both_numbers(folder: Path) -> None:
    card = read_card(folder)
    write_card(folder, card | {"format": FORMAT + 1, "dragoman": "9.8.7"})
    message = f"^{folder}: written in format {FORMAT + 1} by dragoman 9.8.7, this version reads {FORMAT}$"
    with pytest.raises(ModelError, match=message):
        load_model(folder)


@pytest.mark.parametrize("key", ["format", "dragoman", "files"])
def test_a_card_that_lacks_what_it_must_say_is_refused(key: str, folder: Path) -> None:
    card = read_card(folder)
    del card[key]
    write_card(folder, card | ({"format": FORMAT + 1} if key == "dragoman" else {}))
    with pytest.raises(ModelError):
        load_model(folder)


# What is hostile is refused.


def test_a_header_that_claims_more_than_there_is_is_refused(folder: Path) -> None:
    for header in ((1 << 62).to_bytes(8, "little"), (100).to_bytes(8, "little") + b"{" * 7):
        replace(folder, WEIGHTS, header)
        with pytest.raises(ModelError, match=rf"^{folder / WEIGHTS}: corrupt: ."):
            load_model(folder)


def other_weights(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / "other")
    replace(folder, WEIGHTS, (folder / "other").read_bytes())


NORM = "encoder.0.feed_forward_residual.norm.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.update({NORM: torch.ones(17)}), r"should be \(11,\), got \(17,\)"),
        (lambda tensors: tensors.update({NORM: torch.ones(11, 1)}), r"should be \(11,\), got \(11, 1\)"),
        (lambda tensors: tensors.pop(NORM), r"should be \(11,\), got none"),
    ],
)
def test_a_tensor_of_another_shape_is_named_with_both_shapes(
    change: Callable[[dict[str, Tensor]], None], message: str, folder: Path
) -> None:
    other_weights(folder, change)
    with pytest.raises(ModelError, match=rf"^{folder / WEIGHTS}: tensor '{re.escape(NORM)}' {message}$"):
        load_model(folder)


def test_a_tensor_too_many_is_named(folder: Path) -> None:
    other_weights(folder, lambda tensors: tensors.update({"stowaway": torch.ones(3, 5)}))
    with pytest.raises(ModelError, match=r"tensor 'stowaway' should be absent, got \(3, 5\)$"):
        load_model(folder)


def test_weights_of_another_model_change_nothing_when_they_are_refused(saved: Path) -> None:
    recipe = Recipe(model=MODEL.model_copy(update={"hidden": 17}))
    model = build_model(recipe, *map(len, vocabularies()))
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    with pytest.raises(ModelError, match="tensor '"):
        load_weights(model, saved)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.named_parameters())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("width = 11", "width = 1000000000", "'model.width': input should be less than or equal to"),
        ("layers = 2", "layers = -3", "'model.layers': input should be greater than or equal to 1, got -3"),
        ("layers = 2", "layers = 1000000000", "'model.layers': input should be less than or equal to"),
        ("longest = 1024", "longest = 1000000000", "'model.longest': input should be less than or equal to"),
        ("layers = 2", 'layers = "' + "x" * 10_000_000 + '"', "'model.layers': input should be a valid integer"),
        ("layers = 2", "layers = 2\nstowaway = 3", "unknown key 'model.stowaway'"),
        ("[model]", "[model", "not a TOML file"),
    ],
)
def test_a_hostile_recipe_is_refused_before_anything_is_built(old: str, new: str, message: str, folder: Path) -> None:
    text = (folder / RECIPE).read_text()
    assert old in text
    replace(folder, RECIPE, text.replace(old, new).encode())
    # The recipe first and alone: were it not refused, loading would build the model.
    for read in (read_recipe_file, load_model):
        with pytest.raises(ConfigError, match=rf"^{folder / RECIPE}: {re.escape(message)}") as refusal:
            read(folder)
        assert len(refusal.value.report()) < 2000


def test_a_vocabulary_that_is_none_is_refused_even_where_the_card_agrees(folder: Path) -> None:
    replace(folder, "target.model", b"no SentencePiece model")
    with pytest.raises(ModelError, match=rf"^{folder / 'target.model'}: corrupt"):
        load_model(folder)


def test_nothing_in_the_package_can_unpickle() -> None:
    forbidden = re.compile(
        r"\bpickle|\bmarshal\b|\bshelve\b|torch\.load\b|weights_only|np\.load\b(?!.*allow_pickle=False)|\beval\(|\bexec\("
    )
    package = Path(dragoman.__file__).parent
    found = {
        f"{path.relative_to(package)}:{number}: {line.strip()}"
        for path in package.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if forbidden.search(line.replace("model.eval(", "").replace(".eval()", ""))
    }
    assert not found


# Folders are whole or absent.


def test_a_model_that_stands_there_is_never_replaced(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ModelError, match=f"^{folder}: already exists$"):
        save(folder, seed=1)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_folder_may_be_asked_for_where_no_folder_is_yet(tmp_path: Path) -> None:
    load_model(save(tmp_path / "deep" / "down" / "model"))


# A run folder stands wherever a model folder may.


def make_run(path: Path, steps: list[int], best: int | None) -> Path:
    for step in steps:
        save(path / "checkpoints" / f"step-{step}", {"step": step, "progress": {"best_step": best}}, seed=step)
    return path


def spoil(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-1])


@pytest.mark.parametrize(
    ("checkpoint", "best", "expected"),
    [
        (None, 7, 7),
        ("best", 7, 7),
        ("last", 7, 101),
        ("11", 7, 11),
        (None, None, 101),
        ("best", None, 101),
    ],
)
def test_a_run_folder_means_its_best_checkpoint_unless_another_is_asked_for(
    checkpoint: str | None, best: int | None, expected: int, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", [7, 11, 101], best)  # 101 sorts before 11 and 7 as text
    assert load_model(run, checkpoint).card["step"] == expected


def test_a_corrupt_checkpoint_is_passed_over_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = make_run(tmp_path / "run", [3, 5, 7], 5)
    spoil(run / "checkpoints" / "step-7")
    with caplog.at_level(logging.WARNING):
        assert newest_good(run).name == "step-5"
    assert f"step-7/{WEIGHTS}: corrupt" in caplog.text
    assert "falling back to the checkpoint before" in caplog.text


def test_a_corrupt_best_checkpoint_gives_way_to_the_last_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(tmp_path / "run", [3, 5, 7], 3)
    spoil(run / "checkpoints" / "step-3")
    with caplog.at_level(logging.WARNING):
        assert find_model(run).name == "step-7"
    assert "corrupt: it is not what was written; taking step-7 instead" in caplog.text
    shutil.rmtree(run / "checkpoints" / "step-3")
    assert find_model(run).name == "step-7"


def test_a_corrupt_checkpoint_that_is_asked_for_by_its_step_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [3, 5], 3)
    spoil(run / "checkpoints" / "step-5")
    with pytest.raises(ModelError, match=f"step-5/{WEIGHTS}: corrupt"):
        load_model(run, "5")


def test_a_run_without_a_good_checkpoint_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [3], 3)
    spoil(run / "checkpoints" / "step-3")
    with pytest.raises(ModelError, match=f"^{run}: no complete checkpoint yet$"):
        load_model(run)
    (tmp_path / "new" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ModelError, match=f"^{tmp_path / 'new'}: no complete checkpoint yet$"):
        load_model(tmp_path / "new")


def test_a_step_that_was_not_kept_is_refused_with_those_that_were(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [3, 5], 3)
    with pytest.raises(ModelError, match=f"^{run}: no checkpoint of step 4$") as refusal:
        load_model(run, "4")
    assert refusal.value.hint == "there are: 3, 5"


def test_a_model_folder_has_no_checkpoints_to_choose_from(saved: Path) -> None:
    with pytest.raises(ModelError, match=r"not a run folder, so it has no checkpoints to choose from$"):
        load_model(saved, "best")


def test_a_folder_beside_the_checkpoints_that_is_none_is_passed_over(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [3, 5], 3)
    shutil.copytree(run / "checkpoints" / "step-5", run / "checkpoints" / "step-5-copy")
    shutil.copytree(run / "checkpoints" / "step-5", run / "checkpoints" / ".step-7.123")
    assert find_model(run, "last").name == "step-5"


# One hash for the weights, whatever file they stand in.

dtypes = st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8])
shapes = st.lists(st.sampled_from([1, 2, 3, 5]), max_size=3)


@st.composite
def tensor(draw: st.DrawFn) -> Tensor:
    shape, dtype = draw(shapes), draw(dtypes)
    return torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))).to(dtype)


tensors = st.dictionaries(st.text("abc.", min_size=1, max_size=5), tensor(), min_size=1, max_size=5)


@given(tensors, st.randoms())
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_tensors_and_the_file_do_not_change_the_hash(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, Tensor], draw: random.Random
) -> None:
    names = list(tensors)
    draw.shuffle(names)
    shuffled = {name: tensors[name] for name in names}
    assert weights_sha256(shuffled) == weights_sha256(tensors)
    path = tmp_path_factory.getbasetemp() / "hashed.safetensors"
    save_file(shuffled, path, metadata={"format": "pt", "any": "thing"})
    assert weights_sha256(read_tensors(path)) == weights_sha256(tensors)


@given(tensors, st.data())
@settings(max_examples=60, deadline=None)
def test_a_name_a_type_a_shape_or_a_byte_changes_the_hash(tensors: dict[str, Tensor], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(tensors)))
    old = tensors[name]
    content = old.reshape(-1).view(torch.uint8).clone()
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    others = [
        {("new" if key == name else key): value for key, value in tensors.items()},
        tensors | {name: old[None]},
        tensors | {name: content.view(old.dtype).reshape(old.shape)},
        tensors | {name: old.to(torch.float32 if old.dtype != torch.float32 else torch.int32)},
        tensors | {"new": old},
        {key: value for key, value in tensors.items() if key != name},
    ]
    hashes = [weights_sha256(each) for each in others]
    assert weights_sha256(tensors) not in hashes


def test_types_of_the_same_bytes_have_other_hashes() -> None:
    bits = torch.arange(12, dtype=torch.int16)
    assert weights_sha256({"w": bits}) != weights_sha256({"w": bits.view(torch.float16)})
    assert weights_sha256({"w": bits.view(torch.bfloat16)}) != weights_sha256({"w": bits.view(torch.float16)})
    assert weights_sha256({"w": bits.view(3, 4)}) != weights_sha256({"w": bits.view(4, 3)})
    assert weights_sha256({"w": bits.view(3, 4).t()}) == weights_sha256({"w": bits.view(3, 4).t().contiguous()})


def test_the_hash_can_be_computed_by_hand() -> None:
    weights = {"b": torch.tensor([1.0, 2.0]), "a": torch.tensor([[3]], dtype=torch.uint8)}
    text = b"a\0uint8\x001,1\0\x03" + b"b\0float32\x002\0\x00\x00\x80\x3f\x00\x00\x00\x40"
    assert weights_sha256(weights) == hashlib.sha256(text).hexdigest()
