"""What a user can get wrong ends in exit code 2 and one clear message, and nothing half-written is left."""

import hashlib
import lzma
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dragoman.data.store import read_manifest
from dragoman.saved import WEIGHTS, find_model
from dragoman.streams import LINES_AT_ONCE
from dragoman.training.checkpoints import RunFolder
from tests.system.conftest import Call, Ended

Dragoman = Callable[..., subprocess.CompletedProcess[str]]

CORPUS = "--source train.en --target train.de"
EVALUATE = "evaluate model --source three.en --target three.de"
TRAIN = "train tiny --data data --out"
TINY = "model.layers=1 model.width=12 model.hidden=17 model.heads=3 training.steps=1"

# The command, and what its message must say. Every path is in the folder that the fixture `workshop` makes.
REFUSALS = {
    "unequal line counts": ("prepare --source three.en --target five.de --out new", "got 3 and 5$"),
    "unequal counts of files": (f"prepare {CORPUS} --source five.de --out new", "2 files against 1"),
    "a missing file": ("prepare --source gone.en --target five.de --out new", "^gone.en: no such file$"),
    "a folder for a file": ("prepare --source data --target five.de --out new", "^data: cannot be read"),
    "invalid UTF-8": ("prepare --source latin.en --target three.de --out new", "^latin.en:2: not UTF-8, got byte 0xe9"),
    "an empty corpus": ("prepare --source empty.en --target empty.de --out new", "holds no pairs"),
    "blank lines alone": ("prepare --source blank.en --target blank.de --out new", "no pair is left of 5: 5 empty"),
    "a corrupt .xz": ("prepare --source cut.en.xz --target train.de --out new", "^cut.en.xz: not a whole .xz file"),
    "a plain .gz": ("prepare --source plain.en.gz --target train.de --out new", "^plain.en.gz: not a whole .gz file"),
    "half a validation set": (f"prepare {CORPUS} --valid-source train.en --out new", "only one of them is given"),
    "too many pieces": (f"prepare {CORPUS} --vocabulary 5000 --out new", r"allows at most \d+ pieces, got 5000"),
    "too few pieces": (f"prepare {CORPUS} --vocabulary 1 --out new", "'data.vocabulary': .* got 1$"),
    "data onto data": (f"prepare {CORPUS} --vocabulary 11 --out data", "^data: already exists$"),
    "data onto a file": (f"prepare {CORPUS} --vocabulary 11 --out train.en", "^train.en: already exists$"),
    "data into a file": (
        f"prepare {CORPUS} --vocabulary 11 --out train.en/new",
        "^train.en/new: cannot be written: .*train.en: Not a directory$",
    ),
    "a recipe nobody knows": ("train tinny --data data --out new", "^tinny: no such recipe$"),
    "a recipe that is no TOML": ("train broken.toml --data data --out new", "^broken.toml: not a TOML file"),
    "an unknown key": (f"{TRAIN} new {TINY} model.widht=7", "'model.widht', did you mean 'model.width'"),
    "an unknown section": (f"{TRAIN} new {TINY} modle.width=7", "'modle', did you mean 'model'"),
    "a word that is no override": (f"{TRAIN} new {TINY} faster", "^faster: .* 'section.key=value'"),
    "heads that do not divide": (f"{TRAIN} new model.heads=5 model.width=12", "5 does not divide .* = 12"),
    "one width of two": (f"{TRAIN} new model.heads=5 model.width=12 model.key_width=3", "does not divide"),
    "a seed beyond 64 bits": (f"{TRAIN} new {TINY} training.seed={1 << 70}", "training.seed"),
    "no data there": (f"train tiny --data nowhere --out new {TINY}", "^nowhere: not a data folder$"),
    "something else for data": (f"train tiny --data thesis --out new {TINY}", "^thesis: not a data folder$"),
    "a run onto a run": (f"{TRAIN} run {TINY}", "^run: holds a run already$"),
    "a run onto something else": (f"{TRAIN} thesis {TINY}", "^thesis: is in use for something else$"),
    "a shape that --from settles": (f"{TRAIN} new --from run model.width=8", "^model.width=8: settled by the model"),
    "pieces that the data settles": (f"{TRAIN} new {TINY} data.vocabulary=8", "^data.vocabulary=8: settled when"),
    "steps of drawing": ("translate run --input three.en --steps --sample", "^--steps: shows greedy search alone"),
    "resuming a misspelled run": (f"{TRAIN} rnu {TINY} --resume", "^rnu: nothing to resume"),
    "from no model": (f"{TRAIN} new training.steps=1 --from nowhere", "^nowhere: no such folder$"),
    "no such model": ("translate nowhere", "^nowhere: no such folder$"),
    "a file for a model": ("translate train.en", "^train.en: not a model folder$"),
    "no model there": ("translate thesis", "^thesis: no model here$"),
    "a step that was not kept": ("translate run --checkpoint 9", "^run: no checkpoint of step 9$"),
    "a checkpoint that is none": ("inspect run --checkpoint newest", "no checkpoint of step newest$"),
    "a checkpoint of a model": ("translate model --checkpoint best", "^model: not a run folder"),
    "a missing input": ("translate run --input gone.en", "^gone.en: no such file$"),
    "an output in no folder": ("translate run --input three.en --output nowhere/out", "^nowhere/out: "),
    "a folder for an output": ("translate run --input three.en --output thesis", "^thesis: "),
    "another model that is none": ("translate run --input three.en --with thesis", "^thesis: no model here$"),
    "an export onto a model": ("export run --format ctranslate2 --out model", "^model: already exists$"),
    "an export in 8 bits for others": (
        "export run --format onnx --precision int8 --out new",
        r"onnx cannot hold --precision int8 \(it is float32\)$",
    ),
    "an import of nothing": ("import thesis --out new", "^thesis: no MarianMT folder: it has no config.json$"),
    "drawing with an engine that does not": (
        "translate run --input three.en --sample --engine ctranslate2",
        "^--engine ctranslate2: neither draws nor shows steps",
    ),
    "scores without a source": ("score run --target five.de", "^--source: is missing"),
    "plain text with a source": (
        f"prepare {CORPUS} --out new data.plain=true",
        "and train.de: plain text has no source$",
    ),
    "plain text of two vocabularies": ("prepare --target train.de --out new data.shared=false", "needs two sides"),
    "plain text that is validated with a source": (
        "prepare --target train.de --valid-source three.en --valid-target three.en --out new",
        "^three.en and three.en: plain text has no source$",
    ),
    "scores of unequal files": ("score run --source three.en --target five.de", "got 3 and 5$"),
    "an empty test": ("evaluate model --source empty.en --target empty.de", "holds no pairs"),
    "an evaluation in no folder": (f"{EVALUATE} --output nowhere/out", "^nowhere/out: "),
    "more checkpoints than there are": (
        "average run --last 9 --out new",
        "^run: too few checkpoints are kept, 2, got --last 9$",
    ),
    "an average of no run": ("average thesis --last 1 --out new", "^thesis: not a run folder"),
    "a text beside itself": ("prepare --source train.en --target train.en --out new", "^train.en: given as source and"),
    "far too large updates": (f"{TRAIN} new {TINY} training.batch_tokens={10**23}", "training.batch_tokens"),
    "far too many pieces": (f"prepare {CORPUS} --vocabulary {10**11} --out new", "data.vocabulary"),
    "a penalty without end": (
        "translate run --input three.en --alpha inf",
        "^decoding: 'alpha': .* finite",
    ),
    "a share without drawing": ("translate run --input three.en --top-p 0.9", "need --sample$"),
    "an output over its input": ("translate run --input three.en --output three.en", "^three.en: is the input too$"),
    "an average onto a model": ("average run --last 2 --out model", "^model: already exists$"),
    "a report onto something else": (
        "study sizes --out thesis",
        "^thesis: holds something else than the report of study",
    ),
    "a report onto a file": ("study table1 --out train.en", "^train.en: is a file$"),
    "a report into a file": ("study sizes --out train.en/new", "/train.en: is a file$"),
    "a model without a text": ("study scaling run --source three.en", "^MODEL, --source and --target: only some"),
    "the heads of no model": ("study heads thesis --source three.en --target three.de", "^thesis: no model here$"),
    "heads on unequal files": ("study heads run --source three.en --target five.de", "got 3 and 5$"),
    "heads on blank lines": ("study heads run --source blank.en --target blank.de", "no pair is left"),
    "neither model nor recipe": ("inspect nowhere", "^nowhere: no such recipe$"),
}


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tests share two cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory, reversals: Path, reverser: Path) -> Path:
    """A folder with good things and bad ones; nothing that is refused may change it."""
    folder = tmp_path_factory.mktemp("workshop")
    for suffix, of in (("en", "fwd"), ("de", "rev")):
        shutil.copy(reversals / f"train.{of}", folder / f"train.{suffix}")
        lines = (reversals / f"train.{of}").read_text().splitlines(keepends=True)
        (folder / f"three.{suffix}").write_text("".join(lines[:3]))
        (folder / f"five.{suffix}").write_text("".join(lines[:5]))
        (folder / f"empty.{suffix}").touch()
    for name in ("blank.en", "blank.de"):
        (folder / name).write_text(" \n" * 5)
    (folder / "latin.en").write_bytes(b"one\ncaf\xe9\nthree\n")
    packed = lzma.compress((folder / "train.en").read_bytes())
    (folder / "cut.en.xz").write_bytes(packed[: len(packed) // 2])
    (folder / "plain.en.gz").write_text("12\n")
    (folder / "broken.toml").write_text("[model\nwidth = 12\n")
    (folder / "thesis").mkdir()
    (folder / "thesis" / "chapter.tex").write_text("Years of work.")
    shutil.copytree(reversals / "data", folder / "data")
    shutil.copytree(reverser, folder / "run")
    shutil.copytree(find_model(reverser), folder / "model")
    return folder


@pytest.fixture
def call(call: Call, workshop: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The same in the workshop, with the words of a line."""

    def call_there(words: str) -> Ended:
        monkeypatch.chdir(workshop)
        return call(*words.split())

    return call_there


def contents(folder: Path) -> dict[str, str]:
    """Everything in a folder, what is hidden too."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in folder.rglob("*")
    }


def mistakes(report: str) -> list[str]:
    """The messages of a report, which is nothing but messages and perhaps a hint."""
    messages, _, hint = report.partition("\n\nhint: ")
    assert hint == "" or re.fullmatch(r"\S[^\n]*\n", hint)
    lines = messages.rstrip("\n").split("\n")
    assert all(line.startswith("error: ") for line in lines), report
    return [line.removeprefix("error: ") for line in lines]


@pytest.mark.parametrize(("words", "says"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_mistake_is_named_in_one_message_and_leaves_no_trace(
    words: str, says: str, workshop: Path, call: Call
) -> None:
    before = contents(workshop)
    ended = call(words)
    assert (ended.code, ended.out) == (2, "")
    (message,) = mistakes(ended.err)
    assert re.search(says, message)
    assert contents(workshop) == before


def test_every_mistake_of_a_recipe_is_reported_at_once(workshop: Path, call: Call) -> None:
    before = contents(workshop)
    ended = call(
        "train tiny --data data --out new model.heads=5 training.warmpu=3 training.smoothing=1.5 decoding.beam=x"
    )
    assert (ended.code, ended.out) == (2, "")
    said = mistakes(ended.err)
    assert len(said) == 4
    for name in (
        "'model.heads' = 5",
        "'training.warmpu', did you mean 'training.warmup'",
        "'training.smoothing'",
        "'decoding.beam'",
    ):
        assert sum(name in message for message in said) == 1
    assert contents(workshop) == before


@pytest.mark.parametrize(
    "words", ["prepare --source traim.en --target train.de --out new", "translate run --input traim.en"]
)
def test_a_file_that_is_not_there_is_answered_with_the_nearest(words: str, call: Call) -> None:
    ended = call(words)
    said = "error: traim.en: no such file\n\nhint: did you mean train.en?\n"
    assert (ended.code, ended.out, ended.err) == (2, "", said)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("translate run --beam 0", "--beam"),
        ("translate run --n-best 0", "--n-best"),
        ("translate run --sample --top-p 1.5", "--top-p"),
        ("translate run --sample --temperature 0", "--temperature"),
        (f"translate run --sample --seed {1 << 70}", "--seed"),
        ("translate run --device abacus", "--device"),
        ("prepare --source train.en --out new", "--target"),
        ("demo --minutes 0 --out new", "--minutes"),
        ("train tiny --out new", "--data"),
        ("evaluate --target test.de", "model"),
        ("transalte run", "transalte"),
    ],
)
def test_a_flag_that_cannot_be_right_is_named(words: str, flag: str, workshop: Path, call: Call) -> None:
    before = contents(workshop)
    ended = call(f"{words} --input three.en" if words.startswith("translate run") else words)
    assert (ended.code, ended.out) == (2, "")
    assert flag in ended.err
    assert "Traceback" not in ended.err
    assert contents(workshop) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("words", ["translate run --input three.en", f"train tiny --data data --out new {TINY}"])
def test_a_device_that_is_not_there_is_refused(words: str, workshop: Path, call: Call) -> None:
    before = contents(workshop)
    ended = call(f"{words} --device cuda")
    assert (ended.code, ended.out) == (2, "")
    assert mistakes(ended.err) == ["--device: no such device on this machine, got cuda"]
    assert contents(workshop) == before


def test_the_largest_vocabulary_that_a_refusal_names_is_accepted(call: Call, tmp_path: Path) -> None:
    refused = call(f"prepare {CORPUS} --vocabulary 5000 --out {tmp_path}/data")
    largest = re.search(r"at most (\d+) pieces, got 5000", refused.err)
    assert largest
    assert not (tmp_path / "data").exists()
    assert call(f"prepare {CORPUS} --vocabulary {largest[1]} --out {tmp_path}/data").code == 0
    assert read_manifest(tmp_path / "data").vocabulary[0] == 4 + 256 + int(largest[1])
    assert call(f"prepare {CORPUS} --vocabulary {int(largest[1]) + 1} --out {tmp_path}/more").code == 2


def test_heads_need_not_divide_the_width_where_keys_and_values_have_their_own(call: Call, tmp_path: Path) -> None:
    widths = "model.heads=5 model.width=12 model.key_width=3 model.value_width=7"
    ended = call(f"train tiny --data data --out {tmp_path}/run {TINY} {widths}")
    assert (ended.code, ended.out) == (0, "")


def test_a_flipped_bit_in_a_model_is_refused(reverser: Path, tmp_path: Path, run_dragoman: Dragoman) -> None:
    model = shutil.copytree(find_model(reverser), tmp_path / "model")
    content = bytearray((model / WEIGHTS).read_bytes())
    content[-1001] ^= 8
    (model / WEIGHTS).write_bytes(content)
    done = run_dragoman("translate", "model", input="12\n", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert mistakes(done.stderr) == ["model/weights.safetensors: corrupt: it is not what was written"]


def test_a_run_folder_in_use_is_refused_by_the_process_that_has_it(
    reversals: Path, tmp_path: Path, run_dragoman: Dragoman
) -> None:
    with RunFolder(tmp_path / "run").lock():
        before = contents(tmp_path)
        words = ["train", "tiny", "--data", str(reversals / "data"), "--out", "run", *TINY.split()]
        done = run_dragoman(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        (message,) = mistakes(done.stderr)
        assert message.startswith(f"run: in use by another run (process {os.getpid()} on ")
        assert contents(tmp_path) == before


def test_input_that_turns_out_bad_late_leaves_no_output(reverser: Path, tmp_path: Path, run_dragoman: Dragoman) -> None:
    late = LINES_AT_ONCE + 77
    (tmp_path / "in").write_bytes(b"12\n" * late + b"\xff\n" + b"34\n" * 10)
    (tmp_path / "old").write_text("an older translation\n")
    before = contents(tmp_path)
    for name in ("new", "old"):
        words = ("--input", "in", "--output", name, "--beam", "1", "--engine", "torch")
        done = run_dragoman("translate", reverser, *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert mistakes(done.stderr) == [f"in:{late + 1}: not UTF-8, got byte 0xff at position 1"]
        assert contents(tmp_path) == before
