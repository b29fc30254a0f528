"""Pictures of what a trained model looks at: `dragoman plot attention` and `dragoman plot head`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dragoman.commands.options import Checkpoint, Device, ModelPath, Threads, choose_place, load_together, new_console
from dragoman.commands.pictures import TERMINAL, Out, OutOrTerminal, choose_file, save_picture
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.decoding.translator import AttentionMaps, Translator
    from dragoman.plots.attention import Looks

Source = Annotated[str, typer.Option(help="A sentence to translate.")]
Target = Annotated[str | None, typer.Option(help="Its translation; the model's own unless given.")]
Kind = Annotated[Literal["cross", "encoder", "decoder"], typer.Option(help="Who looks at whom.")]
Layer = Annotated[int | None, typer.Option(min=1, help="Counted from 1; the last unless given.")]
KINDS = {
    "cross": "cross-attention",
    "encoder": "the encoder's self-attention",
    "decoder": "the decoder's self-attention",
}


def attention(
    model: ModelPath,
    source: Source,
    target: Target = None,
    kind: Kind = "cross",
    layer: Layer = None,
    head: Annotated[str | None, typer.Option(help="A number from 1, all, or mean; mean, and of lines all.")] = None,
    style: Annotated[Literal["map", "lines"], typer.Option(help="A matrix, or Figures 3 to 5.")] = "map",
    word: Annotated[str | None, typer.Option(help="Of lines: one word's alone, by its text or its number.")] = None,
    out: OutOrTerminal = None,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """What each piece looks at, as a map or as lines (Figures 3 to 5)."""
    from dragoman.plots.attention import draw_lines, draw_maps, find_word
    from dragoman.plots.terminal import attention_map

    place = choose_file(out, "attention", has_text=style == "map")
    if word is not None and style != "lines":
        raise ConfigError("--word", "needs --style lines")
    translator, target = _translated(model, source, target, checkpoint, device, threads)
    maps = translator.attention(source, target)
    looks, title = _choose(maps, kind, layer, head or ("all" if style == "lines" else "mean"), model)
    if place == TERMINAL:
        for weights, name in zip(looks.weights, looks.heads, strict=True):
            print(f"{name}\n{attention_map(weights, looks.queries, looks.keys)}")
    elif style == "map":
        save_picture(draw_maps(looks, title), place)
    else:
        chosen = None if word is None else find_word(word, looks.queries)
        if chosen is not None and not chosen:
            known = " ".join(looks.queries)
            raise ConfigError("--word", f"none of the pieces that look, got {word}", hint=f"there are: {known}")
        save_picture(draw_lines(looks, title, chosen), place)


def head(
    model: ModelPath,
    source: Source,
    target: Target = None,
    kind: Kind = "encoder",
    layer: Layer = None,
    head: Annotated[int, typer.Option(min=1, help="Counted from 1.")] = 1,
    out: Out = None,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """One head from X through Q, K, V, scores and weights to the output, with the model's numbers (Figure 2)."""
    from dragoman.batch import Batch
    from dragoman.plots.head import draw_head, find_attentions, watch

    place = choose_file(out, "head")
    translator, target = _translated(model, source, target, checkpoint, device, threads)
    ids = translator.encode([source])[0], translator.target_vocabulary.encode([target])[0]
    maps = translator.attention_of_ids(*ids)
    attentions = find_attentions(translator.models[0], kind)
    if not attentions:
        hint = "plot attention shows what it has" if _kinds(maps) else "it has no attention"
        raise ConfigError(model, f"has no heads to look into in {KINDS[kind]}", hint=hint)
    number = _pick("--layer", layer or len(attentions), len(attentions), "layer")
    attention = attentions[number - 1]
    _pick("--head", head, attention.heads, "head")
    batch = Batch.of([ids[0]], [ids[1]]).to(translator.models[0].device)
    seen = watch(translator.models[0], attention, batch, head - 1)
    _, keys = _sides(maps, kind)
    queries = keys if kind == "encoder" else maps.read_pieces  # whose embeddings X begins with
    if len(queries) < len(seen.given):  # decoder-only: one sequence of both sides
        queries = keys = [*maps.source_pieces, *maps.read_pieces]
    title = _title(kind, number, len(attentions), f"head {head} of {attention.heads}")
    save_picture(draw_head(seen, queries, keys, "memory" if kind == "cross" else "X", title), place)


def _translated(
    model: Path, source: str, target: str | None, checkpoint: str | None, device: str, threads: int | None
) -> "tuple[Translator, str]":
    """A translator with the sentence's translation, its own unless it was given."""
    for flag, text in (("--source", source), ("--target", target)):
        if text is not None and not text.strip():
            raise ConfigError(flag, "is blank")
        if text is not None and re.search("[\ud800-\udfff]", text):
            raise ConfigError(flag, f"is not UTF-8, got {text!a}")
    translator = load_together([model], choose_place(device, threads), checkpoint, {})
    if target is None:
        target = translator.translate([source])[0].text
        new_console().out(f"translation: {target}", highlight=False)
    return translator, target


def _choose(maps: "AttentionMaps", kind: str, layer: int | None, head: str, model: Path) -> "tuple[Looks, str]":
    """The weights that are to be drawn, and what they are."""
    from dragoman.plots.attention import Looks

    layers = getattr(maps, kind)
    if not len(layers):
        what = ", ".join(_kinds(maps)) or "no attention"
        raise ConfigError(model, f"has no {KINDS[kind].removeprefix('the ')}", hint=f"it has: {what}")
    number = _pick("--layer", layer or len(layers), len(layers), "layer")
    weights = layers[number - 1]
    names = [f"head {each}" for each in range(1, len(weights) + 1)]
    if head == "mean":
        names = [f"mean of {len(names)} heads" if len(names) > 1 else "its one head"]
        weights = weights.mean(0, keepdim=True)
    elif head != "all":
        chosen = _pick("--head", head, len(weights), "head", ", all or mean")
        weights, names = weights[chosen - 1 : chosen], names[chosen - 1 : chosen]
    what = names[0] if len(names) == 1 else f"{len(names)} heads"
    return Looks(weights, *_sides(maps, kind), names), _title(kind, number, len(layers), what)


def _kinds(maps: "AttentionMaps") -> list[str]:
    return [kind for kind in KINDS if len(getattr(maps, kind))]


def _title(kind: str, layer: int, layers: int, heads: str) -> str:
    text = f"{KINDS[kind]}, layer {layer} of {layers}, {heads}"
    return text[0].upper() + text[1:]


def _sides(maps: "AttentionMaps", kind: str) -> tuple[list[str], list[str]]:
    """The pieces that look, and those that are looked at."""
    match kind:
        case "encoder":
            return maps.source_pieces, maps.source_pieces
        case "decoder":
            return maps.target_pieces, maps.read_pieces
        case _:
            return maps.target_pieces, maps.source_pieces


def _pick(flag: str, number: str | int, count: int, what: str, or_else: str = "") -> int:
    if not str(number).isdecimal() or not 1 <= int(number) <= count:
        has, numbers = (f"one {what}", "1") if count == 1 else (f"{count} {what}s", f"a number from 1 to {count}")
        raise ConfigError(flag, f"the model has {has}, got {number}", hint=f"say {numbers}{or_else}")
    return int(number)
