"""What each format can hold: everything it cannot is named at once, before anything is written."""

from collections.abc import Mapping
from typing import Literal

from dragoman.errors import ModelError
from dragoman.models.transformer import TransformerConfig
from dragoman.recipe import Recipe
from dragoman.saved import SavedModel

Format = Literal["ctranslate2", "marian", "onnx"]
ExportPrecision = Literal["float32", "float16", "int8"]

PRECISIONS: Mapping[Format, tuple[ExportPrecision, ...]] = {
    "ctranslate2": ("float32", "float16", "int8"),
    "marian": ("float32",),
    "onnx": ("float32",),
}

# Keys of a Transformer's recipe that any format holds, and those that each holds further. What stands in neither must
# be what the paper has: a new part is refused until somebody has made it work.
FREE = {"kind", "layers", "decoder_layers", "width", "hidden", "heads", "dropout", "longest"}
HELD: Mapping[Format, set[str]] = {
    "ctranslate2": {"key_heads", "feed_forward", "positions", "norm", "norm_kind"},
    "marian": set(),
}


def check_support(saved: SavedModel, format: Format, precision: ExportPrecision) -> TransformerConfig:
    """The shape of a model that a format can hold, or one error that names all it cannot."""
    problems = unsupported(saved.recipe, format)
    if precision not in PRECISIONS[format]:
        problems.append(f"--precision {precision} (it is {' or '.join(PRECISIONS[format])})")
    config = saved.recipe.model
    if problems or not isinstance(config, TransformerConfig):
        raise ModelError(saved.folder, "\n".join(f"{format} cannot hold {problem}" for problem in problems))
    return config


def unsupported(recipe: Recipe, format: Format) -> list[str]:
    """Whatever of a recipe a format cannot hold."""
    config, data = recipe.model, recipe.data
    if not isinstance(config, TransformerConfig):
        return [f"'model.kind' = {config.kind!r}, only a Transformer"]
    if format == "onnx":
        return []
    share = config.width // config.heads
    same = {"key_width": share, "value_width": share, "key_heads": config.heads}  # as good as not being said
    found = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if name not in FREE | HELD[format] and value not in (field.default, same.get(name)):
            found.append(f"'model.{name}' = {_shown(value)}")
    if format == "ctranslate2" and config.norm_kind not in ("layer", "rms"):
        found.append(f"'model.norm_kind' = {config.norm_kind!r}")
    if data.plain:
        found.append("'data.plain' = true")
    if format == "marian" and data.source_nfkc:
        found.append("'data.source_nfkc' = true")
    if format == "ctranslate2" and config.positions == "rotary" and config.channels[0] % 2:
        found.append(f"'model.positions' = 'rotary' with an odd 'model.key_width' = {config.channels[0]}")
    return found


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
