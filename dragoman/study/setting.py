"""Where a study writes, and under which conditions it ran."""

import json
import os
import platform
from datetime import datetime
from pathlib import Path

import torch

from dragoman import __version__
from dragoman.errors import ConfigError
from dragoman.plots.charts import check_drawing

RESULTS = "results.json"


def check_folder(study: str, folder: Path) -> None:
    """A study replaces its own report and nothing else; whether it can draw is found out before it computes, too."""
    check_drawing()
    hint = "choose another --out"
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise ConfigError(there, "is a file", hint=hint)
    if not os.access(there, os.W_OK):
        raise ConfigError(there, "cannot be written", hint=hint)
    if folder.is_dir() and any(folder.iterdir()) and _study_in(folder) != study:
        raise ConfigError(folder, f"holds something else than the report of study {study}", hint=hint)


def conditions(device: torch.device | None = None) -> dict[str, str | int]:
    """What a reader must know to compare the numbers with others."""
    name = torch.cuda.get_device_name(device) if device and device.type == "cuda" else platform.machine()
    return {
        "date": datetime.now().date().isoformat(),
        "dragoman": __version__,
        "torch": torch.__version__,
        "device": f"{device.type if device else 'cpu'} ({name})",
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
    }


def said(found: dict[str, str | int]) -> str:
    """The same as a sentence."""
    return ", ".join(f"{name} {value}" for name, value in found.items()) + "."


def _study_in(folder: Path) -> str | None:
    try:
        found = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found.get("study") if isinstance(found, dict) else None
