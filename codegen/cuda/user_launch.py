"""Launches of a user's Triton kernels in a host program, in place of calls from Python.

    y = kernel(x, y, n), which writes to y      y' = copy of y; launch kernel(x, y', n); y' is the result

A tensor that the kernel writes to is copied first, and the copy is a result: ops of the IR write to no operand. The compiled code takes addresses for
multiples of 16. Where one is not, nothing is launched and the status is 1: Python makes the call, and Triton compiles other code.

In the call's arguments, {"$": k} is operand k of the op, and {"size": text} a size expression (aten_arguments.py).
"""

import json
import struct
from collections.abc import Sequence
from typing import Any

import torch

from mlirc.codegen.aten.shim_call import WANTED, NativeCall, NotNative, integer
from mlirc.codegen.cuda import launch as cuda_launch
from mlirc.codegen.cuda.triton_worker import SCRATCH_POINTERS
from mlirc.codegen.cuda.user_kernels import NotCompiled, Symbol, UserKernel, compile_kernel
from mlirc.codegen.frame.frame import Frame, HostBuffer, Number
from mlirc.dialects.core import aten_arguments, symbols
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.interpreter.triton_kernels import known
from mlirc.lowering.module.target_attribute import target_of

Operands = Sequence[HostBuffer | Number]


def triton_call(frame: Frame, op: Any, operands: Operands) -> NativeCall:
    """The launch of the kernel that `op` calls. Writes no text yet. Raises NotNative."""
    _, given = aten_arguments.parse(attribute_value(op.attributes["args"]))
    tensors, numbers = dict(given["tensors"]["dict"]), dict(given["numbers"]["dict"])
    gpus = {info_of(op.operands[x["$"]]).device for x in tensors.values()}
    if len(gpus) != 1 or not next(iter(gpus)).startswith("cuda"):
        raise NotNative("Triton's interpreter runs it" if gpus == {"cpu"} else "its tensors are on several devices")
    if given.get("descriptors"):
        raise NotNative("the host makes descriptors for it")
    device = next(iter(gpus))
    arguments = {**constants_of(given), **{name: number_kind(op, x) for name, x in numbers.items()}}
    arguments |= {name: info_of(op.operands[x["$"]]).dtype for name, x in tensors.items()}
    try:
        kernel = compile_kernel(known[given["kernel"]], arguments, capability_of(op, device))
    except NotCompiled as reason:
        raise NotNative(str(reason)) from reason
    return NativeCall([WANTED] * len(op.results), Writer(frame, op, operands, given, kernel, device).write)


def constants_of(given: dict[str, Any]) -> dict[str, Any]:
    """The constants of the call. Raises NotNative for those that cannot be written as JSON."""
    try:
        (found,), _ = aten_arguments.decode(json.dumps([given["constants"]]), (), {}, ())
    except ValueError as reason:
        raise NotNative(str(reason)) from reason
    return found


def number_kind(op: Any, x: Any) -> Any:
    """A number as the kernel is compiled for it: itself, or a Symbol where it is known at the call alone, as a size or a float64 operand.

    Raises NotNative for a boolean operand, for which Triton compiles code of its own."""
    if isinstance(x, dict) and "$" in x:
        if info_of(op.operands[x["$"]]).dtype != torch.float64:
            raise NotNative("a truth value depends on data")
        return Symbol(float)
    return Symbol(int) if isinstance(x, dict) else x


def capability_of(op: Any, device: str) -> int:
    gpu = target_of(op.operation.parent.opview).gpu(device)
    if gpu is None:
        raise NotNative("the module's target has no such GPU")
    return gpu.capability


