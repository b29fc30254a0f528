"""The blueprint of each system, with the widths and counts of the model itself."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import nn

from dragoman.data.vocabulary import BYTES, SPECIALS
from dragoman.models.interface import Model
from dragoman.models.language_model import LanguageModel, LanguageModelConfig
from dragoman.models.layers import DecoderLayer, EncoderLayer, GatedFeedForward, Residual
from dragoman.models.lstmn import Lstmn, LstmnConfig
from dragoman.models.positions import Positions
from dragoman.models.recurrent import Recurrent, RecurrentConfig
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.plots.blueprint import Block, Blueprint, Column, Link, Stack, Sublayer
from dragoman.plots.charts import TIMES
from dragoman.recipe import Recipe, read_recipe
from dragoman.saved import build_model, load_model

POSITIONS = {"sinusoidal": "Add positions: sines and cosines", "learned": "Add positions: learned"}
TURNED = {"rotary": ", turned by position"}  # where nothing is added
NORM_NAMES = {"layer": "layer norm", "rms": "RMS norm"}


def draft_recipe(name: str, vocabulary: int | None) -> Blueprint:
    """What a recipe makes, without making it."""
    recipe = read_recipe(name)
    pieces = vocabulary or recipe.data.vocabulary + SPECIALS + (BYTES if recipe.data.byte_fallback else 0)
    with torch.device("meta"):
        return draft(recipe, build_model(recipe, pieces, pieces))


def draft_folder(path: Path, checkpoint: str | None) -> Blueprint:
    """What is in a model folder or a run."""
    saved = load_model(path, checkpoint)
    return draft(saved.recipe, saved.model)


def draft(recipe: Recipe, model: Model) -> Blueprint:
    """The blueprint of a recipe's model; of a system that is not known here, a list of its parts."""
    config = recipe.model
    match config, model:
        case TransformerConfig(), Transformer():
            return _transformer(config, model)
        case LanguageModelConfig(), LanguageModel():
            return _language_model(config, model)
        case RecurrentConfig(), Recurrent():
            return _recurrent(config, model)
        case LstmnConfig(), Lstmn():
            return _lstmn(model)
        case _:
            return _list_of_parts(config.kind, model)


def _transformer(config: TransformerConfig, model: Transformer) -> Blueprint:
    encoder, decoder = cast(EncoderLayer, model.encoder[0]), cast(DecoderLayer, model.decoder[0])
    window = "" if config.window is None else f", {config.window} neighbours"
    heads = _heads(config.heads, *config.channels, config.key_heads)
    norm = NORM_NAMES[config.norm_kind]
    own = heads + TURNED.get(config.positions, "")
    around = _attention(f"Self-attention{window}", own, encoder.self_attention)
    back = _attention(f"Self-attention, none later{window}", own, decoder.self_attention)
    cross = _attention("Cross-attention", heads, decoder.cross_attention)
    source, target = _embeddings(model, model.positions, config.positions)
    left = [
        _residual(around, encoder.self_attention_residual, norm),
        _residual(_feed_forward(encoder.feed_forward, config.hidden), encoder.feed_forward_residual, norm),
    ]
    right = [
        _residual(back, decoder.self_attention_residual, norm),
        _residual(cross, decoder.cross_attention_residual, norm),
        _residual(_feed_forward(decoder.feed_forward, config.hidden), decoder.feed_forward_residual, norm),
    ]
    columns = (
        _encoder(*source, Stack(len(model.encoder), left), *_final_norm(model.encoder_norm, norm)),
        _decoder(*target, Stack(len(model.decoder), right), *_final_norm(model.decoder_norm, norm), *_output(model)),
    )
    return Blueprint(_title("Transformer", model), columns, [Link(cross, "memory: keys, values")])


def _language_model(config: LanguageModelConfig, model: LanguageModel) -> Blueprint:
    layer, norm = cast(EncoderLayer, model.layers[0]), NORM_NAMES["layer"]
    channels = config.width // config.heads
    heads = _heads(config.heads, channels, channels) + TURNED.get(config.positions, "")
    source, target = _embeddings(model, model.positions, config.positions)
    is_shared = model.source_embedding is model.target_embedding
    embeddings = [replace(source[0], name="Embedding")] if is_shared else [source[0], target[0]]
    around = _attention("Self-attention, none later", heads, layer.self_attention)
    sublayers = [
        _residual(around, layer.self_attention_residual, norm),
        _residual(_feed_forward(layer.feed_forward, config.hidden), layer.feed_forward_residual, norm),
    ]
    stack = Stack(len(model.layers), sublayers)
    parts: list[Block | Stack] = [*embeddings, *source[1:], stack, *_final_norm(model.norm, norm), *_output(model)]
    column = Column("Decoder alone", "source pieces, separator, target pieces", parts, "next piece")
    return Blueprint(_title("Decoder-only Transformer", model), (column,))


