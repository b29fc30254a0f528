"""The demo: a translator from nothing in a few minutes, on a corpus generated from the CLDR data inside Babel."""

import random
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from dragoman.data.phrasebook import Phrase, Phrasebook, make_phrasebook
from dragoman.data.prepare import Corpus, prepare
from dragoman.decoding.translator import Translator, load
from dragoman.evaluation.report import evaluate, keep_in_card
from dragoman.everyday.find import SOURCE, everyday_models
from dragoman.plots.terminal import attention_map
from dragoman.recipe import Recipe, read_recipe
from dragoman.saved import find_model
from dragoman.training.checkpoints import check_owned, locked
from dragoman.training.run import run_training

MARK = ".dragoman-demo"  # says that a folder is a demo's own and may be replaced
WHOSE = "a demo's folder"
SAMPLES = 10
EVERYDAY = ("Hello, how are you?", "Where is the train station?", "I would like a cup of coffee.")


def run_demo(
    source: str, target: str, minutes: float | None, out: Path, device: torch.device, console: Console
) -> dict[str, Any]:
    """Generate phrases, train on them, score the held-out ones, and show what the model does."""
    begun = time.monotonic()
    recipe = read_recipe("demo", [f"training.minutes={minutes}"] if minutes is not None else [])
    check_owned(out, MARK, WHOSE)
    _open_with_everyday(source, target, device, console)
    console.out(f"Writing a phrasebook {source} -> {target} from CLDR: dates, times, money, units, names, lists.")
    phrasebook = make_phrasebook(source, target)
    with _own_folder(out, console):
        result = _train_and_show(phrasebook, (source, target), recipe, out, device, console)
    return {**result, "seconds": round(time.monotonic() - begun, 1), "model": str(out / "run")}


def _open_with_everyday(source: str, target: str, device: torch.device, console: Console) -> None:
    folder = everyday_models().get(target) if source == SOURCE else None
    if folder is None:
        return
    table = Table("source", "translation", title=f"By a model that comes along: dragoman translate --to {target}")
    for sentence, answer in zip(EVERYDAY, load(folder, device=str(device)).translate(EVERYDAY), strict=True):
        table.add_row(sentence, answer.text)
    console.print(table)


def _train_and_show(
    phrasebook: Phrasebook,
    languages: tuple[str, str],
    recipe: Recipe,
    out: Path,
    device: torch.device,
    console: Console,
) -> dict[str, float]:
    corpora = _write_corpora(phrasebook, out / "text", languages)
    prepare(corpora["train"], corpora["valid"], languages, recipe.data, out / "data", lambda text: None)
    console.out(f"{len(phrasebook.train):,} pairs to learn from, {len(phrasebook.test):,} held out; training:")
    outcome = run_training(recipe, out / "data", out / "run", device, console)
    if outcome.signal is not None:
        raise KeyboardInterrupt
    result = _show(load(out / "run", device=str(device)), phrasebook.test, out, recipe, console)
    _say_what_next(out, languages, len(phrasebook.train), console)
    return result


@contextmanager
def _own_folder(out: Path, console: Console) -> Iterator[None]:
    """A demo replaces its own folder, and no other."""
    with locked(out):
        check_owned(out, MARK, WHOSE)  # again: it may have come into use meanwhile
        if (out / MARK).is_file():
            console.out(f"{out} holds an earlier demo: replacing it.", highlight=False)
        (out / MARK).touch()
        for part in ("text", "data", "run"):
            shutil.rmtree(out / part, ignore_errors=True)
        yield


def _write_corpora(phrasebook: Phrasebook, folder: Path, languages: tuple[str, str]) -> dict[str, Corpus]:
    folder.mkdir()
    corpora = {}
    for split, phrases in (("train", phrasebook.train), ("valid", phrasebook.valid), ("test", phrasebook.test)):
        files = [folder / f"{split}.{language}" for language in languages]
        files[0].write_text("".join(f"{phrase.source}\n" for phrase in phrases), encoding="utf-8")
        files[1].write_text("".join(f"{phrase.target}\n" for phrase in phrases), encoding="utf-8")
        corpora[split] = Corpus(files[:1], files[1:])
    return corpora


def _show(
    translator: Translator, held_out: Sequence[Phrase], out: Path, recipe: Recipe, console: Console
) -> dict[str, float]:
    sources, references = [each.source for each in held_out], [each.target for each in held_out]
    report, translations = evaluate(translator, sources, references, recipe.hash, "phrases held out by the demo")
    keep_in_card(find_model(out / "run"), report)
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for phrase, translation in zip(held_out, translations, strict=True):
        by_kind[phrase.kind].append(phrase.target == translation)
    table = Table("kind", "held out", "exactly right", title="Phrases the model never saw")
    for kind, hits in by_kind.items():
        table.add_row(kind, str(len(hits)), f"{sum(hits) / len(hits):.1%}")
    table.add_row("all", str(len(held_out)), f"{report.exact_match:.1%}", style="bold")
    console.print(table)
    samples = Table("source", "translation", "", title="Ten of them")
    chosen = random.Random(0).sample(range(len(held_out)), min(SAMPLES, len(held_out)))
    for number in chosen:
        right = translations[number] == references[number]
        samples.add_row(sources[number], translations[number], "right" if right else f"not: {references[number]}")
    console.print(samples)
    number = max(chosen, key=lambda each: -abs(len(sources[each]) - 24))
    maps = translator.attention(sources[number], translations[number])
    console.out(f"Who looks at whom (cross-attention, last layer, mean of its heads): {sources[number]}")
    console.out(attention_map(maps.cross[-1].mean(0), maps.target_pieces, maps.source_pieces), highlight=False)
    return {"exact_match": report.exact_match, "bleu": report.bleu.score}


def _say_what_next(out: Path, languages: tuple[str, str], pairs: int, console: Console) -> None:
    source, target = languages
    console.out(
        f"This model learned from {pairs:,} phrases made of CLDR data and knows nothing else: "
        "no everyday sentences, no other words.\n"
        "What next (after `. .venv/bin/activate`, if the command is not found):\n"
        f"  dragoman translate {out / 'run'}              type a line, read its translation\n"
        f"  dragoman translate {out / 'run'} --steps      watch every decoding step\n"
        f"  dragoman inspect {out / 'run'}                what the model is made of\n"
        "On your own text:\n"
        f"  dragoman prepare --source train.{source} --target train.{target} --valid-source valid.{source} "
        f"--valid-target valid.{target} --vocabulary 8000 --out data\n"
        "  dragoman train tiny --data data --out runs/mine        on a CPU; `small` on a GPU",
        highlight=False,
    )
