"""Emit and load: a lowered module becomes a Program. Equal kernels of all graphs of a process share machine code."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from mlirc.codegen import shared_kernels
from mlirc.codegen.cache_folder import CacheFolder
from mlirc.codegen.cuda_kernels import compile_and_load
from mlirc.codegen.host_program import host_program
from mlirc.codegen.llvm import Code, compile_ir, mlir_to_llvm
from mlirc.codegen.program import Program
from mlirc.codegen.shared_kernels import Kernel
from mlirc.dialects.bindings import context, ir
from mlirc.dialects.dialect import attribute_value

KERNEL_OPT_LEVEL = 1
WORTH_A_THREAD = 20_000  # characters of a kernel's text, for which LLVM takes 10 ms
HOST_OPT_LEVEL = 0  # straight-line calls: there is nothing to optimise


def compile_module(
    module: ir.Module,
    objects: Sequence[Any] = (),
    entry: str = "graph",
    consume: bool = False,
    folder: CacheFolder | None = None,
) -> Program:
    """The program of the module's function `entry`, which is at the memory level with its kernels lowered.

    objects   what its ATen calls refer to (aten_arguments.py)
    consume   the program empties the list of inputs that it is called with, and frees each tensor after its last use
              unless somebody else holds it: what a backward graph does with what was saved for it
    folder    where kernels are looked up, and kept

    Raises ValueError for a module of another form.
    """
    with context():
        named = {attribute_value(op.attributes["sym_name"]): op for op in module.body.operations}
        functions = {name: op for name, op in named.items() if op.operation.name in ("func.func", "llvm.func")}
        if entry not in functions:
            raise ValueError(f"the module has no function @{entry} to emit")
        host = host_program(functions[entry], objects, consume)
        kernels = load_kernels(functions, [name for name in host.links if name in functions], folder)
        gpu_kernels = compile_and_load(named, host.launched, folder)
    return Program(host, compile_ir(host.text, HOST_OPT_LEVEL), kernels, gpu_kernels)


def load_kernels(
    functions: Mapping[str, Any], names: Sequence[str], folder: CacheFolder | None = None
) -> dict[str, Kernel]:
    """The code of each named kernel. The new ones of a graph are compiled on as many threads as PyTorch computes on."""
    texts = {name: kernel_text(functions, name) for name in names}
    keys = {name: shared_kernels.key_of(text) for name, text in texts.items()}
    kernels = {key: kernel for key in set(keys.values()) if (kernel := shared_kernels.find(key, folder))}
    new = {key: name for name, key in keys.items() if key not in kernels}
    if new:
        declarations = [op for op in functions.values() if not op.regions[0].blocks]
        parts = split(new, lambda key: len(texts[new[key]]))
        with ThreadPoolExecutor(len(parts)) as pool:
            pending: list[tuple[dict[str, str], Future[Code]]] = []
            for part in parts:
                source = copy_of([*declarations, *(op for name in part.values() for op in own(functions, name))])
                pending.append((part, pool.submit(compile_ir, mlir_to_llvm(source), KERNEL_OPT_LEVEL)))
        for part, code in pending:
            kernels |= shared_kernels.add(code.result(), part, folder)
    return {name: kernels[key] for name, key in keys.items()}


def split(kernels: Mapping[str, str], size: Callable[[str], int]) -> list[dict[str, str]]:
    """The kernels in parts of about equal size, one for each thread that it is worth starting."""
    total = sum(map(size, kernels))
    parts: list[dict[str, str]] = [{} for _ in range(min(torch.get_num_threads(), 1 + total // WORTH_A_THREAD))]
    sizes = [0] * len(parts)
    for key in sorted(kernels, key=size, reverse=True):
        least = sizes.index(min(sizes))
        parts[least][key] = kernels[key]
        sizes[least] += size(key)
    return [part for part in parts if part]


NAME = "@KERNEL"  # stands for the kernel's own name in its text


def own(functions: Mapping[str, Any], name: str) -> list[Any]:
    """The kernel and the functions of its own that it calls: kernel_0, kernel_0_body, ..."""
    return [op for other, op in functions.items() if re.fullmatch(rf"{name}(_.*)?", other) and op.regions[0].blocks]


def copy_of(functions: Sequence[Any]) -> ir.Module:
    """A module that holds copies of these functions."""
    module = ir.Module.create(ir.Location.unknown())
    with ir.InsertionPoint(module.body):
        for function in functions:
            function.operation.clone()
    return module


def kernel_text(functions: Mapping[str, Any], name: str) -> str:
    """The text of a kernel, whatever its number."""
    return re.sub(rf"@{name}(?!\d)", NAME, "\n".join(map(text_of, own(functions, name))))


def text_of(function: Any) -> str:
    """Its text by itself: otherwise MLIR goes through the whole module to number values that the text does not show."""
    return function.operation.get_asm(use_local_scope=True)
