"""dragoman: from your own parallel text to a translator you can trust, look into and serve."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.batch import Batch, Side
    from dragoman.decoding.translator import Translation, Translator
    from dragoman.export.engines import load
    from dragoman.models.transformer import Transformer, TransformerConfig
    from dragoman.recipe import Recipe

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Recipe",
    "Side",
    "Transformer",
    "TransformerConfig",
    "Translation",
    "Translator",
    "load",
]

_HOMES = {
    "Batch": "dragoman.batch",
    "Recipe": "dragoman.recipe",
    "Side": "dragoman.batch",
    "Transformer": "dragoman.models.transformer",
    "TransformerConfig": "dragoman.models.transformer",
    "Translation": "dragoman.decoding.translator",
    "Translator": "dragoman.decoding.translator",
    "load": "dragoman.export.engines",
}


def __getattr__(name: str) -> object:
    # Names are fetched on first use, so that `dragoman --help` does not wait for torch.
    if name not in _HOMES:
        raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
