"""A recipe says everything that decides a model: [data], [model], [training] and [decoding].

Files state only what differs from what they extend; the resolved recipe goes into the run folder, its hash beside
every score. A preset is a file in `recipes/`, named with or without its folder and suffix.
"""

import hashlib
import json
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from dragoman.config import C, Section, Values, check, merge, parse_overrides, read_values, write_toml
from dragoman.data.prepare import DataConfig
from dragoman.errors import ConfigError
from dragoman.models.bytenet import ByteNetConfig
from dragoman.models.convs2s import ConvS2SConfig
from dragoman.models.interface import Precision
from dragoman.models.language_model import LanguageModelConfig
from dragoman.models.lstmn import LstmnConfig
from dragoman.models.neural_gpu import NeuralGPUConfig
from dragoman.models.recurrent import RecurrentConfig
from dragoman.models.transformer import TransformerConfig

BUDGETS = ("steps", "epochs", "minutes")


class TrainingConfig(Section):
    """How a model learns (section 5); budgets that are given end the run, whichever is reached first."""

    batch_tokens: int = Field(25000, ge=1, le=1 << 30)  # target positions an update
    row_length: int = Field(256, ge=8, le=1 << 20)  # target positions of a row; the source's follow the length ratio
    steps: int | None = Field(None, ge=1)
    epochs: int | None = Field(None, ge=1)
    minutes: float | None = Field(None, gt=0)
    schedule: Literal["paper", "landing"] = "paper"  # equation 3, or a fall to zero at the end of the budget
    warmup: int = Field(4000, ge=1)  # warmup_steps
    peak: float | None = Field(None, gt=0)  # learning rate at the end of warm-up; None: equation 3's own
    smoothing: float = Field(0.1, ge=0, lt=1)  # epsilon_ls
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.98, ge=0, lt=1)
    epsilon: float = Field(1e-9, gt=0)
    clip: float | None = Field(None, gt=0)  # largest norm of the gradient
    precision: Precision = "auto"  # auto: bf16 where a GPU multiplies in it
    compile: bool = False  # torch.compile: half a minute to begin with, then some percent faster on a GPU
    save_every: int = Field(1000, ge=1)  # steps between checkpoints, each validated
    keep_last: int = Field(5, ge=1)  # checkpoints kept beside the best
    patience: int | None = Field(None, ge=1)  # checkpoints without a better one before the run stops
    samples: int = Field(3, ge=0)  # translations shown at each validation
    seed: int = Field(0, ge=0, lt=1 << 63)
    deterministic: bool = False


class DecodingConfig(Section):
    """How a model translates unless told otherwise (section 6.1)."""

    beam: int = Field(4, ge=1, le=1000)
    alpha: float = Field(0.6, ge=0)  # length penalty of Wu et al. 2016
    extra: int = Field(50, ge=0, le=1 << 20)  # output pieces allowed beyond the input's
    longest: int = Field(250, ge=1, le=1 << 20)  # input pieces translated at once; a longer text is translated in parts
    precision: Precision = "float32"  # or bf16; auto: bf16 where a GPU multiplies in it


class Recipe(Section):
    """Everything that decides a model, but the text it learns from."""

    data: DataConfig = DataConfig()
    # The registry of systems: another one is another section here.
    model: (
        TransformerConfig
        | RecurrentConfig
        | LstmnConfig
        | ConvS2SConfig
        | ByteNetConfig
        | NeuralGPUConfig
        | LanguageModelConfig
    ) = Field(TransformerConfig(), discriminator="kind")
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()

    @model_validator(mode="before")
    @classmethod
    def _is_a_transformer_unless_said(cls, values: Any) -> Any:
        model = values.get("model") if isinstance(values, dict) else None
        return values | {"model": {"kind": "transformer", **model}} if isinstance(model, dict) else values

    @model_validator(mode="after")
    def _rows_have_positions(self) -> "Recipe":
        if self.training.row_length > self.model.longest:
            raise ValueError(
                f"'training.row_length' = {self.training.row_length} is more than "
                f"'model.longest' = {self.model.longest}"
            )
        return self

    @property
    def hash(self) -> str:
        """Names the recipe beside every score."""
        return hash_of(self)

    def toml(self) -> str:
        """The recipe as a file."""
        return write_toml(self)

    def with_values(self, values: Values, where: object) -> "Recipe":
        """The recipe with some values replaced, checked anew."""
        return check(Recipe, merge(self.model_dump(), values), where)


def hash_of(recipe: Section) -> str:
    """The same for recipes of the same values, and for no others."""
    canonical = json.dumps(recipe.model_dump(), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def read_recipe(name: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe file or preset with overrides."""
    return read_as(Recipe, name, overrides)


def read_as(kind: type[C], name: str | Path, overrides: Sequence[str]) -> C:
    """A file or preset of these sections; a budget in an override replaces every budget of the file."""
    path = find_recipe(name)
    values = read_values(path, preset_folders())
    above = parse_overrides(overrides)
    training = values.get("training")
    given = above.get("training")
    if isinstance(training, dict) and isinstance(given, dict) and any(budget in given for budget in BUDGETS):
        values["training"] = {key: value for key, value in training.items() if key not in BUDGETS}
    return check(kind, merge(values, above), f"{path} with {' '.join(overrides)}" if overrides else path)


def find_recipe(name: str | Path) -> Path:
    """A file as given, else a preset of that name."""
    path = Path(name)
    if path.is_file():
        return path
    preset = Path(*path.parts[path.parts[:1] == ("recipes",) :])
    for folder in preset_folders():
        for candidate in (folder / preset, folder / f"{preset}.toml"):
            if candidate.is_file():
                return candidate
    known = sorted(file.stem for folder in preset_folders() for file in folder.glob("*.toml"))
    near = get_close_matches(path.stem, known, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    raise ConfigError(path, "no such recipe", hint=f"{guess}presets: {', '.join(known)}")


def preset_folders() -> list[Path]:
    """Presets lie inside an installed package, and beside it in a checkout."""
    package = Path(__file__).parent
    return [folder for folder in (package / "recipes", package.parent / "recipes") if folder.is_dir()]
