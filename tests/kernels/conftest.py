"""Kernels are tested where there is no GPU too: Triton's interpreter runs them on the CPU, slowly and exactly."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined

from dragoman.kernels import attention, cross_entropy, residual


@pytest.fixture
def device() -> torch.device:
    """Where the kernels run."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the kernels, whatever the device and the precision."""
    pytest.importorskip("triton")
    for module in (attention, cross_entropy, residual):
        monkeypatch.setattr(module, "has_kernel", lambda *_: True)
