"""The way back: a MarianMT folder becomes a model, where it holds what the paper's Transformer has and nothing else."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from dragoman.config import check
from dragoman.data.vocabulary import BYTES, SPECIALS, Vocabulary
from dragoman.errors import ModelError
from dragoman.export.marian import (
    LOGITS_BIAS,
    SPMS,
    VOCABULARIES,
    WEIGHTS,
    marian_name,
    model_config,
    numbered,
    sines_first,
)
from dragoman.models.positions import sinusoids
from dragoman.models.transformer import TransformerConfig
from dragoman.recipe import Recipe, TrainingConfig
from dragoman.saved import RECIPE, build_model, read_card, read_recipe_file, read_tensors, save_model

CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"


def import_marian(folder: Path, out: Path) -> int:
    """Write a model folder; the number of its parameters. All that cannot be held is named at once."""
    config = _read_json(folder, CONFIG)
    if not (folder / WEIGHTS).is_file():
        hint = "load it with transformers and call save_pretrained, which writes model.safetensors"
        raise ModelError(folder, f"no {WEIGHTS} here; other files of weights can run code and are not read", hint=hint)
    vocabularies = _read_vocabularies(folder, config)
    recipe = _recipe_of(folder, config, vocabularies)
    shape = cast(TransformerConfig, recipe.model)
    tensors = read_tensors(folder / WEIGHTS)
    problems = _other_settings(config, shape, vocabularies, recipe.data.shared)
    problems += _other_pieces(folder, vocabularies, recipe.data.shared)
    model = build_model(recipe, *map(len, vocabularies))
    parameters = dict(model.named_parameters())
    problems += [] if problems else _fill(parameters, tensors, recipe.data.shared)
    if problems:
        raise ModelError(folder, "\n".join(f"cannot be imported: {problem}" for problem in problems))
    save_model(out, model, recipe, vocabularies, _card_of(folder))
    return sum(parameter.numel() for parameter in parameters.values())


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        values = json.loads((folder / name).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(folder, f"no MarianMT folder: it has no {name}") from None
    except (OSError, ValueError) as error:
        raise ModelError(folder / name, f"corrupt: {error}") from None
    if not isinstance(values, dict):
        raise ModelError(folder / name, "corrupt: not an object")
    return values


def _read_vocabularies(folder: Path, config: dict[str, Any]) -> tuple[Vocabulary, Vocabulary]:
    try:
        source, target = (Vocabulary((folder / name).read_bytes()) for name in SPMS)
    except (OSError, RuntimeError) as error:
        raise ModelError(folder, f"{' and '.join(SPMS)} cannot be read: {error}") from None
    return source, target


def _recipe_of(folder: Path, config: dict[str, Any], vocabularies: tuple[Vocabulary, Vocabulary]) -> Recipe:
    """The recipe that was exported with it, else one of its shape."""
    if (folder / RECIPE).is_file():
        return read_recipe_file(folder)
    has_bytes = vocabularies[1].pieces([SPECIALS])[0] == "<0x00>"
    extra = SPECIALS + (BYTES if has_bytes else 0)
    longest = config.get("max_position_embeddings")
    values = {
        "data": {
            "vocabulary": len(vocabularies[1]) - extra,
            "byte_fallback": has_bytes,
            "shared": config.get("share_encoder_decoder_embeddings", True),
        },
        "model": {
            "layers": config.get("encoder_layers"),
            "decoder_layers": config.get("decoder_layers"),
            "width": config.get("d_model"),
            "hidden": config.get("encoder_ffn_dim"),
            "heads": config.get("encoder_attention_heads"),
            "dropout": config.get("dropout", 0.1),
            "longest": longest,
        },
        "training": {"row_length": min(TrainingConfig().row_length, longest)} if isinstance(longest, int) else {},
    }
    return check(Recipe, values, folder / CONFIG)


def _other_settings(
    config: dict[str, Any], shape: TransformerConfig, vocabularies: tuple[Vocabulary, Vocabulary], shared: bool
) -> list[str]:
    """Whatever the configuration says that an export of this shape would not say."""
    expected = model_config(shape, (len(vocabularies[0]), len(vocabularies[1])), shared)
    # How it is to be trained on, stored and named is nothing of the model.
    free = {"architectures", "dropout", "dtype", "forced_eos_token_id", "is_encoder_decoder", "tie_word_embeddings"}
    found = {key: config.get(key) for key in expected.keys() - free}
    return [
        f"{key} = {json.dumps(found[key])}, only {json.dumps(expected[key])}"
        for key in sorted(found)
        if found[key] != expected[key]
    ]


def _other_pieces(folder: Path, vocabularies: tuple[Vocabulary, Vocabulary], shared: bool) -> list[str]:
    """Ids must be SentencePiece's own."""
    pairs = [(VOCABULARIES[0], vocabularies[0]), (VOCABULARIES[0 if shared else 1], vocabularies[1])]
    return [
        f"{name} does not number the pieces as {spm} does"
        for (name, vocabulary), spm in zip(pairs, SPMS, strict=True)
        if _read_json(folder, name) != numbered(vocabulary)
    ]


def _fill(parameters: Mapping[str, Tensor], tensors: dict[str, Tensor], shared: bool) -> list[str]:
    """Give every parameter its weight; what has no parameter must be nothing."""
    width = len(next(tensor for name, tensor in parameters.items() if name.endswith("norm.weight")))
    back = sines_first(width).argsort()
    problems, left = [], dict(tensors)
    with torch.no_grad():
        for name, parameter in parameters.items():
            theirs, axis = marian_name(name, shared)
            tensor = left.pop(theirs, None)
            if tensor is None or tensor.shape != parameter.shape:
                found = "none" if tensor is None else tuple(tensor.shape)
                problems.append(f"tensor '{theirs}' should be {tuple(parameter.shape)}, got {found}")
                continue
            parameter.copy_(tensor if axis is None else tensor.index_select(axis, back))
    embedding = parameters["target_embedding.weight"][:, sines_first(width)]
    left = {name: tensor for name, tensor in left.items() if not _is_nothing(name, tensor, embedding)}
    return problems + [f"tensor '{name}' has no place in the paper's Transformer" for name in sorted(left)]


def _is_nothing(name: str, tensor: Tensor, embedding: Tensor) -> bool:
    """Whether a tensor says nothing that is not said: a bias of zeros, a copy of the embedding, the sinusoids."""
    if name == LOGITS_BIAS or name.endswith("_proj.bias"):
        return not tensor.any()
    if name == "lm_head.weight" or name.endswith("embed_tokens.weight"):
        return torch.equal(tensor.float(), embedding)
    if name.endswith("embed_positions.weight"):
        table = sinusoids(*tensor.shape)[:, sines_first(tensor.shape[1])]
        return bool(torch.allclose(tensor.float(), table, atol=1e-4))
    return False


def _card_of(folder: Path) -> dict[str, Any]:
    """What is known of where it comes from."""
    if (folder / RECIPE).is_file():
        card = read_card(folder)
        return {name: card[name] for name in ("languages", "data", "step", "about") if name in card}
    tokenizer = _read_json(folder, TOKENIZER) if (folder / TOKENIZER).is_file() else {}
    return {"languages": [tokenizer.get("source_lang"), tokenizer.get("target_lang")], "data": None, "step": None}
