"""Emit and load: a lowered module becomes a Program. Equal kernels of all graphs of a process share machine code."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from mlirc.codegen.host_program import host_program
from mlirc.codegen.llvm import Code, compile_ir, mlir_to_llvm
from mlirc.codegen.program import Program
from mlirc.dialects.bindings import context, ir
from mlirc.dialects.dialect import attribute_value

KERNEL_OPT_LEVEL = 1
HOST_OPT_LEVEL = 0  # straight-line calls: there is nothing to optimise

# text of a kernel -> the code that holds it; touched inside context() only, which is a lock
_loaded: WeakValueDictionary[str, "LoadedKernels"] = WeakValueDictionary()


class LoadedKernels:
    """Machine code of some kernels, and each one's name in it by its text. Lives as long as a program that uses one."""

    def __init__(self, code: Code, names: dict[str, str]):
        self.code, self.names = code, names

    def address(self, text: str) -> int:
        return self.code.address(self.names[text])


def compile_module(
    module: ir.Module, objects: Sequence[Any] = (), entry: str = "graph", consume: bool = False
) -> Program:
    """The program of the module's function `entry`, which is at the memory level with its kernels lowered.

    objects   what its ATen calls refer to (aten_arguments.py)
    consume   the program empties the list of inputs that it is called with, and frees each tensor after its last use
              unless somebody else holds it: what a backward graph does with what was saved for it

    Raises ValueError for a module of another form.
    """
    with context():
        functions = {attribute_value(op.attributes["sym_name"]): op for op in module.body.operations}
        if entry not in functions:
            raise ValueError(f"the module has no function @{entry} to emit")
        host = host_program(functions[entry], objects, consume)
        kernels = load_kernels(functions, [name for name in host.links if name in functions])
    return Program(host, compile_ir(host.text, HOST_OPT_LEVEL), kernels)


def load_kernels(functions: Mapping[str, Any], names: Sequence[str]) -> dict[str, tuple[LoadedKernels, int]]:
    """Code and address of each named kernel. The new ones of a graph are compiled together, in one LLVM module."""
    texts = {name: kernel_text(functions, name) for name in names}
    held = {text: _loaded[text] for text in texts.values() if text in _loaded}
    new = {text: name for name, text in texts.items() if text not in held}
    if new:
        declarations = [text_of(op) for op in functions.values() if not op.regions[0].blocks]
        source = "\n".join([*declarations, *(text.replace(NAME, f"@{name}") for text, name in new.items())])
        loaded = LoadedKernels(compile_ir(mlir_to_llvm(ir.Module.parse(source)), KERNEL_OPT_LEVEL), new)
        for text in new:
            _loaded[text] = held[text] = loaded
    return {name: (held[text], held[text].address(text)) for name, text in texts.items()}


NAME = "@KERNEL"  # stands for the kernel's own name in its text


def kernel_text(functions: Mapping[str, Any], name: str) -> str:
    """The kernel and the functions of its own that it calls (kernel_0, kernel_0_body, ...), whatever its number."""
    own = [op for other, op in functions.items() if re.fullmatch(rf"{name}(_.*)?", other) and op.regions[0].blocks]
    return re.sub(rf"@{name}(?!\d)", NAME, "\n".join(map(text_of, own)))


def text_of(function: Any) -> str:
    """Its text by itself: otherwise MLIR goes through the whole module to number values that the text does not show."""
    return function.operation.get_asm(use_local_scope=True)
