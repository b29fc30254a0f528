"""One way out for every format: check what it can hold, write, compare with the model; then it takes its name."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dragoman import __version__
from dragoman.data.store import file_sha256
from dragoman.errors import ConfigError, ModelError
from dragoman.export import ctranslate2, marian, onnx
from dragoman.export.parity import Parity, Peer, check_parity
from dragoman.export.support import ExportPrecision, Format, check_support
from dragoman.models.transformer import TransformerConfig
from dragoman.saved import CARD, FORMAT, RECIPE, SavedModel, new_model_folder, weights_sha256, write_card

Writer = Callable[[Path, SavedModel, TransformerConfig, ExportPrecision], Peer]

WRITERS: dict[Format, Writer] = {
    "ctranslate2": ctranslate2.write,
    "marian": marian.write,
    "onnx": onnx.write,
}
# What each needs to be written and compared, and the extra that installs it.
NEEDS: dict[Format, tuple[tuple[str, ...], str]] = {
    "ctranslate2": (("ctranslate2",), "dragoman[fast]"),
    "marian": (("transformers",), "transformers"),
    "onnx": (("onnx", "onnxruntime", "onnxscript"), "dragoman[onnx]"),
}


def export(saved: SavedModel, format: Format, precision: ExportPrecision, out: Path) -> Parity:
    """Write a model for another engine, with its recipe and a card that holds the hash of every file."""
    config = check_support(saved, format, precision)
    check_installed(format, f"--format {format}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelError(out, "already exists", hint="choose another --out, or remove it first")
    with new_model_folder(out) as folder:
        peer = WRITERS[format](folder, saved, config, precision)
        parity = check_parity(saved, peer, precision, out)
        (folder / RECIPE).write_text(saved.recipe.toml(), encoding="utf-8")
        card: dict[str, Any] = {
            "format": FORMAT,
            "dragoman": __version__,
            "recipe": saved.recipe.hash,
            "export": {"format": format, "precision": precision, "parity": parity.values()},
            "weights_sha256": weights_sha256(dict(saved.model.named_parameters())),
        }
        card |= {name: saved.card[name] for name in ("languages", "data", "step", "about") if name in saved.card}
        files = sorted(path.name for path in folder.iterdir() if path.name != CARD)
        write_card(folder, card | {"files": {name: file_sha256(folder / name) for name in files}})
    return parity


def check_installed(format: Format, where: str) -> None:
    """What a format needs is there, or the error says what to install."""
    packages, extra = NEEDS[format]
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ConfigError(where, f"{', '.join(missing)} is not installed", hint=f"pip install '{extra}'")
