"""Soft and hard attention over pictures (Xu et al. 2015): trained, tested on unseen pictures, and looked at.

OUT/soft, OUT/hard    what was learned: weights, recipe and card; not learned again
OUT/report.html       and what else a report is made of
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from safetensors.torch import save_file

from dragoman import __version__
from dragoman.config import Section, write_toml
from dragoman.data.pictures import Captioned, PicturesConfig, draw_pictures, join, read_features
from dragoman.data.store import file_sha256
from dragoman.durable import new_folder
from dragoman.errors import ModelError
from dragoman.evaluation.metrics import bleu
from dragoman.models.captioner import Captioner, CaptionerConfig
from dragoman.plots.captions import Looked, draw_glimpses
from dragoman.plots.charts import as_svg, check_drawing
from dragoman.recipe import hash_of, read_as
from dragoman.saved import FORMAT, RECIPE, WEIGHTS, Card, read_tensors, verify, write_card
from dragoman.study.captioning import CaptionTraining, Cells, Rate, Words, Written, assess, describe, train
from dragoman.study.report import Cell, Figure, Report, Table
from dragoman.training.checkpoints import check_owned, locked

MARK = ".dragoman-captions"  # says that a folder is this study's own
WHOSE = "a folder of this study"
SHOWN = 4  # pictures in a figure
RIGHT = ("shape", "colour", "relation", "all")
LOOKS = ("looks for colour", "looks for shape")


class CaptionRecipe(Section):
    """Everything that decides a captioner, but pictures that are given."""

    pictures: PicturesConfig = PicturesConfig()
    model: CaptionerConfig = CaptionerConfig()
    training: CaptionTraining = CaptionTraining()


class Given(NamedTuple):
    """Features computed elsewhere and a caption a line."""

    features: Path
    captions: Path


class Learned(NamedTuple):
    """A captioner's way through the study."""

    name: str
    card: Card
    written: Written
    test: Captioned


def study_captions(
    names: Sequence[str],
    overrides: Sequence[str],
    given: Given | None,
    out: Path,
    device: torch.device,
    console: Console,
    command: str,
) -> Report:
    """Train a captioner of each recipe, unless that was done, and report what they say and where they look."""
    recipes = {Path(name).stem: read_caption_recipe(name, overrides) for name in names}
    pictures = read_features(*given) if given else None
    check_drawing()
    with _own_folder(out):
        learned = []
        for name, recipe in recipes.items():
            train, test = pictures or draw_pictures(recipe.pictures, recipe.training.seed)
            source = [file_sha256(file) for file in given] if given else ["drawn"]
            model, words, card = _learn_once(out / name, recipe, train, source, device, console)
            learned.append(Learned(name, card, describe(model, test, words, Cells(train)), test))
        report = make_report(learned, command)
        report.write(out)
    return report


def read_caption_recipe(name: str, overrides: Sequence[str]) -> CaptionRecipe:
    """A recipe of recipes/captions by its bare name, or any other file."""
    return read_as(CaptionRecipe, f"captions/{name}" if name in ("soft", "hard") else name, overrides)


@contextmanager
def _own_folder(out: Path) -> Iterator[None]:
    """A study goes on in its own folder, and in no other."""
    check_owned(out, MARK, WHOSE)
    with locked(out):
        check_owned(out, MARK, WHOSE)  # again: it may have come into use meanwhile
        (out / MARK).touch()
        yield


def _learn_once(
    folder: Path, recipe: CaptionRecipe, pictures: Captioned, source: list[str], device: torch.device, console: Console
) -> tuple[Captioner, Words, Card]:
    """The captioner that stands in the folder, or one that is trained and put there."""
    words, identity = Words(pictures.captions), {"recipe": hash_of(recipe), "pictures": source}
    torch.manual_seed(recipe.training.seed)
    model = Captioner(recipe.model, Cells(pictures).channels, len(words.words)).to(device)
    if folder.exists():
        card = verify(folder)
        if any(card.get(name) != value for name, value in identity.items()):
            what = "holds a captioner of another recipe, or of other pictures"
            raise ModelError(folder, what, hint="choose another --out, or remove the folder")
        console.out(f"{folder.name}: trained already", highlight=False)
        model.load_state_dict(read_tensors(folder / WEIGHTS))
        return model, words, card
    console.out(f"{folder.name}: {len(pictures):,} pictures to learn from", highlight=False)
    begun = time.monotonic()
    steps = train(model, pictures, words, recipe.training, lambda text: console.out(f"  {text}", highlight=False))
    card = {
        "format": FORMAT,
        "dragoman": __version__,
        **identity,
        "attention": recipe.model.attention,
        "parameters": sum(each.numel() for each in model.parameters()),
        "pictures_learned_from": len(pictures),
        "updates": steps,
        "seconds": round(time.monotonic() - begun, 1),
        "device": str(device),
        "threads": torch.get_num_threads(),
    }
    _save(folder, model, recipe, card)
    return model, words, card


