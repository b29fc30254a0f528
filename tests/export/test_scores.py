"""A model that was trained scores the same wherever it is taken: greedy search in every engine, sacreBLEU of all."""

import random
from pathlib import Path

import pytest
import torch
from rich.console import Console

import dragoman
from dragoman.data.prepare import Corpus, DataConfig, prepare
from dragoman.evaluation.metrics import plain_bleu
from dragoman.export import marian, onnx
from dragoman.export.engines import load
from dragoman.export.formats import export
from dragoman.export.support import ExportPrecision
from dragoman.recipe import read_recipe
from dragoman.saved import SavedModel, load_model
from dragoman.training.run import run_training

SHAPE = ["layers=2", "width=64", "hidden=128", "heads=4", "norm=post"]
GREEDY = {"beam": 1, "alpha": 0.0}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[SavedModel, list[str], list[str]]:
    """The paper's own layers, which have learned to reverse words; lines it never saw."""
    folder, draw = tmp_path_factory.mktemp("scores"), random.Random(7)
    words = ["".join(draw.choices("bdfgklmnprst", k=1) + draw.choices("aeiou", k=1)) * 2 for _ in range(31)]
    lines = sorted({" ".join(draw.choices(words, k=draw.randint(3, 9))) for _ in range(4900)})
    draw.shuffle(lines)
    for name, part in (("train", lines[1100:]), ("valid", lines[1000:1100])):
        (folder / f"{name}.en").write_text("".join(f"{line}\n" for line in part))
        (folder / f"{name}.de").write_text("".join(f"{' '.join(line.split()[::-1])}\n" for line in part))
    corpora = [Corpus([folder / f"{name}.en"], [folder / f"{name}.de"]) for name in ("train", "valid")]
    prepare(corpora[0], corpora[1], ("en", "de"), DataConfig(vocabulary=60), folder / "data", lambda text: None)
    budget = ["training.steps=2000", "training.save_every=2000", "training.batch_tokens=768", "training.row_length=64"]
    settings = [*(f"model.{each}" for each in SHAPE), *budget, "training.warmup=150", "training.peak=2e-3"]
    run_training(
        read_recipe("tiny", settings), folder / "data", folder / "run", torch.device("cpu"), Console(quiet=True)
    )
    return load_model(folder / "run"), lines[:1000], [" ".join(line.split()[::-1]) for line in lines[:1000]]


@pytest.mark.slow
def test_every_engine_scores_the_same(trained: tuple[SavedModel, list[str], list[str]], tmp_path: Path) -> None:
    saved, sources, references = trained
    ours = dragoman.load(saved.folder, device="cpu", decoding=GREEDY)
    texts = {"torch": [each.text for each in ours.translate(sources)]}
    precisions: tuple[ExportPrecision, ...] = ("float32", "float16", "int8")
    for precision in precisions:
        export(saved, "ctranslate2", precision, tmp_path / precision)
        converted = load(tmp_path / precision, device="cpu", engine="ctranslate2", decoding=GREEDY)
        texts[f"ctranslate2, {precision}"] = [each.text for each in converted.translate(sources)]
    limits = [len(ids) + 1 + ours.decoding.extra for ids in ours.encode(sources)]
    for format, open_folder in (("marian", marian.Loaded.of), ("onnx", onnx.Session.of)):
        export(saved, format, "float32", tmp_path / format)  # type: ignore[arg-type]
        peer = open_folder(tmp_path / format)
        ids = [peer.greedy(source, limit) for source, limit in zip(ours.encode(sources), limits, strict=True)]
        texts[format] = ours.target_vocabulary.decode(ids)
    scores = {name: plain_bleu(found, references) for name, found in texts.items()}
    print(scores)
    assert scores["torch"] > 5
    for name, score in scores.items():
        assert score == pytest.approx(scores["torch"], abs=0.5 if "int8" in name else 0.1), scores
