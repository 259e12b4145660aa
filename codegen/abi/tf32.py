"""Reads PyTorch's setting that allows TF32 in float32 matmuls."""

import torch

from mlirc.codegen.abi.reach import reach


def allows_tf32() -> bool:
    """Raises RuntimeError where both of PyTorch's interfaces for this setting were used."""
    setting = tf32_setting()
    return bool(torch.backends.cuda.matmul.allow_tf32 if setting is None else setting())


@reach("tf32", instead="torch.backends is asked")
def tf32_setting():
    """The getter behind torch.backends; unlike torch.backends, it gives no warning."""
    return torch._C._get_cublas_allow_tf32
