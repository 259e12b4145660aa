"""Runs a graph that writes to tensors of inference mode in eager outside of that mode, where PyTorch's operators refuse to.

Native code writes to any memory. Dynamo tells tensors of inference mode from others, and not whether a call is within that mode.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback.input_starts import is_list_operator_in_place, is_strided
from mlirc.frontend.torch_compat.dynamo.eager_regions import eager_forward
from mlirc.frontend.torch_compat.dynamo.lazy_graph import forward_of, without_notes
from mlirc.frontend.torch_compat.fake_tensors import FakeTensorMode, unset_fake_temporarily

OUTSIDE = "the graph writes to a tensor of inference mode, and is called outside of that mode"


def with_inference_tensors(
    run: Callable, gm: GraphModule, inputs: Sequence[Any], tell: Callable[[Exception], None]
) -> Callable:
    """`run`; the graph in eager where it would write to what may not be written to. `tell` hears of the first such call."""
    if not any(isinstance(x, torch.Tensor) and x.is_inference() for x in inputs) or not writes(gm, inputs):
        return run
    told: list[None] = []

    def call(*args: Any) -> Any:
        if torch.is_inference_mode_enabled():
            return run(*args)
        if not told:
            told.append(None)
            tell(UnsupportedGraph(OUTSIDE))
        return eager_forward(gm)(*args)

    return call


def writes(gm: GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a graph of Dynamo's writes to one of these inputs, or nobody knows. Tensors of inference mode count no writes, so it runs on
    fake ones that do."""
    if any(n.op == "call_function" and is_list_operator_in_place(n.target) for n in gm.graph.nodes):
        return True  # counts none either
    try:
        with (
            unset_fake_temporarily(),
            torch.inference_mode(False),
            torch.no_grad(),
            FakeTensorMode(allow_non_fake_inputs=True),
        ):
            given = [like(x) if isinstance(x, torch.Tensor) else x for x in inputs]
            forward_of(without_notes(gm))(*given)
    except Exception as error:
        raise_of_handler(error)
        return True
    return any(isinstance(x, torch.Tensor) and x._version > 0 for x in given)


def like(x: torch.Tensor) -> torch.Tensor:
    if not is_strided(x):
        raise TypeError(f"a tensor of layout {x.layout}")
    return torch.empty_strided(tuple(x.shape), x.stride(), dtype=x.dtype, device=x.device)
