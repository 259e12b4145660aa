"""A loop around one scalar body, compiled: what the tests of VectorBuilder run."""

import ctypes
from collections.abc import Callable

import torch

from mlirc.codegen.llvm.machine_code import compile_ir, mlir_to_llvm
from mlirc.lowering.cpu.math.builder import MlirFunctionText, Value, VectorBuilder, element_text
from mlirc.lowering.host import host_cpu


def elementwise(body: Callable, dtypes: list[torch.dtype], out: torch.dtype, lanes: int) -> Callable:
    """A function of 1-d contiguous tensors of `dtypes`, numel a multiple of `lanes`; body(b, *values) -> value."""
    text, lines = MlirFunctionText(host_cpu()), []
    b = VectorBuilder(text, lines, dtypes[0], lanes)
    result = body(b, *(_load(b, i, dtype) for i, dtype in enumerate(dtypes)))
    assert result.dtype == out, f"the body gives {result.dtype}"
    _store(b, result)
    arguments = ", ".join(f"%in{i}: !llvm.ptr" for i in range(len(dtypes)))
    source = "\n".join(
        [
            f"func.func @kernel({arguments}, %out: !llvm.ptr, %n: i64) {{",
            "%zero = arith.constant 0 : i64",
            f"%step = arith.constant {lanes} : i64",
            *text.preamble,
            "scf.for %i = %zero to %n step %step : i64 {",
            *lines,
            "}",
            "return",
            "}",
            *text.declarations,
        ]
    )
    llvm_text = mlir_to_llvm(source)
    code = compile_ir(llvm_text)
    kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(dtypes) + 1), ctypes.c_int64)(code.address("kernel"))

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        assert [x.dtype for x in inputs] == dtypes and inputs[0].numel() % lanes == 0
        result = torch.empty(inputs[0].numel(), dtype=out)
        kernel(*(x.data_ptr() for x in inputs), result.data_ptr(), result.numel())
        return result

    run.code = code
    run.text = llvm_text
    return run


def _memory_type(b: VectorBuilder, dtype: torch.dtype) -> tuple[str, str]:
    """The element and value types in memory, where a bool is a byte."""
    stored = torch.uint8 if dtype == torch.bool else dtype
    return element_text(stored), b.type_text(stored)


def _load(b: VectorBuilder, i: int, dtype: torch.dtype) -> Value:
    element, type_ = _memory_type(b, dtype)
    address = b.emit(f"llvm.getelementptr %in{i}[%i] : (!llvm.ptr, i64) -> !llvm.ptr, {element}", dtype)
    value = b.emit(f"llvm.load {address} {{alignment = {dtype.itemsize} : i64}} : !llvm.ptr -> {type_}", dtype)
    return b.cast(b.value(value, torch.uint8), torch.bool) if dtype == torch.bool else value


def _store(b: VectorBuilder, value: Value) -> None:
    element, type_ = _memory_type(b, value.dtype)
    stored = b.cast(value, torch.uint8) if value.dtype == torch.bool else value
    address = b.emit(f"llvm.getelementptr %out[%i] : (!llvm.ptr, i64) -> !llvm.ptr, {element}", value.dtype)
    b.lines.append(f"llvm.store {stored}, {address} {{alignment = {value.dtype.itemsize} : i64}} : {type_}, !llvm.ptr")
