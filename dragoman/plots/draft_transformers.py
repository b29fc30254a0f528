"""The blueprints of the Transformer, with what its recipe may change, and of the decoder-only one."""

from dataclasses import replace
from typing import cast

from torch import nn

from dragoman.models.attention import MultiHeadAttention
from dragoman.models.language_model import LanguageModel, LanguageModelConfig
from dragoman.models.layers import DecoderLayer, EncoderLayer, GatedFeedForward, Residual
from dragoman.models.positions import Positions
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.plots.blueprint import Block, Blueprint, Column, Link, Stack, Sublayer
from dragoman.plots.boxes import add, count, decoder, embeddings, encoder, norm, output, positions, titled


def draft_transformer(config: TransformerConfig, model: Transformer) -> Blueprint:
    """Figure 1."""
    below, above = cast(EncoderLayer, model.encoder[0]), cast(DecoderLayer, model.decoder[0])
    window = "" if config.window is None else f", {config.window} neighbours"
    heads = _heads(config.heads, *config.channels, config.key_heads)
    own = heads + _turned(model.positions)
    around = _attention(f"Self-attention{window}", own, below.self_attention)
    back = _attention(f"Self-attention, none later{window}", own, above.self_attention)
    cross = _attention("Cross-attention", heads, above.cross_attention)
    source, target = embeddings(model.source_embedding, model.target_embedding)
    left = [
        _residual(around, below.self_attention_residual),
        _residual(_feed_forward(below.feed_forward, config.hidden), below.feed_forward_residual),
    ]
    right = [
        _residual(back, above.self_attention_residual),
        _residual(cross, above.cross_attention_residual),
        _residual(_feed_forward(above.feed_forward, config.hidden), above.feed_forward_residual),
    ]
    source_side = [source, *positions(model.positions)]
    target_side = [target, *positions(model.positions, is_counted=False)]
    columns = (
        encoder(*source_side, Stack(len(model.encoder), left), *norm(model.encoder_norm, before="Last ")),
        decoder(model, *target_side, Stack(len(model.decoder), right), *norm(model.decoder_norm, before="Last ")),
    )
    return titled("Transformer", model, columns, Link(cross, "memory: keys, values"))


def draft_language_model(config: LanguageModelConfig, model: LanguageModel) -> Blueprint:
    """One stack for both sides."""
    layer = cast(EncoderLayer, model.layers[0])
    channels = config.width // config.heads
    heads = _heads(config.heads, channels, channels) + _turned(model.positions)
    source, target = embeddings(model.source_embedding, model.target_embedding)
    is_shared = model.source_embedding is model.target_embedding
    around = _attention("Self-attention, none later", heads, layer.self_attention)
    sublayers = [
        _residual(around, layer.self_attention_residual),
        _residual(_feed_forward(layer.feed_forward, config.hidden), layer.feed_forward_residual),
    ]
    parts: list[Block | Stack] = [
        *([replace(source, name="Embedding")] if is_shared else [source, target]),
        *positions(model.positions),
        Stack(len(model.layers), sublayers),
        *norm(model.norm, before="Last "),
        *output(model),
    ]
    column = Column("Decoder alone", "source pieces, separator, target pieces", parts, "next piece")
    return titled("Decoder-only Transformer", model, (column,))


def _heads(heads: int, keys: int, values: int, key_heads: int | None = None) -> str:
    shared = f", {key_heads} of keys" if key_heads not in (None, heads) else ""
    channels = f"of {keys}" if keys == values else f"of {keys} and {values}"
    return f"{heads} heads {channels}{shared}"


def _turned(turning: Positions) -> str:
    return ", turned by position" if turning.is_rotary else ""


def _attention(name: str, heads: str, module: MultiHeadAttention) -> Block:
    return Block(name, heads, "attention", count(module))


def _feed_forward(part: nn.Module, hidden: int) -> Block:
    width = cast(nn.Linear, part.contract).out_features
    kind = "SwiGLU" if isinstance(part, GatedFeedForward) else "ReLU"
    return Block("Feed-forward", f"{width:,} → {hidden:,} → {width:,}, {kind}", "forward", count(part))


def _residual(block: Block, residual: Residual) -> Sublayer:
    """A sublayer with its norm, and an addition where there is something to add."""
    added = [add()] if residual.carries else []
    if residual.place == "pre":
        return Sublayer([*norm(residual.norm), block, *added], residual.carries)
    # Figure 1 has both in one box.
    normed = norm(residual.norm, before="Add, " if residual.carries else "")
    return Sublayer([block, *(normed or added)], residual.carries)
