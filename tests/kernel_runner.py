"""Runs one kernel, given as text, on tensors: parse, lower-kernels, LLVM, a native call."""

import ctypes
import re

import torch
from mlirc.codegen.llvm import compile_ir, mlir_to_llvm
from mlirc.dialects.bindings import context, ir
from mlirc.dialects.tensor_types import TensorInfo, type_text
from mlirc.lowering.ledger import Ledger
from mlirc.lowering.passes.lower_kernels import LowerKernels

RUN = re.compile(r'"mlircx.run".*kernel = "(\w+)".*symbols = "([^"]*)"')


def info(tensor: torch.Tensor) -> TensorInfo:
    return TensorInfo(tensor.dtype, tuple(tensor.shape), tensor.stride())


def lower(text: str, vector_bytes: int = 0) -> ir.Module:
    """The module with its launches lowered; call within context()."""
    module = ir.Module.parse(text)
    LowerKernels(vector_bytes).run(module.body.operations[0], Ledger())
    module.operation.verify()
    return module


class NativeKernel:
    """`body` is the kernel's text, in which %0, %1, ... stand for the inputs; reads spell no tensor type: `%0` suffices.

    inputs, outputs   TensorInfos
    """

    def __init__(self, body: str, inputs, outputs, parallel: str, inner: str = "", vector_bytes: int = 0):
        types = [type_text(i) for i in (*inputs, *outputs)]
        arguments = ", ".join(f"%arg{k}: {t}" for k, t in enumerate(types))
        block = ", ".join(f"%x{k}: {t}" for k, t in enumerate(types[: len(inputs)]))
        operands = ", ".join(f"%arg{k}" for k in range(len(types)))
        for k, t in enumerate(types[: len(inputs)]):
            body = body.replace(f"T{k}", t)
        text = (
            f"func.func @graph({arguments}) {{\n"
            f'"mlircx.launch"({operands}) ({{\n^bb0({block}):\n{body}\n}}) '
            f'{{parallel = "{parallel}", inner = "{inner}", label = "test", inputs = {len(inputs)} : i64}} : '
            f"({', '.join(types)}) -> ()\nreturn\n}}"
        )
        with context():
            module = lower(text, vector_bytes)
            self.mlir = str(module)
            name, symbols = RUN.search(self.mlir).groups()
            self.symbols = [s for s in symbols.split(", ") if s]
            module.body.operations[0].operation.erase()
            self.llvm = mlir_to_llvm(module)
        self.code = compile_ir(self.llvm)
        self.function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self.code.address(name))

    def words(self, tensors, threads=1, **symbols):
        addresses = [t.data_ptr() for t in tensors]
        words = [*addresses, *(symbols[s] for s in self.symbols), threads, 0, 0]
        return (ctypes.c_int64 * len(words))(*words)

    def __call__(self, *tensors, threads=1, **symbols):
        """Runs on inputs and outputs; returns (status, bad index, its size)."""
        words = self.words(tensors, threads, **symbols)
        status = self.function(ctypes.addressof(words))
        return status, words[-2], words[-1]
