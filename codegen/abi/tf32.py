"""Reads PyTorch's setting that allows TF32 in float32 matmuls."""

import torch

from mlirc.codegen.abi.reach import reach


def allows_tf32() -> bool:
    """Raises RuntimeError where both of PyTorch's interfaces for this setting were used."""
    ask = tf32_question()
    return bool(torch.backends.cuda.matmul.allow_tf32 if ask is None else ask())


@reach("tf32", instead="torch.backends is asked")
def tf32_question():
    """The getter behind torch.backends; unlike torch.backends, it gives no warning."""
    return torch._C._get_cublas_allow_tf32