def _recurrent(config: RecurrentConfig, model: Recurrent) -> Blueprint:
    width, cell = config.width, config.cell.upper()
    reads = {"forward": "", "backward": ", backwards", "both": ", both ways"}[config.reads]
    source, target = _embeddings(model, None)
    below = Block(cell + reads, f"{width:,} → {width:,}", "recurrent", count(model.encoder[0]))
    first, looking, combining = _first_cell(config, model), [], []
    links = [Link(first, "last states" + (", the top one told at every step" if model.tells_always else ""))]
    if model.looks is not None:
        asked = f"asked by its state {model.looks} the step"
        looking = [Block(f"Attention, {config.attention}{_sight(config)}", asked, "attention", count(model.alignment))]
        combining = [_combine(width, model.combine)]
        links.append(Link(looking[0], "keys, values"))
    layers: list[Block | Stack] = [first, *_further(cell, config, model.decoder)]
    decoder = [*looking, *layers] if model.looks == "before" else [*layers, *looking]
    columns = (
        _encoder(*source, below, *_further(cell, config, model.encoder)),
        _decoder(*target, *decoder, *combining, *_output(model)),
    )
    return Blueprint(_title("Recurrent encoder-decoder", model), columns, links)


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
    return [Stack(len(layers) - 1, [Sublayer([block, _add()] if config.residual else [block], config.residual)])]


def _lstmn(model: Lstmn) -> Blueprint:
    width = f"{model.width:,}"
    source, target = _embeddings(model, None)
    looking = Block("Attention, additive", "asked by what was shown last", "attention", count(model.score))
    read = Block("LSTM that looks back", f"{width} → {width}", "recurrent", count(model.encoder))
    written = Block("LSTM that looks back", f"2 · {width} → {width}", "recurrent", count(model.decoder))
    combining = _combine(model.width, model.combine)
    columns = (_encoder(*source, read), _decoder(*target, looking, written, combining, *_output(model)))
    return Blueprint(_title("LSTMN", model), columns, [Link(looking, "tape: keys, values")])


def _list_of_parts(kind: str, model: Model) -> Blueprint:
    seen: set[int] = set()
    blocks: list[Block] = []
    for name, part in model.named_children():
        own = {id(each): each.numel() for each in part.parameters() if id(each) not in seen}
        seen |= own.keys()
        what = f"{len(part)} of them" if isinstance(part, nn.ModuleList) else type(part).__name__
        if own:
            blocks.append(Block(name.replace("_", " "), what, "other", sum(own.values())))
    rest = sum(each.numel() for each in model.parameters() if id(each) not in seen)
    blocks += [Block("of its own", "", "other", rest)] if rest else []
    return Blueprint(_title(kind, model), (Column("Parts", "", blocks, "", flows=False),))


def _encoder(*parts: Block | Stack) -> Column:
    return Column("Encoder", "source pieces", parts, "")


def _decoder(*parts: Block | Stack) -> Column:
    return Column("Decoder", "target pieces, shifted right", parts, "next piece")


def _attention(name: str, widths: str, module: nn.Module) -> Block:
    return Block(name, widths, "attention", count(module))


def _combine(width: int, module: nn.Module) -> Block:
    return Block("Combine, tanh", f"2 · {width:,} → {width:,}", "forward", count(module))


def count(module: nn.Module) -> int:
    """Its parameters."""
    return sum(each.numel() for each in module.parameters())


def _title(name: str, model: Model) -> str:
    return f"{name}: {count(model):,} parameters"


def _heads(heads: int, keys: int, values: int, key_heads: int | None = None) -> str:
    shared = f", {key_heads} of keys" if key_heads not in (None, heads) else ""
    channels = f"of {keys}" if keys == values else f"of {keys} and {values}"
    return f"{heads} heads {channels}{shared}"


def _residual(block: Block, residual: Residual, norm: str) -> Sublayer:
    size = f"{cast(int, residual.norm.weight.numel()):,}"  # type: ignore[operator]
    if residual.place == "post":
        return Sublayer([block, Block(f"Add, {norm}", size, "norm", count(residual.norm))])
    return Sublayer([Block(norm[0].upper() + norm[1:], size, "norm", count(residual.norm)), block, _add()])


def _feed_forward(part: nn.Module, hidden: int) -> Block:
    width = cast(nn.Linear, part.contract).out_features
    kind = "SwiGLU" if isinstance(part, GatedFeedForward) else "ReLU"
    return Block("Feed-forward", f"{width:,} → {hidden:,} → {width:,}, {kind}", "forward", count(part))


def _final_norm(module: nn.Module, norm: str) -> list[Block]:
    size = count(module)
    return [Block(f"Last {norm}", "", "norm", size)] if size else []


def _embeddings(
    model: Transformer | LanguageModel | Recurrent | Lstmn, positions: Positions | None, kind: str = ""
) -> tuple[list[Block], list[Block]]:
    """How each side's pieces become vectors; what both share is counted at the first."""
    is_shared = model.source_embedding is model.target_embedding
    sides = []
    for name, embedding in (("Source", model.source_embedding), ("Target", model.target_embedding)):
        is_counted = name == "Source" or not is_shared
        widths = f"{embedding.num_embeddings:,} pieces {TIMES} {embedding.embedding_dim:,}"
        text = widths if is_counted else f"{widths} · the same matrix"
        blocks = [Block(f"{name} embedding", text, "embedding", count(embedding) if is_counted else 0)]
        if positions is not None and kind in POSITIONS:
            learned = count(positions)
            shared = "the same table" if learned and name == "Target" else ""
            blocks.append(Block(POSITIONS[kind], shared, "other", 0 if shared else learned))
        sides.append(blocks)
    return sides[0], sides[1]


def _add() -> Block:
    return Block("Add", "", "norm")


def _output(model: Model) -> list[Block]:
    pieces, width = model.projection.shape
    return [
        Block("Linear", f"{width:,} → {pieces:,} · the target embedding", "projection"),
        Block("Softmax", f"{pieces:,} pieces", "other"),
    ]
