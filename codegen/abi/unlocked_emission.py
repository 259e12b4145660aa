"""Emission of object files without llvmlite's lock, so that threads emit in parallel. Emission is nine tenths of LLVM's time."""

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from mlirc.codegen.abi.reach import Missing, reach

Emit = Callable[[llvm.TargetMachine, llvm.ModuleRef], bytes]


def emit_object(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """The object file of a module, as bytes. The caller's thread has a context and a target machine of its own: then LLVM needs no lock."""
    return (unlocked() or _locked)(machine, module)


@reach("unlocked-emission", instead="kernels are compiled one after another")
def unlocked() -> Emit:
    """An `emit_object` that calls llvmlite's C function without the lock. Raises Missing where it does not emit what llvmlite emits."""
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
