"""The few operations that need their own GPU code, each beside its plain PyTorch reference."""

import torch
from torch import Tensor


def is_half_on_gpu(tensor: Tensor) -> bool:
    """What every kernel asks for: half precision, on a device that Triton compiles for."""
    return tensor.is_cuda and tensor.dtype in (torch.bfloat16, torch.float16)
