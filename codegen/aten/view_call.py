"""Native calls that show a tensor's memory as another dtype: complex numbers as pairs of real ones, and back.

Their result shares its operand's storage and keeps it alive, and is no view for autograd where the program returns it.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.codegen.aten.shim_call import WANTED, NativeCall, NotNative, one_device, routines
from mlirc.codegen.frame.frame import Frame, HostBuffer, Number

aten = torch.ops.aten
ROUTINES = {aten.view_as_real.default: "view_as_real", aten.view_as_complex.default: "view_as_complex"}


def view_call(frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number]) -> NativeCall:
    """The C shim's call of a view, whose lines are written later, by its `write`. Raises NotNative."""
    if function not in ROUTINES:
        raise NotNative("no view that native code knows")
    name, device = ROUTINES[function], one_device(op)
    if routines(device).get(name) != ("AtenTensorHandle", "AtenTensorHandle*"):
        raise NotNative("the C shim has no routine for it")
    (x,) = operands
    if not isinstance(x, HostBuffer) or x.root.kind == "number":
        raise NotNative("a number stands for a tensor")

    def write(places: list[str]) -> str:
        """Writes the call, which puts the result's handle at `places[0]`; gives its status. Part of a tensor is first made a tensor of its
        own, with the same storage: the result keeps that alive, as a handle on memory alone would not."""
        part = "" if x.whole or x.root.kind not in ("argument", "owned") else frame.part(x)
        handle = frame.load("ptr", part) if part else frame.plain(x)
        status = frame.text.call(f"aoti_torch_{device}_{name}", "i32 (ptr, ptr)", handle, *places)
        if part:
            frame.runtime("drop", part)
        return status

    return NativeCall([WANTED], write)
