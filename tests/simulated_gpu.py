"""Programs for a GPU on a machine without one: native host programs, whose kernels Triton interprets in the memory of the CPU.

A graph is captured on the CPU, its module moved to a GPU (move-to-gpu) and lowered for one. In its host program the functions that
work with CUDA are replaced by Python's, which keep a list of what was asked of the GPU; tensors lie in the CPU's memory, and library routines
are the CPU's. So what is executed is the host program itself: its branches and loops, arenas, addresses, copies, and the kernels' code.

    with simulated_gpu() as gpu:
        result = torch.compile(f, backend="mlirc", options=gpu.options)(x)
    assert gpu.asked.count("read") == 3
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy
import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.emit.emit import EarlyKernels, Unlinked
from mlirc.codegen.frame.failures import FAILURE_FIELDS, FAILURES
from mlirc.codegen.frame.gpu_calls import MATMULS
from mlirc.codegen.host.host_program import host_program
from mlirc.codegen.host.program import Program
from mlirc.codegen.libraries.gpu_library import ATEN
from mlirc.codegen.llvm.machine_code import compile_ir
from mlirc.codegen.process import background
from mlirc.dialects.control_flow.region_ops import nested_functions
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_signature import bind_symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of
from mlirc.execution.triton_code import TritonCode, kernel_of
from mlirc.frontend.driver import steps
from mlirc.frontend.importer import importer
from mlirc.lowering.host import host_target
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline

POINTER, INTEGER = ctypes.c_void_p, ctypes.c_int64
FUNCTIONS = {  # of cuda/runtime.py and cublas_runtime.py, with what they take; each gives an i32
    "enter_device": (ctypes.c_int32, POINTER, POINTER),
    "leave_device": (POINTER,),
    "launch": (POINTER, INTEGER, INTEGER, INTEGER, POINTER, POINTER),
    "align": (INTEGER, INTEGER, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, POINTER, POINTER, POINTER),
    "copy_memory": (INTEGER, INTEGER, INTEGER, POINTER),
    "read_memory": (INTEGER, INTEGER, INTEGER, POINTER),
    "write_number": (INTEGER, INTEGER, INTEGER, POINTER),
    "find_failure": (POINTER, INTEGER, POINTER, POINTER, POINTER, POINTER),
    "multiply": (POINTER, INTEGER, *[POINTER] * 6, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, POINTER),
}


class SimulatedGpu:
    """asked     "launch LABEL", "copy", "read", "write", "align", "multiply", in order, of all programs
    programs     host programs that were made
    options      what torch.compile is given
    """

    def __init__(self, code: TritonCode):
        self.code = code
        self.asked: list[str] = []
        self.programs: list[Any] = []
        self.options = {"pipeline": f"move-to-gpu,{pipeline('gpu')}", "fallback": "error", "cache": False}
        self.kernels: list[Any] = []  # by record: a run of the kernel, and its module
        self.held: list[Any] = []
        self.sizes: dict[str, int] = {}

    def begin(
        self,
        module: Any,
        objects: Sequence[Any],
        entry: str,
        consume: bool,
        folder: Any,
        early: EarlyKernels,
        profile: bool = False,
    ) -> Unlinked:
        """In place of emit.begin_module."""
        named = {attribute_value(op.attributes["sym_name"]): op for op in module.body.operations}
        functions = {name: op for name, op in named.items() if op.operation.name in ("func.func", "llvm.func")}
        known = shim.device_codes
        with patch.object(shim, "device_codes", lambda device: known("cpu")):
            host = host_program(functions[entry], objects, consume, profile)
        keys, kernels = early.all_of(functions, [name for name in host.links if name in functions])
        addresses = {name: self.function(name, types) for name, types in FUNCTIONS.items()}
        runs = [op for one in (functions[entry], *nested_functions(functions[entry])) for op in operations(one)]
        for launched in host.launched:
            run = next(op for op in runs if "kernel" in op.attributes and named_by(op) == launched.kernel)
            self.kernels.append((run, module))
            addresses[launched.link] = len(self.kernels)
        slots = torch.zeros(max(1, FAILURE_FIELDS * host.checks, len(host.matmuls)), dtype=torch.int64)
        self.held += [slots, module]
        addresses |= {FAILURES: slots.data_ptr(), MATMULS: slots.data_ptr()}
        host = replace(
            host, text=host.text.replace("aoti_torch_cuda_", "aoti_torch_cpu_"), uses_gpu=False, matmuls=[], launched=[]
        )
        self.programs.append(host)
        gpu_kernels: Any = {name: Loaded(address) for name, address in addresses.items()}
        code = background.compute(compile_ir, host.text, 0)
        return Simulated(host, code, kernels, keys, gpu_kernels, self, functions[entry])

    def compile(self, text: str) -> Program:
        """The program of a module in the graph form, which says itself what is on a GPU."""
        with context():
            module = ir.Module.parse(text)
            set_target(module, host_target(True))
            run_pipeline(module, pipeline("gpu"))
            return self.begin(module, [], "graph", False, None, EarlyKernels(None)).link()

    def function(self, name: str, types: Sequence[Any]) -> int:
        made = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(partial(self.call, name))
        self.held.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value or 0

    def call(self, name: str, *given: int) -> int:
        """A call from a host program: 0, or another number, which the program takes for an error."""
        try:
            return getattr(self, name)(*given) or 0
        except Exception as error:
            self.asked.append(f"{name}: {type(error).__name__}: {error}")
            return 1

    # ---- what host programs call

    def enter_device(self, index: int, guard: int, stream: int) -> None:
        INTEGER.from_address(stream).value = 1

    def leave_device(self, guard: int) -> None:
        pass

    def find_failure(self, slots: int, count: int, *places: int) -> int:
        return 0

    def multiply(self, *given: int) -> int:
        self.asked.append("multiply")
        return ATEN

    def copy_memory(self, to: int, source: int, size: int, stream: int) -> None:
        if to != source and size:
            self.asked.append("copy")
        ctypes.memmove(to, source, size)

    def read_memory(self, to: int, source: int, size: int, stream: int) -> None:
        self.asked.append("read")
        ctypes.memmove(to, source, size)

    def write_number(self, to: int, bits: int, size: int, stream: int) -> None:
        self.asked.append("write")
        ctypes.memmove(to, (bits & (1 << 64) - 1).to_bytes(8, "little"), size)

    def align(
        self, address: int, size: int, dtype: int, device: int, index: int, place: int, stream: int, at: int
    ) -> None:
        if address % 16:
            self.asked.append("align")
            memory = ctypes.create_string_buffer(size + 16)
            self.held.append(memory)
            aligned = -(-ctypes.addressof(memory) // 16) * 16
            ctypes.memmove(aligned, address, size)
            address = aligned
        INTEGER.from_address(at).value = address

    def launch(self, record: int, x: int, y: int, z: int, stream: int, parameters: int) -> None:
        run, _ = self.kernels[record - 1]
        with context():
            kernel: Any = kernel_of(run)
            signature, name, source, divisible = (
                attribute_value(kernel.attributes[key]) for key in ("signature", "sym_name", "source", "divisible")
            )
            constants = {item.name: attribute_value(item.attr) for item in kernel.attributes["constants"]}
            operands = [info_of(value) for value in run.operands]
            names = [part.strip() for part in attribute_value(run.attributes["symbols"]).split(",") if part.strip()]
            self.asked.append(f"launch {attribute_value(run.attributes['label'])}")
        slots = [INTEGER.from_address(at).value for at in (POINTER * len(signature)).from_address(parameters)]
        values = self.sizes | dict(zip(names, slots[len(operands) :], strict=False))
        regions = [
            (slot, size_of(info, values))
            for slot, info, kind in zip(slots, operands, signature, strict=False)
            if kind[0] == "*"
        ]
        assert not [k for k in divisible if slots[k] % 16 and size_of(operands[k], values)], "an address is not aligned"
        if len(signature) > len(operands) + len(names):
            regions.append((slots[-1], 8 * FAILURE_FIELDS))
        blocks = joined([region for region in regions if region[1]])
        memory = [numpy.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at)) for at, size in blocks]
        memory.append(numpy.zeros(64, numpy.uint8))  # where an empty tensor is
        arguments: list[Any] = []
        for k, (slot, kind) in enumerate(zip(slots, signature, strict=True)):
            dtype = str(operands[k].dtype).removeprefix("torch.") if k < len(operands) else "int64"
            if kind[0] == "*":
                found = [(n, slot - at) for n, (at, size) in enumerate(blocks) if at <= slot < at + size]
                arguments.append((*(found[0] if found else (len(memory) - 1, 0)), dtype))
            else:
                arguments.append(slot)
        after = self.code.ask(source, name, constants, [x, y, z], [block.copy() for block in memory], arguments)
        for block, new in zip(memory, after, strict=True):
            block[:] = new


@dataclass(frozen=True)
class Simulated(Unlinked):
    """A program in whose calls `gpu` knows the values of size symbols: a kernel is given those alone that it needs."""

    gpu: SimulatedGpu
    function: Any

    def link(self) -> Program:
        program = super().link()
        native = program.native

        def call(inputs: list[Any]) -> list[Any]:
            with context():
                self.gpu.sizes = bind_symbols(self.function, inputs)
            return native(inputs)

        program.native = call
        return program


class Loaded:
    """What a program takes for a kernel that is being loaded."""

    def __init__(self, address: int):
        self.address = address

    def load(self) -> "Loaded":
        return self


def named_by(op: Any) -> str:
    return attribute_value(op.attributes["kernel"])


def operations(function: Any) -> list[Any]:
    return list(function.regions[0].blocks[0].operations)


def size_of(info: TensorInfo, values: dict[str, int]) -> int:
    """Bytes from the first element to past the last."""
    shape, stride = ([number(n, values) for n in numbers] for numbers in (info.shape, info.stride))
    if 0 in shape:
        return 0
    return (1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))) * info.dtype.itemsize


def number(n: Int, values: dict[str, int]) -> int:
    return symbols.evaluate(n, values)


def joined(regions: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The regions of memory, address and size, with those that overlap as one."""
    found: list[tuple[int, int]] = []
    for at, size in sorted(regions):
        if found and at < sum(found[-1]):
            found[-1] = found[-1][0], max(sum(found[-1]), at + size) - found[-1][0]
        else:
            found.append((at, size))
    return found


@contextmanager
def simulated_gpu() -> Iterator[SimulatedGpu]:
    with TritonCode() as code:
        gpu = SimulatedGpu(code)
        target = host_target(True)
        with patch.object(steps, "begin_module", gpu.begin), patch.object(importer, "host_target", lambda _: target):
            yield gpu
