"""Writes calls of cuDNN into a host program, in place of ATen's convolution operators on a GPU.

At a convolution's first call native code has Python make a plan (cudnn.py). If cuDNN refuses the convolution, ATen computes it, as it does for
every native call that fails.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.aten.shim_call import WANTED, NativeCall, NotNative, array, given_arguments, items, kinds_of
from mlirc.codegen.cuda import launch as cuda_launch
from mlirc.codegen.frame.frame import Frame, HostBuffer, Number
from mlirc.codegen.frame.gpu_calls import CONVOLUTIONS, DATA, FILTER, CudnnConvolution
from mlirc.codegen.libraries import cudnn, cudnn_runtime
from mlirc.codegen.runtime.python_side import CONVOLUTION_PLANS
from mlirc.dialects.core.tensor_types import TensorInfo, info_of

OPERATORS = ("convolution", "cudnn_convolution_relu", "cudnn_convolution_add_relu")
HALF = (torch.float16, torch.bfloat16)


def convolution_call(frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number]) -> NativeCall:
    """The call by cuDNN. Writes nothing yet; raises NotNative."""
    kinds_of(function, op)
    wanted, places = convolution_of(function, op)
    number, device = len(frame.gpus.convolutions), wanted.device
    frame.gpus.convolutions.append(wanted)
    out = info_of(op.results[0])

    def write(results: list[str]) -> str:
        cuda_launch.enter(frame, device)
        addresses = ["null" if k is None else frame.address(operands[k]) for k in places]
        return convolve(frame, number, device, addresses, out, results[0])

    return NativeCall([WANTED], write)


def backward_call(frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number]) -> NativeCall:
    """The gradients of a convolution, by one call of cuDNN for each. Writes nothing yet; raises NotNative."""
    kinds = kinds_of(function, op)
    wanted = gradients_of(function, op)
    first = len(frame.gpus.convolutions)
    frame.gpus.convolutions += [gradient for gradient, _ in wanted]

    def write(results: list[str]) -> str:
        text, places = frame.text, [place for place, kind in zip(results, kinds, strict=True) if kind == WANTED]
        cuda_launch.enter(frame, wanted[0][0].device)
        used = dict.fromkeys(k for _, pair in wanted for k in pair)
        address = {k: frame.address(operands[k]) for k in used}
        codes = [
            convolve(frame, first + k, gradient.device, [*(address[p] for p in pair), "null", "null"], out, place)
            for k, ((gradient, pair), out, place) in enumerate(
                zip(wanted, (gradient.operands[-1] for gradient, _ in wanted), places, strict=True)
            )
        ]
        status = codes[0] if len(codes) == 1 else text.value(f"or i32 {codes[0]}, {codes[1]}")
        undo, done = text.fresh("undo"), text.fresh("done")
        text.line(f"br i1 {text.value(f'icmp eq i32 {status}, 0')}, label %{done}, label %{undo}")
        with frame.out_of_line():  # ATen makes all of them
            text.block(undo)
            for place in places:
                frame.runtime("drop", place)
            text.line(f"br label %{done}")
        text.block(done)
        return status

    return NativeCall(kinds, write)


def gradients_of(function: Any, op: Any) -> list[tuple[CudnnConvolution, tuple[int, int]]]:
    """The gradients that convolution_backward asks for, each with the two operands that it is computed from. Raises NotNative."""
    if function._schema.name != "aten::convolution_backward" or function._overloadname not in ("", "default"):
        raise NotNative("no gradient of a convolution")
    check_settings()
    given = {argument.name: x for argument, x in given_arguments(function, op)}
    tensors = [given[name] for name in ("grad_output", "input", "weight")]
    dy, x, w = (t["$"] if isinstance(t, dict) and "$" in t else None for t in tensors)
    mask = given["output_mask"]
    steps = [items(given[n]) for n in ("stride", "padding", "dilation")]
    numbers = (*(n for step in steps for n in step), given["groups"])
    plain = not given["transposed"] and given["groups"] == 1 and all(type(n) is int for n in numbers)
    if dy is None or x is None or w is None or not plain or mask[2] or not any(mask):
        raise NotNative("gradients of a convolution of another kind")
    infos = [info_of(op.operands[k]) for k in (dy, x, w)]
    results = [info_of(r) for r in op.results]
    images = [*infos, *results]
    known = all(isinstance(n, int) and n > 0 for info in images for n in (*info.shape, *info.stride))
    alike = len({(info.dtype, info.device) for info in images}) == 1
    if not (known and alike and all(info.rank == 4 for info in images) and infos[0].dtype in HALF):
        raise NotNative("gradients of a convolution of another kind")
    if len(results) != sum(mask) or not infos[0].device.startswith("cuda"):
        raise NotNative("gradients of a convolution of another kind")
    stride, padding, dilation = (tuple(s) for s in steps)
    left = iter(results)
    found = []
    for kind, pair, asked in ((DATA, (dy, w), mask[0]), (FILTER, (x, dy), mask[1])):
        if asked:
            tensors = (*(info_of(op.operands[k]) for k in pair), next(left))
            found.append((CudnnConvolution(tensors, stride, padding, dilation, False, False, False, kind), pair))
    return found


def check_settings() -> None:
    """Raises NotNative if PyTorch's present settings forbid cuDNN."""
    try:
        cudnn.check_settings()
    except cudnn.NoPlan as reason:
        raise NotNative(str(reason)) from reason


