"""A model for MarianMT in transformers: a folder that `from_pretrained` loads, model and tokenizer.

The paper interleaves sines and cosines (section 3.5), Marian has all sines before all cosines. So every weight's width
axis is permuted: the channels of the residual stream change places and nothing else does.
"""

import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from safetensors.torch import save_file
from torch import Tensor

from dragoman.batch import BOS, EOS, PAD, UNK
from dragoman.data.vocabulary import Vocabulary
from dragoman.decoding.scoring import Ids
from dragoman.errors import ModelError
from dragoman.export.parity import sample_sources
from dragoman.export.support import ExportPrecision
from dragoman.models.transformer import TransformerConfig
from dragoman.saved import SavedModel

WEIGHTS, SPMS, VOCABULARIES = "model.safetensors", ("source.spm", "target.spm"), ("vocab.json", "target_vocab.json")
LOGITS_BIAS = "final_logits_bias"

# Our name of a part of a layer, Marian's, and which axis of its weight is the width: 0 where it writes into the
# residual stream, 1 where it reads from it.
ATTENTION = {"query": ("q_proj", 1), "key": ("k_proj", 1), "value": ("v_proj", 1), "output": ("out_proj", 0)}
PARTS = {
    "feed_forward.expand": ("fc1", 1),
    "feed_forward.contract": ("fc2", 0),
    "self_attention_residual.norm": ("self_attn_layer_norm", 0),
    "cross_attention_residual.norm": ("encoder_attn_layer_norm", 0),
    "feed_forward_residual.norm": ("final_layer_norm", 0),
}
for ours, theirs in (("self_attention", "self_attn"), ("cross_attention", "encoder_attn")):
    PARTS |= {f"{ours}.{part}": (f"{theirs}.{name}", axis) for part, (name, axis) in ATTENTION.items()}


def write(folder: Path, saved: SavedModel, config: TransformerConfig, precision: ExportPrecision) -> "Loaded":
    """Write weights, configuration and tokenizer."""
    del precision  # float32 is all there is
    shared = saved.recipe.data.shared
    vocabularies = saved.source_vocabulary, saved.target_vocabulary
    save_file(permuted(dict(saved.model.named_parameters()), shared), folder / WEIGHTS, {"format": "pt"})
    for name, vocabulary in zip(SPMS, vocabularies, strict=True):
        (folder / name).write_bytes(vocabulary.proto)
    for name, vocabulary in zip(VOCABULARIES[: 1 if shared else 2], vocabularies, strict=False):
        _write_json(folder / name, numbered(vocabulary))
    sizes = len(vocabularies[0]), len(vocabularies[1])
    _write_json(folder / "config.json", model_config(config, sizes, shared))
    _write_json(folder / "generation_config.json", _generation_config(saved, config))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(saved, config))
    loaded = Loaded.of(folder)
    loaded.check_tokenizer(saved)
    return loaded


def permuted(parameters: dict[str, Tensor], shared: bool) -> dict[str, Tensor]:
    """Our parameters under Marian's names, sines before cosines; the biases that its attention has are zero."""
    order = sines_first(len(next(tensor for name, tensor in parameters.items() if name.endswith("norm.weight"))))
    weights = {}
    for name, tensor in parameters.items():
        theirs, axis = marian_name(name, shared)
        tensor = tensor.detach().cpu().float()
        weights[theirs] = (tensor if axis is None else tensor.index_select(axis, order)).contiguous()
        if theirs.endswith("_proj.weight"):
            weights[theirs.replace(".weight", ".bias")] = torch.zeros(len(tensor))
    weights[LOGITS_BIAS] = torch.zeros(1, len(parameters["target_embedding.weight"]))
    return weights


def sines_first(width: int) -> Int[Tensor, " D"]:
    """Which of our channels stands at each place of Marian's."""
    return torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))


def marian_name(name: str, shared: bool) -> tuple[str, int | None]:
    """Marian's name of one of our parameters, and which axis is the width."""
    if name == "target_embedding.weight":
        return ("model.shared.weight" if shared else "model.decoder.embed_tokens.weight"), 1
    if name == "source_embedding.weight":
        return "model.encoder.embed_tokens.weight", 1
    found = re.fullmatch(r"(encoder|decoder)\.(\d+)\.(.+)\.(weight|bias)", name)
    assert found, name
    part, axis = PARTS[found[3]]
    is_hidden_bias = (part, found[4]) == ("fc1", "bias")
    return f"model.{found[1]}.layers.{found[2]}.{part}.{found[4]}", None if is_hidden_bias else axis


