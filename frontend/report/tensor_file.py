"""Writes tensors and numbers by name, as safetensors: elements alone, contiguous, without strides and aliasing."""

from collections.abc import Mapping
from typing import Any

import torch

from mlirc.frontend.report.capture_folder import write_file


def write_tensors(path: str, named: Mapping[str, Any]) -> None:
    """Writes values by name: tensors, numbers as tensors without dimensions. Raises OSError, and what safetensors raises."""
    write_file(path, tensor_bytes(named))


def tensor_bytes(named: Mapping[str, Any]) -> bytes:
    """The bytes of such a file. Raises what safetensors raises."""
    from safetensors.torch import save

    tensors = {
        name: (x.detach().to("cpu") if isinstance(x, torch.Tensor) else number(x)).clone(
            memory_format=torch.contiguous_format
        )
        for name, x in named.items()
    }
    return save(tensors)


def number(x: Any) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64 if isinstance(x, float) else torch.int64)
