"""A model for ONNX: `encoder.onnx` reads a sentence once, `step.onnx` writes a piece at a time.

The step takes and returns keys and values of what has been written. Axes that may have any size: rows, source
positions, pieces written.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dragoman.batch import BOS, EOS, PAD, Side
from dragoman.decoding.scoring import Ids
from dragoman.decoding.search import NEVER
from dragoman.export.support import ExportPrecision
from dragoman.models.interface import Memory
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.saved import SOURCE, TARGET, SavedModel

ENCODER, STEP = "encoder.onnx", "step.onnx"


def write(folder: Path, saved: SavedModel, config: TransformerConfig, precision: ExportPrecision) -> "Session":
    """Write both graphs, and the vocabularies."""
    del config, precision  # any Transformer, in float32
    model = cast(Transformer, saved.model)
    names = [f"{kind}.{layer}" for layer in range(len(model.decoder)) for kind in ("keys", "values")]
    read, written = ([f"{side}.{name}" for name in names] for side in ("source", "written"))
    # No size of an example may be 0 or 1, which would be taken for all there is, nor equal another.
    source = torch.full((2, 5), EOS)
    encoder, step = _Encoder(model), _Step(model)
    seen = encoder(source)
    earlier = [tensor[:, :, :3].clone() for tensor in seen]
    rows, positions, pieces = (torch.export.Dim(name, min=0) for name in ("rows", "positions", "pieces"))
    _export(encoder, (source,), ["source"], read, ({0: rows, 1: positions},), folder / ENCODER)
    tokens = torch.full((2,), BOS)
    _export(
        step,
        (tokens, torch.full((2,), 3), source, seen, earlier),
        ["tokens", "position", "source", *read, *written],
        ["logits", *(f"new.{name}" for name in written)],
        (
            {0: rows},
            {0: rows},
            {0: rows, 1: positions},
            [{0: rows, 2: positions} for _ in seen],
            [{0: rows, 2: pieces} for _ in earlier],
        ),
        folder / STEP,
    )
    for name, vocabulary in ((SOURCE, saved.source_vocabulary), (TARGET, saved.target_vocabulary)):
        (folder / name).write_bytes(vocabulary.proto)
    return Session.of(folder)


class _Encoder(nn.Module):
    """Source ids, padded with zeros behind, into what every decoder layer sees of them."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Int[Tensor, "B S"]) -> list[Tensor]:
        parts = self.model.encode(_side(source)).parts
        return [parts[f"{kind}.{layer}"] for layer in range(len(self.model.decoder)) for kind in ("keys", "values")]


class _Step(nn.Module):
    """The last piece of each row into the logits of the next; what was written grows by one."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        tokens: Int[Tensor, " N"],
        position: Int[Tensor, " N"],
        source: Int[Tensor, "N S"],
        seen: list[Tensor],
        earlier: list[Tensor],
    ) -> tuple[Float[Tensor, "N V"], list[Tensor]]:
        lengths = (source != PAD).int().sum(1, keepdim=True)
        names = [f"{kind}.{layer}" for layer in range(len(self.model.decoder)) for kind in ("keys", "values")]
        parts = dict(zip(names, seen, strict=True))
        # The one query of a row sees its sentence, which begins the row.
        ends = {"first": torch.zeros_like(lengths), "last": lengths}
        ends |= {name: torch.zeros_like(source) for name in ("seen_from", "seen_until")}
        parts |= {f"visible.{name}": each for name, each in ends.items()}
        memory = Memory(seen[0][:, 0], source, parts)
        logits, state = self.model.step(tokens, dict(zip(names, earlier, strict=True)) | {"position": position}, memory)
        return logits, [state[name] for name in names]


def _side(source: Int[Tensor, "B S"]) -> Side:
    positions = torch.arange(source.shape[1]).expand_as(source)
    return Side(source, (source != PAD).long(), positions)


def _searchsorted(
    rows: Any, values: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None
) -> Any:
    """What ONNX has no operation for: how many of a row are less than (or up to) each value."""
    from onnxscript import opset18 as op

    del out_int32, side, sorter
    compare = op.LessOrEqual if right else op.Less
    is_before = compare(op.Unsqueeze(rows, [1]), op.Unsqueeze(values, [2]))
    return op.ReduceSum(op.Cast(is_before, to=6), [2], keepdims=0)  # 6: int32


def _export(
    module: nn.Module, arguments: tuple[Any, ...], inputs: list[str], outputs: list[str], sizes: Any, path: Path
) -> None:
    with _quiet():
        torch.onnx.export(
            module,
            arguments,
            path,
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes=sizes,
            dynamo=True,
            external_data=False,
            custom_translation_table={torch.ops.aten.searchsorted.Tensor: _searchsorted},
            verbose=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Let the exporter keep its advice to itself."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


@dataclass(frozen=True)
class Session:
    """Both graphs, run by onnxruntime."""

    encoder: Any
    step: Any

    @classmethod
    def of(cls, folder: Path) -> "Session":
        """Open a folder."""
        import onnxruntime

        return cls(*(onnxruntime.InferenceSession(folder / name) for name in (ENCODER, STEP)))

    def greedy(self, source: Ids, pieces: int) -> Ids:
        """The likeliest piece at every step, of at most so many with the end."""
        written: list[int] = []
        state = self._begin(source)
        while len(written) + 1 < pieces:
            logits = self._write(state, written[-1] if written else BOS, len(written))
            logits[NEVER] = -torch.inf
            if (best := int(logits.argmax())) == EOS:
                break
            written.append(best)
        return written

    def log_probability(self, source: Ids, target: Ids) -> float:
        """That of a given translation."""
        state = self._begin(source)
        steps = zip([BOS, *target], [*target, EOS], strict=True)
        return sum(float(self._write(state, last, n).log_softmax(0)[next]) for n, (last, next) in enumerate(steps))

    def _begin(self, source: Ids) -> dict[str, Any]:
        """The step's inputs before the first piece: nothing is written."""
        ids = np.array([[*source, EOS]])
        names = [each.name for each in self.encoder.get_outputs()]
        state = {"source": ids, **dict(zip(names, self.encoder.run(None, {"source": ids}), strict=True))}
        return state | {name.replace("source.", "written."): state[name][:, :, :0] for name in names}

    def _write(self, state: dict[str, Any], token: int, position: int) -> Float[Tensor, " V"]:
        """Write one piece into the state; the logits of the next."""
        logits, *new = self.step.run(None, state | {"tokens": np.array([token]), "position": np.array([position])})
        written = [name for name in state if name.startswith("written.")]
        state |= dict(zip(written, new, strict=True))
        return torch.from_numpy(logits[0])
