"""aot_eager with the strides that PyTorch's fake tensors promise a compiler, where an operator's own are others.

A graph's views, and AOTAutograd's wrappers behind it, hold for the promised strides only (docs/decisions.md, capture).
"""

from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch.fx.node import Node


class _Promised(torch.fx.Interpreter):
    def run_node(self, n: Node) -> Any:
        result, promise = super().run_node(n), n.meta.get("val")
        if n.op != "call_function" or not isinstance(n.target, torch._ops.OpOverload) or n.target.is_view:
            return result
        return torch.utils._pytree.tree_map(_as, result, promise) if _alike(result, promise) else result


def _alike(result: Any, promise: Any) -> bool:
    flat = torch.utils._pytree.tree_structure
    return flat(result) == flat(promise)


def _as(x: Any, promise: Any) -> Any:
    if not isinstance(x, torch.Tensor) or not isinstance(promise, torch.Tensor) or x.layout != torch.strided:
        return x
    stride = promise.stride()
    if x.stride() == stride or not all(isinstance(s, int) for s in stride) or x.shape != promise.shape:
        return x
    return torch.empty_strided(x.shape, stride, dtype=x.dtype, device=x.device).copy_(x)


def _compiler(module: torch.fx.GraphModule, inputs: list) -> Any:
    return torch._dynamo.disable(_Promised(module).run)


backend = aot_autograd(fw_compiler=_compiler, keep_inference_input_mutations=True)
