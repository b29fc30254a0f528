"""What tests of exports share: small models of every kind, and a vocabulary."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dragoman.data.prepare import DataConfig
from dragoman.data.vocabulary import Vocabulary, train_vocabulary
from dragoman.models.transformer import TransformerConfig
from dragoman.recipe import Recipe, TrainingConfig
from dragoman.saved import SavedModel, load_model, save_model

Save = Callable[..., SavedModel]


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    lines = [
        " ".join(chr(97 + (i * 7 + j * 3 + k) % 26) * (1 + k % 2) for j in range(9) for k in range(3))
        for i in range(99)
    ]
    return Vocabulary(train_vocabulary(lambda: lines, 61, "bpe", byte_fallback=True))


@pytest.fixture
def save(tmp_path: Path, vocabulary: Vocabulary) -> Save:
    """Writes a model folder with random weights; norms and biases are no ones and zeros either."""

    def save(name: str = "model", shared: bool = True, nfkc: bool = False, **shape: object) -> SavedModel:
        torch.manual_seed(5)
        config = TransformerConfig(**{"layers": 2, "width": 21, "hidden": 29, "heads": 3, "longest": 31} | shape)
        model = config.build(len(vocabulary), None if shared else len(vocabulary)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        data = DataConfig(vocabulary=61, shared=shared, source_nfkc=nfkc)
        recipe = Recipe(data=data, model=config, training=TrainingConfig(row_length=31))
        card = {"languages": ["en", "de"], "data": None, "step": 7}
        save_model(tmp_path / name, model, recipe, (vocabulary, vocabulary), card)
        return load_model(tmp_path / name)

    return save
