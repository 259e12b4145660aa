"""The GPUs that a graph's tensors are on, and the kernels that its host program launches there."""

from dataclasses import field
from typing import Any

import torch

from mlirc.codegen.frame.failures import FAILURE_FIELDS
from mlirc.codegen.frame.gpu_calls import CublasMatmul, CudnnConvolution, Launched
from mlirc.dialects.control_flow.region_ops import module_body, nested_functions
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass


@dataclass
class Gpus:
    """State of the writer of a host program, as far as GPUs are concerned.

    numbers       device numbers of the GPUs that hold tensors, in order of first use: [0, 1] for cuda:0 and cuda:1
    kernels       op that launches a kernel on a GPU -> the kernel's `mlirc.triton` op
    checks        op that launches a kernel that checks indices -> offset of its failure fields (failures.py)
    current       device number of the GPU that is current at the line being written; -1 before the first
    launched      link name -> kernel that the program launches
    matmuls       calls of cuBLASLt
    convolutions  calls of cuDNN
    ready         link name -> (machine code, device number) of kernels that were compiled before: the user's Triton kernels
    arenas        device number -> place in the frame of the handle of that GPU's arena
    scratch       device number -> bytes that its kernels get as scratch, at most
    """

    numbers: list[int]
    kernels: dict[ir.Operation, Any]
    checks: dict[ir.Operation, int]
    current: int = -1
    launched: dict[str, Launched] = field(default_factory=dict)
    matmuls: list[CublasMatmul] = field(default_factory=list)
    convolutions: list[CudnnConvolution] = field(default_factory=list)
    ready: dict[str, tuple[Any, int]] = field(default_factory=dict)
    arenas: dict[int, str] = field(default_factory=dict)
    scratch: dict[int, int] = field(default_factory=dict)

    def forget_current(self) -> None:
        """Called where control flow joins, behind parts of the program that may have entered other GPUs. Of several none is known."""
        if len(self.numbers) > 1:
            self.current = -1


def gpus_of(function: Any) -> Gpus:
    """The GPUs and the kernels of a lowered function. Raises ValueError for a device other than cpu and cuda."""
    blocks = [one.regions[0].blocks[0] for one in (function, *nested_functions(function))]
    operations = [op for block in blocks for op in block.operations]
    values = [*(x for block in blocks for x in block.arguments), *(x for op in operations for x in op.results)]
    devices = dict.fromkeys(info_of(x).device for x in values if isinstance(x.type, ir.RankedTensorType))
    for device in devices:
        if torch.device(device).type not in ("cpu", "cuda"):
            raise ValueError(f"a tensor is on {device}; host programs work with cpu and cuda")
    named = module_body(function).operations
    triton = {attribute_value(op.attributes["sym_name"]): op for op in named if op.operation.name == "mlirc.triton"}
    kernels, checks = {}, {}
    for op in operations:
        kernel = triton.get(attribute_value(op.attributes["kernel"])) if "kernel" in op.attributes else None
        if kernel is not None:
            kernels[op.operation] = kernel
            if attribute_value(op.attributes["messages"]):
                checks[op.operation] = FAILURE_FIELDS * len(checks)
    return Gpus([torch.device(d).index or 0 for d in devices if d != "cpu"], kernels, checks)
