"""Imports calls of a user's Triton kernels: AOTAutograd's functional operator, whose kernel and constants lie in a table of the process,
becomes one that has them as text (dialects/interpreter/triton_kernels.py)."""

from typing import Any

import torch
from torch.fx import Node

from mlirc.dialects.interpreter.triton_kernels import name_of, triton_kernel
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer import aten_import
from mlirc.frontend.torch_compat.aot_autograd.higher_order import kernel_side_table

OPERATOR = "triton_kernel_wrapper_functional"
REASON = "the user's Triton kernel"


def is_triton_kernel(target: Any) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() == OPERATOR


def kernel_text(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The kernel's name and the constants of a call, of which `given` are the arguments."""
    table = kernel_side_table()
    return name_of(table.get_kernel(given["kernel_idx"])), table.get_constant_args(given["constant_args_idx"])


def import_triton_kernel(importer: Any, node: Node, given: dict[str, Any]) -> dict[str, Any]:
    """The results of a call by the names of the kernel's parameters. `given` are the operator's arguments as values."""
    kernel, constants = kernel_text(given)
    assert isinstance(node.kwargs["kwargs"], dict)
    fakes = {name: x.meta.get("val") if isinstance(x, Node) else x for name, x in node.kwargs["kwargs"].items()}
    tensors = {name: x for name, x in given["kwargs"].items() if isinstance(fakes[name], torch.Tensor)}
    numbers = {name: x for name, x in given["kwargs"].items() if name not in tensors}
    promised: dict[str, Any] = node.meta["val"]
    kwargs = {
        "kernel": kernel,
        "grid": [list(sizes) for sizes in given["grid"]],
        "constants": dict(constants),
        "numbers": numbers,
        "tensors": tensors,
        "written": list(promised),
    }
    if given["tma_descriptor_metadata"]:
        if any(kind != "stable" for kind, _ in given["tma_descriptor_metadata"].values()):
            raise UnsupportedGraph("a Triton kernel takes descriptors of the experimental kind")
        kwargs["descriptors"] = given["tma_descriptor_metadata"]
    importer.count(triton_kernel, REASON)
    made = aten_import.call_aten(triton_kernel, (), kwargs, list(promised.values()), importer.imported.objects)
    return dict(zip(promised, made, strict=True))
