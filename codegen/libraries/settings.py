"""PyTorch's switches that plans of cuBLASLt and cuDNN depend on; each call with plans reads them, because Dynamo guards few."""

from typing import Any

import torch

_C = torch._C
_ASKED = (
    _C._get_cudnn_enabled,
    _C._get_cudnn_benchmark,
    _C._get_cudnn_deterministic,
    _C._get_deterministic_algorithms,
    _C._get_cublas_allow_fp16_accumulation,
    _C._get_cublas_allow_fp16_reduced_precision_reduction,
    _C._get_cublas_allow_bf16_reduced_precision_reduction,
)
_PRECISIONS = (_C._get_cublas_allow_tf32, _C._get_cudnn_allow_tf32)


def library_settings() -> list[Any]:
    """What they are now."""
    settings = [ask() for ask in _ASKED]
    try:
        return settings + [ask() for ask in _PRECISIONS]
    except RuntimeError:  # both of PyTorch's interfaces for it were used
        return [*settings, "mixed"]
