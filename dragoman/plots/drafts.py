"""The blueprint of each system."""

from pathlib import Path

import torch
from torch import nn

from dragoman.data.vocabulary import BYTES, SPECIALS
from dragoman.models.bytenet import ByteNet, ByteNetConfig
from dragoman.models.convs2s import ConvS2S, ConvS2SConfig
from dragoman.models.interface import Model
from dragoman.models.language_model import LanguageModel, LanguageModelConfig
from dragoman.models.lstmn import Lstmn
from dragoman.models.neural_gpu import NeuralGPU, NeuralGPUConfig
from dragoman.models.recurrent import Recurrent, RecurrentConfig
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.plots.blueprint import Block, Blueprint, Column
from dragoman.plots.boxes import titled
from dragoman.plots.draft_convolutional import draft_bytenet, draft_convs2s, draft_neural_gpu
from dragoman.plots.draft_recurrent import draft_lstmn, draft_recurrent
from dragoman.plots.draft_transformers import draft_language_model, draft_transformer
from dragoman.recipe import Recipe, read_recipe
from dragoman.saved import build_model, load_model


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
            return draft_transformer(config, model)
        case LanguageModelConfig(), LanguageModel():
            return draft_language_model(config, model)
        case RecurrentConfig(), Recurrent():
            return draft_recurrent(config, model)
        case _, Lstmn():
            return draft_lstmn(model)
        case ConvS2SConfig(), ConvS2S():
            return draft_convs2s(config, model)
        case ByteNetConfig(), ByteNet():
            return draft_bytenet(config, model)
        case NeuralGPUConfig(), NeuralGPU():
            return draft_neural_gpu(config, model)
        case _:
            return _list_of_parts(config.kind, model)


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
    return titled(kind, model, (Column("Parts", "", blocks, "", flows=False),))
