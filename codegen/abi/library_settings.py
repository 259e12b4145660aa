"""PyTorch's switches that decide which plan of cuBLASLt or cuDNN a call uses, such as `torch.backends.cuda.matmul.allow_tf32`.

Dynamo has guards for few of them. So a compiled graph that has plans reads the switches at each call.
"""

from collections.abc import Callable
from typing import Any

import torch

from mlirc.codegen.abi.reach import Missing, reach

MIXED = "mixed"


def library_settings() -> list[Any]:
    """The values of the switches now, always in the same order. MIXED stands for those of TF32 where PyTorch cannot tell them."""
    plain, precisions = settings_of_c() or (_plain, _precisions)
    settings = plain()
    try:
        return settings + precisions()
    except RuntimeError:  # the newer interface set some operators' TF32 alone: one switch does not describe all
        return [*settings, MIXED]


@reach("library-settings", instead="torch.backends is asked")
def settings_of_c() -> tuple[Callable[[], list[Any]], Callable[[], list[Any]]]:
    """Two functions that read switches by the C getters behind torch.backends, which is faster. Raises Missing.

    The first reads those that can always be read. The second reads those of TF32, and may raise RuntimeError (library_settings).
    """
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