def model_config(config: TransformerConfig, sizes: tuple[int, int], shared: bool) -> dict[str, Any]:
    """The shape as Marian states it."""
    layers = {"encoder": config.layers, "decoder": config.decoder_layers or config.layers}
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        **{f"{side}_layers": number for side, number in layers.items()},
        **{f"{side}_attention_heads": config.heads for side in layers},
        **{f"{side}_ffn_dim": config.hidden for side in layers},
        "d_model": config.width,
        "dropout": config.dropout,
        "activation_function": "relu",
        "scale_embedding": True,
        "max_position_embeddings": config.longest,
        "vocab_size": sizes[0],
        "decoder_vocab_size": sizes[1],
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        **_special_ids(),
        "dtype": "float32",
    }


def _special_ids() -> dict[str, int]:
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": EOS,
    }


def _generation_config(saved: SavedModel, config: TransformerConfig) -> dict[str, Any]:
    decoding = saved.recipe.decoding
    return {
        **_special_ids(),
        "max_length": config.longest,
        "num_beams": decoding.beam,
        # Theirs is the exponent of the length itself: near to ours, not the same.
        "length_penalty": decoding.alpha,
        "suppress_tokens": [PAD, UNK, BOS],
    }


def _tokenizer_config(saved: SavedModel, config: TransformerConfig) -> dict[str, Any]:
    source, target = saved.card.get("languages") or (None, None)
    specials = saved.target_vocabulary.pieces(range(EOS + 1))
    return {
        "tokenizer_class": "MarianTokenizer",
        **{f"{name}_token": specials[id] for name, id in (("pad", PAD), ("unk", UNK), ("bos", BOS), ("eos", EOS))},
        "source_lang": source,
        "target_lang": target,
        "separate_vocabs": not saved.recipe.data.shared,
        "model_max_length": config.longest,
        "clean_up_tokenization_spaces": False,
    }


def numbered(vocabulary: Vocabulary) -> dict[str, int]:
    """Every piece with its id."""
    return {piece: id for id, piece in enumerate(vocabulary.pieces(range(len(vocabulary))))}


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Loaded:
    """The folder, as transformers loads it."""

    folder: Path
    model: Any
    tokenizer: Any

    @classmethod
    def of(cls, folder: Path) -> "Loaded":
        """What transformers makes of a folder."""
        with _quiet():
            from transformers import MarianMTModel, MarianTokenizer

            model = MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
            return cls(folder, model, MarianTokenizer.from_pretrained(folder))

    def check_tokenizer(self, saved: SavedModel) -> None:
        """Text becomes the same ids, and ids become the same text but for the blanks around it."""
        source, target = saved.source_vocabulary, saved.target_vocabulary
        texts = source.decode(sample_sources(source, saved.model.longest - 1))
        for text, ids in zip(texts, source.encode(texts), strict=True):
            if list(self.tokenizer(text).input_ids) != [*ids, EOS]:
                raise ModelError(saved.folder, f"not exported: MarianTokenizer reads other pieces, of {text!r}")
        written = sample_sources(target, saved.model.longest - 1)
        for ids, text in zip(written, target.decode(written), strict=True):
            if self.tokenizer.decode([BOS, *ids, EOS], skip_special_tokens=True) != text.strip():
                raise ModelError(saved.folder, f"not exported: MarianTokenizer writes another text than {text!r}")

    @torch.inference_mode()
    def greedy(self, source: Ids, pieces: int) -> Ids:
        """The likeliest piece at every step, of at most so many with the end."""
        ids = torch.tensor([[*source, EOS]])
        with _quiet():
            written = self.model.generate(input_ids=ids, num_beams=1, max_new_tokens=pieces, do_sample=False)[0]
        return [id for id in written.tolist() if id > EOS]

    @torch.inference_mode()
    def log_probability(self, source: Ids, target: Ids) -> float:
        """That of a given translation."""
        ids, read = torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]])
        logits = self.model(input_ids=ids, decoder_input_ids=read).logits[0]
        return float(logits.log_softmax(-1).gather(1, torch.tensor([[*target, EOS]]).T).sum())


@contextmanager
def _quiet() -> Iterator[None]:
    """Let transformers keep its advice and its progress bars to itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        yield
