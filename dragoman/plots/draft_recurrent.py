"""The blueprints of recurrent networks."""

from torch import nn

from dragoman.models.lstmn import Lstmn
from dragoman.models.recurrent import Recurrent, RecurrentConfig
from dragoman.plots.blueprint import Block, Blueprint, Link, Stack, Sublayer
from dragoman.plots.boxes import add, count, decoder, embeddings, encoder, titled


def draft_recurrent(config: RecurrentConfig, model: Recurrent) -> Blueprint:
    """Of any cell, with or without attention."""
    width, cell = config.width, config.cell.upper()
    reads = {"forward": "", "backward": ", backwards", "both": ", both ways"}[config.reads]
    source, target = embeddings(model.source_embedding, model.target_embedding)
    below = Block(cell + reads, f"{width:,} → {width:,}", "recurrent", count(model.encoder[0]))
    first, looking, combining = _first_cell(config, model), [], []
    links = [Link(first, "last states" + (", the top one told at every step" if model.tells_always else ""))]
    if model.looks is not None:
        asked = f"asked by its state {model.looks} the step"
        looking = [Block(f"Attention, {config.attention}{_sight(config)}", asked, "attention", count(model.alignment))]
        combining = [_combine(width, model.combine)]
        links.append(Link(looking[0], "keys, values"))
    layers: list[Block | Stack] = [first, *_further(cell, config, model.decoder)]
    steps = [*looking, *layers] if model.looks == "before" else [*layers, *looking]
    columns = (
        encoder(source, below, *_further(cell, config, model.encoder)),
        decoder(model, target, *steps, *combining),
    )
    return titled("Recurrent encoder-decoder", model, columns, *links)


def draft_lstmn(model: Lstmn) -> Blueprint:
    """Two tapes, and attention between them."""
    width = f"{model.width:,}"
    source, target = embeddings(model.source_embedding, model.target_embedding)
    looking = Block("Attention, additive", "asked by what was shown last", "attention", count(model.score))
    read = Block("LSTM that looks back", f"{width} → {width}", "recurrent", count(model.encoder))
    written = Block("LSTM that looks back", f"2 · {width} → {width}", "recurrent", count(model.decoder))
    columns = (
        encoder(source, read),
        decoder(model, target, looking, written, _combine(model.width, model.combine)),
    )
    return titled("LSTMN", model, columns, Link(looking, "tape: keys, values"))


def _first_cell(config: RecurrentConfig, model: Recurrent) -> Block:
    """The decoder's first layer is told more than the piece."""
    told = ["piece"]
    told += {"before": ["what it found"], "after": ["its last output"], None: []}[model.looks]
    told += ["summary"] if model.tells_always else []
    name = f"{config.cell.upper()} of {' + '.join(told)}"
    return Block(name, f"{len(told)} · {config.width:,} → {config.width:,}", "recurrent", count(model.decoder[0]))


def _sight(config: RecurrentConfig) -> str:
    return "" if config.sight == "all" else f", {config.sight}, {config.window} to each side"


def _further(cell: str, config: RecurrentConfig, layers: nn.ModuleList) -> list[Block | Stack]:
    """The layers above the first."""
    if len(layers) == 1:
        return []
    block = Block(cell, f"{config.width:,} → {config.width:,}", "recurrent", count(layers[1]))
    if len(layers) == 2 and not config.residual:
        return [block]
    return [Stack(len(layers) - 1, [Sublayer([block, add()] if config.residual else [block], config.residual)])]


def _combine(width: int, module: nn.Module) -> Block:
    return Block("Combine, tanh", f"2 · {width:,} → {width:,}", "forward", count(module))