class Writer:
    """Writes the launch."""

    def __init__(self, frame: Frame, op: Any, operands: Operands, given: dict, kernel: UserKernel, device: str):
        self.frame, self.op, self.operands, self.kernel = frame, op, operands, kernel
        self.index = torch.device(device).index or 0
        self.tensors, self.numbers = dict(given["tensors"]["dict"]), dict(given["numbers"]["dict"])
        self.written = given["written"]
        self.grid = [integer(frame, x, operands) for x in given["grid"][0]]
        self.link = f"{given['kernel']}.{len(frame.gpus.ready)}@{self.index}"
        frame.gpus.ready[self.link] = (kernel.compiled, self.index)

    def write(self, places: list[str]) -> str:
        """Writes it, with the results' handles at `places`; the status."""
        text, frame = self.frame.text, self.frame
        status = text.place("i32", "status")
        text.line(f"store i32 1, ptr {status}")
        cuda_launch.enter(frame, self.index)
        addresses = {name: frame.address(self.operands[x["$"]]) for name, x in self.tensors.items()}
        values = [self.value(*parameter, addresses) for parameter in self.kernel.parameters]
        grid = [step()[0] for step in self.grid]
        before = dict(frame.sizes.bound), dict(frame.sizes.known)
        go, done = text.fresh("go"), text.fresh("done")
        text.line(f"br i1 {self.misaligned(addresses)}, label %{done}, label %{go}")
        text.block(go)
        for name, result, place in zip(self.written, self.op.results, places, strict=True):
            addresses[name] = self.copy(name, addresses[name], info_of(result), place)
        made = [(name, x) for (name, *_), x in zip(self.kernel.parameters, values, strict=True)]
        self.launch([f"ptr {addresses[name]}" if name in addresses else x for name, x in made], grid)
        # what was computed here is not computed where the call is made from Python
        frame.sizes.bound, frame.sizes.known = before
        frame.forget_site()
        text.line(f"store i32 0, ptr {status}")
        text.line(f"br label %{done}")
        text.block(done)
        return frame.load("i32", status, "status")

    def misaligned(self, addresses: dict[str, str]) -> str:
        """Whether the address of a tensor that the kernel only reads is no multiple of 16."""
        text, bits = self.frame.text, "0"
        for name, address in addresses.items():
            if name not in self.written:
                bits = text.value(f"or i64 {bits}, {text.value(f'ptrtoint ptr {address} to i64')}")
        return text.value(f"icmp ne i64 {text.value(f'and i64 {bits}, 15')}, 0")

    def copy(self, name: str, address: str, info: Any, place: str) -> str:
        """Makes a result, with the elements of what the kernel is given; its address."""
        frame = self.frame
        frame.shim("aoti_torch_empty_strided", *frame.layout(info), *frame.kind(info), place)
        frame.shim("aoti_torch_get_data_ptr", frame.load("ptr", place), "%scratch")
        made = frame.load("ptr", "%scratch", "made")
        size = frame.sizes.of(symbols.maximum(info.extent, 0) * info.dtype.itemsize)
        frame.at_site()
        cuda_launch.check(frame, frame.runtime("copy_memory", made, address, size, f"%stream_{self.index}"))
        return made

    def launch(self, values: list[str], grid: list[str]) -> None:
        frame, text = self.frame, self.frame.text
        values = [*values, *["i64 0"] * SCRATCH_POINTERS]
        slots, pointers = (text.place(f"[{len(values)} x {type_}]", type_) for type_ in ("i64", "ptr"))
        for k, value in enumerate(values):
            text.line(f"store {value}, ptr {frame.at(slots, k)}")
            text.line(f"store ptr {frame.at(slots, k)}, ptr {frame.at(pointers, k)}")
        frame.at_site()
        launched = frame.runtime("launch", text.link(self.link), *grid, f"%stream_{self.index}", pointers)
        cuda_launch.check(frame, launched)

    def value(self, name: str, type_: str, value: Any, addresses: dict[str, str]) -> str:
        """A parameter as LLVM text, type and value, to be stored into its slot. A float that is known is written as the integer of its bits."""
        if name in addresses:
            return f"ptr {addresses[name]}"
        given: Any = self.numbers.get(name)
        if value == Symbol(float):
            real = self.frame.load("double", self.frame.address(self.operands[given["$"]]))
            if type_ == "fp64":
                return f"double {real}"
            return f"float {self.frame.text.value(f'fptrunc double {real} to float')}"
        if value == Symbol(int):
            return f"i64 {self.frame.sizes.of(symbols.parse(given['size']))}"
        if type_ in ("fp32", "fp64"):
            integer_, real_ = ("<i", "<f") if type_ == "fp32" else ("<q", "<d")
            return f"i64 {struct.unpack(integer_, struct.pack(real_, value))[0]}"
        return f"i64 {int(value)}"