def _save(folder: Path, model: Captioner, recipe: CaptionRecipe, card: Card) -> None:
    with new_folder(folder) as new:
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.named_parameters()}
        save_file(weights, new / WEIGHTS)
        (new / RECIPE).write_text(write_toml(recipe), encoding="utf-8")
        write_card(new, card | {"files": {name: file_sha256(new / name) for name in (WEIGHTS, RECIPE)}})


def make_report(learned: Sequence[Learned], command: str) -> Report:
    """Tables of what is right and where it is looked, and a few pictures."""
    first = learned[0]
    intro = (
        f"Captioners after Xu et al. (2015) that learned from {first.card['pictures_learned_from']:,} pictures, tested "
        f"on {len(first.test):,} that they never saw. Before each word soft attention takes the mean of all cells with "
        "its weights, hard attention a single cell, the likeliest. While it learned it looked softly at first, and "
        "drew its cell at more and more pictures towards the end."
    )
    tables, results = _measured(learned) if first.test.things is not None else _compared(learned)
    keys = ("parameters", "updates", "seconds", "device", "threads")
    costs: list[list[Cell]] = [[each.name, *(each.card[key] for key in keys)] for each in learned]
    tables.append(Table("Cost", ["attention", "parameters", "updates", "training, s", "device", "threads"], costs))
    figures = [_figure(each) for each in learned]
    return Report("Where a captioner looks", command, [intro, *tables, *figures], results)


def _measured(learned: Sequence[Learned]) -> tuple[list[Table], dict[str, Any]]:
    """Of pictures that were drawn, all is known."""
    rates = {each.name: assess(each.written, each.test) for each in learned}
    titles = {
        "Named right, % of pictures": (RIGHT, "Shape and colour: of both things. All: every word of the caption."),
        "Looked at the thing it names, % of the weight": (
            LOOKS,
            "On the cells in which the thing shows, at its words.",
        ),
    }
    tables = [
        Table(
            title,
            ["attention", *(name.removeprefix("looks for ") for name in names)],
            [[each, *(_percent(found[name]) for name in names)] for each, found in rates.items()],
            f"{note} In brackets 95 % intervals.",
        )
        for title, (names, note) in titles.items()
    ]
    results = {name: {key: asdict(rate) for key, rate in found.items()} for name, found in rates.items()}
    return tables, results


def _compared(learned: Sequence[Learned]) -> tuple[list[Table], dict[str, Any]]:
    """Of pictures that were given, there is their caption."""
    rows: list[list[Cell]] = []
    results = {}
    for each in learned:
        exact = Rate.of([float(a == b) for a, b in zip(each.written.captions, each.test.captions, strict=True)])
        score = bleu(each.written.captions, each.test.captions)
        rows.append([each.name, _percent(exact), score.score, score.signature])
        results[each.name] = {"all": asdict(exact), "bleu": asdict(score)}
    note = "In brackets the 95 % interval."
    return [Table("Captions", ["attention", "word for word, %", "BLEU", "signature"], rows, note)], results


def _percent(rate: Rate) -> str:
    return f"{100 * rate.mean:.1f} ({100 * rate.low:.1f} to {100 * rate.high:.1f})"


def _figure(learned: Learned) -> Figure:
    """The first pictures of the test, as they were looked at."""
    test, written = learned.test, learned.written
    shown = []
    for number in range(min(SHOWN, len(test))):
        words = written.captions[number].split()
        shares = [share.reshape(test.grid) for share in written.shares[number][: len(words)]]
        picture = join(test.cells[number]) if test.cells.dtype == np.uint8 else None
        shown.append(Looked(picture, words, shares))
    what = "each word's cells, darkest where it looks most"
    if test.things is not None:
        what = "the picture, then what is seen before each word, brightest where it looks most"
    return Figure(learned.name, f"{learned.name}: {what}.", as_svg(draw_glimpses(shown)))
