"""Writes the call of a library routine by PyTorch's C shim, for `mlircx.call`."""

from typing import Any

from mlirc.codegen.abi import shim
from mlirc.codegen.frame.frame import Frame
from mlirc.dialects.core.tensor_types import info_of


def call_shim(frame: Frame, op: Any) -> None:
    """Writes the shim's call for frame.op into the last operand. The routine for GELU returns a new tensor, which is copied there."""
    *handles, out = [frame.plain(frame.values[x]) for x in op.operands]
    result = info_of(op.operands[len(op.operands) - 1])
    if frame.op != "addmm_gelu":
        routine, more = shim.routine(frame.op, result.rank, result.device)
        frame.shim(routine, out, *handles, *more)
        return
    place = frame.new_handle()
    frame.shim("aoti_torch_cuda__addmm_activation", *handles, "1.0", "1.0", "1", place)
    frame.shim("aoti_torch_copy_", out, frame.load("ptr", place), "0")
