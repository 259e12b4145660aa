"""Emission of object files without llvmlite's lock, so that threads emit in parallel."""

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from mlirc.codegen.abi.reach import Missing, reach

Emit = Callable[[llvm.TargetMachine, llvm.ModuleRef], bytes]


def emit_object(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """The object file of a module. LLVM needs no lock where each thread has its own context and target machine. Emission is nine tenths of
    LLVM's time."""
    return (unlocked() or _locked)(machine, module)


@reach("unlocked-emission", instead="kernels are compiled one after another")
def unlocked() -> Emit:
    """`emit_object` by the C function that llvmlite calls under its lock. Raises Missing."""
    function = ffi.lib.LLVMPY_TargetMachineEmitToMemory._cfn
    lib, text = ffi.lib, ffi.OutputString

    def emit(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
        with text() as problem:
            buffer = function(machine, module, 1, problem)
            if not buffer:
                raise RuntimeError(str(problem))
        try:
            return ctypes.string_at(lib.LLVMPY_GetBufferStart(buffer), lib.LLVMPY_GetBufferSize(buffer))
        finally:
            lib.LLVMPY_DisposeMemoryBuffer(buffer)

    target = llvm.Target.from_default_triple()
    module = llvm.parse_assembly("define i32 @seven() { ret i32 7 }", llvm.create_context())
    if emit(target.create_target_machine(), module) != target.create_target_machine().emit_object(module):
        raise Missing("it makes another object file")
    return emit


def _locked(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    return machine.emit_object(module)
