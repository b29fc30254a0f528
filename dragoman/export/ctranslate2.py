"""A model for CTranslate2: its own specification of a Transformer, filled with our weights as they are.

Its position table is a weight, so ours goes in; its attention may do without biases, as the paper's does.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from dragoman.batch import BOS, EOS, UNK
from dragoman.data.vocabulary import Vocabulary
from dragoman.decoding.engines import Ctranslate2Engine
from dragoman.decoding.scoring import Ids
from dragoman.export.parity import GREEDY
from dragoman.export.support import ExportPrecision
from dragoman.models.attention import MultiHeadAttention
from dragoman.models.layers import DecoderLayer, EncoderLayer, FeedForward, GatedFeedForward, Residual
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.saved import SOURCE, TARGET, SavedModel


@dataclass(frozen=True)
class _Converted:
    """The folder, as our own engine runs it."""

    engine: Ctranslate2Engine

    def greedy(self, source: Ids, pieces: int) -> Ids:
        decoding = GREEDY.model_copy(update={"extra": pieces - len(source) - 1})
        return self.engine.search([source], decoding, 1, None)[0][0].ids

    def log_probability(self, source: Ids, target: Ids) -> float:
        return self.engine.score([source], [target])[0].log_probability


def write(folder: Path, saved: SavedModel, config: TransformerConfig, precision: ExportPrecision) -> _Converted:
    """Write `model.bin`, `config.json`, the vocabularies, and what our own engine needs to read and write text."""
    spec = _specification(config)
    model = cast(Transformer, deepcopy(saved.model).cpu())  # quantising writes into the tensors it is given
    with torch.no_grad():
        _fill_stack(spec.encoder, model, cast(list[EncoderLayer], list(model.encoder)), model.encoder_norm)
        _fill_stack(spec.decoder, model, cast(list[DecoderLayer], list(model.decoder)), model.decoder_norm)
        spec.encoder.embeddings[0].weight = model.source_embedding.weight
        spec.decoder.embeddings.weight = model.target_embedding.weight
        spec.decoder.projection.weight = model.projection
    source, target = pieces_of(saved.source_vocabulary), pieces_of(saved.target_vocabulary)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (target[id] for id in (UNK, BOS, EOS))
    spec.config.decoder_start_token = target[BOS]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = _epsilon(model)
    spec.validate()
    spec.optimize(quantization=precision)
    spec.save(str(folder))
    vocabularies = saved.source_vocabulary, saved.target_vocabulary
    for name, vocabulary in zip((SOURCE, TARGET), vocabularies, strict=True):
        (folder / name).write_bytes(vocabulary.proto)
    return _Converted(Ctranslate2Engine(folder, vocabularies, config.longest, precision))


def pieces_of(vocabulary: Vocabulary) -> list[str]:
    """Every piece in the order of its id."""
    return vocabulary.pieces(range(len(vocabulary)))


def _specification(config: TransformerConfig) -> Any:
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    is_gated = config.feed_forward == "swiglu"
    shape: dict[str, Any] = {
        "num_heads": config.heads,
        "pre_norm": config.norm == "pre",
        "activation": Activation.SWISH if is_gated else Activation.RELU,
        "ffn_glu": is_gated,
        "rms_norm": config.norm_kind == "rms",
        "num_heads_kv": None if config.key_heads in (None, config.heads) else config.key_heads,
        "rotary_dim": config.channels[0] if config.positions == "rotary" else None,
    }
    return TransformerSpec(
        TransformerEncoderSpec(config.layers, **shape),
        TransformerDecoderSpec(config.decoder_layers or config.layers, **shape),
    )


def _fill_stack(spec: Any, model: Transformer, layers: Sequence[EncoderLayer | DecoderLayer], final: nn.Module) -> None:
    spec.scale_embeddings = True  # by sqrt(width), as in section 3.4
    if not model.positions.is_rotary:
        table = model.positions.table
        spec.position_encodings.encodings = torch.zeros(model.longest, model.width) if table is None else table
    if not isinstance(final, nn.Identity):
        _fill_norm(spec.layer_norm, final)
    for part, layer in zip(spec.layer, layers, strict=True):
        _fill_attention(part.self_attention, layer.self_attention, layer.self_attention_residual)
        if isinstance(layer, DecoderLayer):
            _fill_attention(part.attention, layer.cross_attention, layer.cross_attention_residual)
        _fill_feed_forward(part.ffn, layer.feed_forward)
        _fill_norm(part.ffn.layer_norm, layer.feed_forward_residual.norm)


def _fill_attention(spec: Any, attention: MultiHeadAttention, residual: Residual) -> None:
    """Queries, keys and values in one matrix where all come from the same place, else keys and values."""
    weights = [part.weight for part in (attention.query, attention.key, attention.value)]
    projections = [torch.cat(weights)] if len(spec.linear) == 2 else [weights[0], torch.cat(weights[1:])]
    for linear, weight in zip(spec.linear, [*projections, attention.output.weight], strict=True):
        linear.weight = weight
    _fill_norm(spec.layer_norm, residual.norm)


def _fill_feed_forward(spec: Any, feed_forward: nn.Module) -> None:
    if isinstance(feed_forward, GatedFeedForward):
        spec.linear_0.weight = feed_forward.gate.weight
        spec.linear_0_noact.weight = feed_forward.expand.weight
        spec.linear_1.weight = feed_forward.contract.weight
        return
    assert isinstance(feed_forward, FeedForward)
    for linear, part in ((spec.linear_0, feed_forward.expand), (spec.linear_1, feed_forward.contract)):
        linear.weight, linear.bias = part.weight, part.bias


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = norm.weight
    if isinstance(norm, nn.LayerNorm):
        spec.beta = norm.bias


def _epsilon(model: Transformer) -> float:
    norm = cast(EncoderLayer, model.encoder[0]).feed_forward_residual.norm
    return cast(float, norm.eps) or float(torch.finfo(torch.float32).eps)  # what torch's RMSNorm takes unless told
