"""One kernel, built with KernelBuilder, as native code and as the interpreter runs it.

kernel = NativeKernel([x_info], ["8"], ["d0"], lambda k, x: [(k.neg(k.read(x, k.dims)), k.dims, x_info)])
kernel(x, out, threads=2, s0=8)
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from mlirc.codegen.llvm.machine_code import compile_ir, mlir_to_llvm
from mlirc.codegen.runtime.thread_scratch import IMPORTS
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value, create
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.symbols import parse_list
from mlirc.dialects.core.tensor_types import TensorInfo, type_of
from mlirc.dialects.interpreter.kernels import run_kernel
from mlirc.lowering.host import host_cpu
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.passes.lower.lower_kernels import LowerKernels
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.target import Target


def info(dtype: torch.dtype, shape: str, stride: str | None = None) -> TensorInfo:
    """info(torch.float32, "s0, 128")"""
    return TensorInfo(dtype, parse_list(shape), None if stride is None else parse_list(stride))


def like(x: torch.Tensor) -> TensorInfo:
    return TensorInfo(x.dtype, tuple(x.shape), x.stride())


def of_width(vector_bytes: int) -> Target:
    """This machine with vectors of that width; 0: its own."""
    here = host_cpu()
    width = vector_bytes or here.vector_bytes
    return Target(replace(here, vector_bytes=width, bf16_pairs=here.bf16_pairs and width == 64))


GUARD = 64  # elements before and after each result
POISON = 0x5A


def guarded(i: TensorInfo, values: dict[str, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory, and in its middle a tensor like `i`."""
    shape, stride = ([symbols.evaluate(n, values) for n in x] for x in (i.shape, i.stride))
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if all(shape) else 0
    memory = torch.full(((extent + 2 * GUARD) * i.dtype.itemsize,), POISON, dtype=torch.uint8).view(i.dtype)
    return memory, torch.as_strided(memory, shape, stride, GUARD)


def launch_module(inputs: Sequence[TensorInfo], parallel: str, inner: str, build: Callable):
    """A module whose @graph holds one launch, which input each of its first operands is, and what it writes.

    `build(k, *inputs)` gives the results: (value, map, info).
    """
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("graph", ([type_of(i) for i in inputs], []))
    block = function.add_entry_block()
    with ir.InsertionPoint(block):
        k = KernelBuilder(parse_list(parallel), parse_list(inner), "test")
        results = build(k, *block.arguments)
        kernel = k.finish(results)[0].owner if results else None
        operands = list(kernel.operands)
        outputs = [create("allocate", [], [x.type]).out for x in kernel.results]
        attributes = {name: kernel.attributes[name] for name in ("parallel", "inner", "label")}
        launch = create("launch", operands + outputs, [], {**attributes, "inputs": len(operands)}, regions=1)
        kernel.regions[0].blocks[0].append_to(launch.regions[0])
        kernel.operation.erase()
        func.ReturnOp([])
    arguments = list(block.arguments)
    return module, [arguments.index(x) for x in operands], [i for _, _, i in results]


class KernelRunner:
    """A kernel that runs beside what the interpreter makes of its `launch`.

    order      of the launch's inputs: the position of each among those that the kernel was built with
    outputs    its results' types
    threads    that `check` runs it with
    """

    launch: Any
    order: list[int]
    outputs: list[TensorInfo]
    threads: tuple[int, ...] = (1,)

    def __call__(self, inputs, outputs, threads: int = 1, **values: int) -> tuple[int, int, int]:
        """Runs it; returns (0, or the number of a check that failed, bad index, its size)."""
        raise NotImplementedError

    def check(self, *inputs: torch.Tensor, threads=None, rtol=1e-5, atol=1e-5, **values: int) -> list[torch.Tensor]:
        """Asserts that it gives what the interpreter does, and changes no memory around its results."""
        wanted = [guarded(i, values)[1] for i in self.outputs]
        self.interpret(inputs, wanted, **values)
        for count in threads or self.threads:
            made = [guarded(i, values) for i in self.outputs]
            status, _, _ = self(inputs, [out for _, out in made], threads=count, **values)
            assert status == 0
            for (memory, out), want in zip(made, wanted, strict=True):
                torch.testing.assert_close(out, want, rtol=rtol, atol=atol, equal_nan=True)
                untouched = torch.ones_like(memory, dtype=torch.bool)
                torch.as_strided(untouched, out.shape, out.stride(), GUARD).fill_(False)
                assert (memory.view(torch.uint8) == POISON).view(-1, memory.element_size())[untouched].all()
        return wanted

    def interpret(self, inputs, outputs, **values: int) -> None:
        with context():
            run_kernel(self.launch, [inputs[k] for k in self.order], outputs, values)


def launch_of(module: ir.Module) -> Any:
    block = module.body.operations[0].regions[0].blocks[0]
    return next(op for op in block.operations if op.operation.name == "mlircx.launch")


class NativeKernel(KernelRunner):
    """`reference` holds the launch as it was, `mlir` is the text of the lowered module."""

    threads = (1, 3)

    def __init__(self, inputs: Sequence[TensorInfo], parallel: str, inner: str, build: Callable, vector_bytes: int = 0):
        with context():
            self.reference, self.order, self.outputs = launch_module(inputs, parallel, inner, build)
            self.launch = launch_of(self.reference)
            module = ir.Module.parse(str(self.reference))
            function = module.body.operations[0]
            set_target(module, of_width(vector_bytes))
            LowerKernels().run(function, Ledger())
            module.operation.verify()
            self.mlir = str(module)
            run = next(op for op in function.regions[0].blocks[0].operations if op.operation.name == "mlircx.run")
            name, names = attribute_value(run.attributes["kernel"]), attribute_value(run.attributes["symbols"])
            self.symbols = [str(s) for s in symbols.parse_list(names)]
            self.messages = attribute_value(run.attributes["messages"])
            function.operation.erase()
            self.llvm = mlir_to_llvm(str(module))
        self.code = compile_ir(self.llvm, imports=IMPORTS)
        self.address = self.code.address(name)
        self.function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self.address)

    def __call__(self, inputs, outputs, threads: int = 1, **values: int) -> tuple[int, int, int]:
        """Runs it; returns (status, bad index, its size)."""
        addresses = [t.data_ptr() for t in (*(inputs[k] for k in self.order), *outputs)]
        words = [*addresses, *(values[s] for s in self.symbols), threads, 0, 0]
        memory = (ctypes.c_int64 * len(words))(*words)
        return self.function(ctypes.addressof(memory)), memory[len(words) - 2], memory[len(words) - 1]
