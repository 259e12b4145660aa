"""Imports calls of a user's Triton kernels: AOTAutograd's functional operator, whose kernel and constants lie in a table of the process,
becomes one that has them as text (dialects/interpreter/triton_kernels.py)."""

from typing import Any

import torch
from torch.fx import Node

from mlirc.dialects.interpreter.triton_kernels import triton_kernel
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer import aten_import
from mlirc.frontend.importer.triton_call import kernel_text

REASON = "the user's Triton kernel"


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
