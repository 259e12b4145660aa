"""PyTorch's switches that plans of cuBLASLt and cuDNN depend on; each call with plans reads them, because Dynamo guards few."""

from collections.abc import Callable
from typing import Any

import torch

from mlirc.codegen.abi.reach import Missing, reach

MIXED = "mixed"


def library_settings() -> list[Any]:
    """The switches as they are now."""
    plain, precisions = settings_of_c() or (_plain, _precisions)
    settings = plain()
    try:
        return settings + precisions()
    except RuntimeError:  # both of PyTorch's interfaces for it were used
        return [*settings, MIXED]


@reach("library-settings", instead="torch.backends is asked")
def settings_of_c() -> tuple[Callable[[], list[Any]], Callable[[], list[Any]]]:
    """The getters behind torch.backends: of the plain settings, and of those that raise RuntimeError where both interfaces were used."""
    c = torch._C
    asked = (
        c._get_cudnn_enabled,
        c._get_cudnn_benchmark,
        c._get_cudnn_deterministic,
        c._get_deterministic_algorithms,
        c._get_cublas_allow_fp16_accumulation,
        c._get_cublas_allow_fp16_reduced_precision_reduction,
        c._get_cublas_allow_bf16_reduced_precision_reduction,
    )
    precise = (c._get_cublas_allow_tf32, c._get_cudnn_allow_tf32)
    if [ask() for ask in asked[:4]] != _plain()[:4]:
        raise Missing("they say something else than torch.backends")
    return lambda: [ask() for ask in asked], lambda: [ask() for ask in precise]


def _plain() -> list[Any]:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return [
        cudnn.enabled,
        cudnn.benchmark,
        cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
        *(
            getattr(matmul, name, None)
            for name in (
                "allow_fp16_accumulation",
                "allow_fp16_reduced_precision_reduction",
                "allow_bf16_reduced_precision_reduction",
            )
        ),
    ]


def _precisions() -> list[Any]:
    return [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]
