"""Materializes lazy gradients before a backward graph: conjugated or negated views, and zeros without memory, as `sgn` gives.

Dynamo guards the inputs of a forward graph against lazy tensors. Nothing guards the gradients that autograd passes in. A gradient that
stands for several (`is_grads_batched`, a jacobian with `vectorize`) has operators for each of them: the backward graph then runs in eager.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch.fx import GraphModule

from mlirc.codegen.abi.lazy_tensors import batch_test, in_memory, is_lazy, zero_test
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor

Run = Callable[[list], list]

BATCHED = "a gradient stands for several, which torch.vmap gives"
FAKE = "a gradient is a fake tensor, which has no memory"


def tangents(gm: GraphModule) -> list[int]:
    """The placeholders of a backward graph that are gradients."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    return [k for k, node in enumerate(placeholders) if str(node.target).startswith("tangents")]


def with_values(positions: Sequence[int], run: Run, in_eager: Callable[[Exception], Run]) -> Run:
    """The boxed callable of a backward graph, for gradients of any kind.

    positions  the gradients among its arguments
    in_eager   gives the graph in eager, for this reason
    """
    eager: list[Run] = []
    batched, zero = batch_test(), zero_test()

    @functools.wraps(run)
    def call(args: list) -> list:
        for k in positions:
            x = args[k]
            if isinstance(x, torch.Tensor) and x.layout is torch.strided:
                if (batched is not None and batched(x)) or isinstance(x, FakeTensor):
                    if not eager:
                        eager.append(in_eager(UnsupportedGraph(FAKE if isinstance(x, FakeTensor) else BATCHED)))
                    return eager[0](args)
                if is_lazy(x) if zero is None else x.is_neg() or x.is_conj() or zero(x):
                    args[k] = in_memory(x)
        return run(args)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call