def convolve(frame: Frame, number: int, device: int, addresses: Sequence[str], out: TensorInfo, place: str) -> str:
    """Writes convolution `number` of x, w, z and b ("null" for none) into a new tensor, whose handle goes to `place`; its status."""
    text = frame.text
    sizes, strides = (array(frame, "i64", [str(n) for n in ns]) for ns in (out.shape, out.stride))
    codes = [str(shim.dtype_code(out.dtype)), *map(str, shim.device_codes(out.device))]
    codes.append(str(shim.dtype_code(torch.uint8)))
    head = frame.at(text.link(CONVOLUTIONS), number)
    arguments = (head, *addresses, sizes, strides, *codes, f"%stream_{device}", place)
    status_at = text.place("i32", "status")
    status = frame.runtime("convolve", *arguments)
    text.line(f"store i32 {status}, ptr {status_at}")
    plan, done = text.fresh("plan"), text.fresh("done")
    unknown = text.value(f"icmp eq i32 {status}, {cudnn_runtime.NO_PLAN}")
    text.line(f"br i1 {unknown}, label %{plan}, label %{done}")
    with frame.out_of_line():
        text.block(plan)
        make_plan(frame, number)
        text.line(f"store i32 {frame.runtime('convolve', *arguments)}, ptr {status_at}")
        text.line(f"br label %{done}")
    text.block(done)
    return frame.load("i32", status_at, "status")


def convolution_of(function: Any, op: Any) -> tuple[CudnnConvolution, list[int | None]]:
    """The convolution that the operator computes, and which of its operands are x, w, z and b. Raises NotNative."""
    name = function._schema.name.removeprefix("aten::")
    if name not in OPERATORS or function._overloadname not in ("", "default"):
        raise NotNative("no convolution that cuDNN has a plan for")
    check_settings()
    given = {argument.name: x for argument, x in given_arguments(function, op)}
    tensors = [given.get("input", given.get("self")), given["weight"], given.get("z"), given.get("bias")]
    places = [x["$"] if isinstance(x, dict) and "$" in x else None for x in tensors]
    steps = [items(given[n]) for n in ("stride", "padding", "dilation")]
    numbers = (*(n for step in steps for n in step), given["groups"])
    plain = not given.get("transposed", False) and given["groups"] == 1 and given.get("alpha") in (None, 1, 1.0)
    if places[0] is None or places[1] is None or not plain or not all(type(n) is int for n in numbers):
        raise NotNative("a convolution of another kind")
    infos = [None if k is None else info_of(op.operands[k]) for k in places]
    x, w, z, b = infos
    y = info_of(op.results[0])
    images = [info for info in (x, w, y, z) if info is not None]
    known = all(isinstance(n, int) and n > 0 for info in images for n in (*info.shape, *info.stride))
    alike = len({(info.dtype, info.device) for info in infos if info is not None} | {(y.dtype, y.device)}) == 1
    fits = all(info.rank == 4 for info in images) and (z is None or z.shape == y.shape)
    if not (known and alike and fits and y.dtype in HALF and y.device.startswith("cuda")):
        raise NotNative("a convolution of another kind")
    if b is not None and (b.shape != y.shape[1:2] or b.stride != (1,) or name == "convolution"):
        raise NotNative("a bias, and no relu: for which cuDNN would compile a kernel")
    assert x is not None and w is not None
    present = [info for info in (x, w, y, z, b) if info is not None]
    stride, padding, dilation = (tuple(s) for s in steps)
    relu = name != "convolution"
    return CudnnConvolution(tuple(present), stride, padding, dilation, z is not None, b is not None, relu), places


def make_plan(frame: Frame, number: int) -> None:
    """Lets Python make the plan of convolution `number`."""
    text = frame.text
    slot = text.place("i64", "number")
    text.line(f"store i64 {number}, ptr {slot}")
    frame.at_site()
    callable_ = frame.python_object(CONVOLUTION_PLANS)
    status = frame.runtime(
        "call_python", "%thread", callable_, "%name", "%inputs",
        text.letters("i"), "1", slot, "null", "0", "null", "null",
    )  # fmt: skip
    frame.check(status)
