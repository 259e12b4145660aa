"""Which kernels compute a convolution: PyTorch's choice, upon which the strides of its gradients depend."""

import torch

from mlirc.codegen.abi.reach import Missing, reach


@reach("convolution-backends", instead="gradients of weights have the strides that fake tensors promise", apart=True)
def choose_convolution_backend():
    """PyTorch's function that names the backend, of the arguments of `aten.convolution` and the sizes of the bias."""
    choose = torch._C._select_conv_backend
    x, weight = torch.empty(1, 1, 4, 4, dtype=torch.float64), torch.empty(1, 1, 1, 1, dtype=torch.float64)
    chosen = str(choose(x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, None))
    if not chosen.endswith("Slow2d"):
        raise Missing(f"float64 is computed by {chosen}")
    return choose
