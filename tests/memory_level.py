"""Programs from the text of memory-level modules, for the tests of the host program."""

import gc
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
import torch

from mlirc.codegen.emit.emit import compile_module
from mlirc.codegen.host.host_program import HostProgram, host_program
from mlirc.codegen.host.program import Program
from mlirc.codegen.llvm.machine_code import load_libraries
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context


def build(
    signature: str, ops: Sequence[str], kernels: str = "", objects: Sequence[Any] = (), consume: bool = False
) -> Program:
    """A program from the arguments and results of @graph, its ops and the functions of its kernels."""
    body = "\n".join(ops)
    with context():
        module = ir.Module.parse(f"func.func @graph{signature} {{\n{body}\n}}\n{kernels}")
        return compile_module(module, objects, consume=consume)


def written(text: str) -> HostProgram:
    """The host program of the @graph of a module, whose text LLVM accepts; for GPUs too, where there is none."""
    load_libraries()
    with context():
        module = ir.Module.parse(text)
        made = host_program(module.body.operations[0])
    llvm.parse_assembly(made.text).verify()
    return made


def aten(results: str, op: str, args: str, types: str, aliases: str = "-1", kind: str = "aten", more: str = "") -> str:
    """`%0 = mlircx.aten(...)`: its operands are the %names that `args`, the JSON text, refers to as {"$": name}."""
    names: list[str] = []

    def number(match):
        if match[1] not in names:
            names.append(match[1])
        return str(names.index(match[1]))

    text = re.sub(r"(%\w+(?:#\d)?)", number, args).replace('"', "\\22")
    attributes = f'op = "{op}", args = "{text}", aliases = "{aliases}"{more}'
    return f'{results} = "mlircx.{kind}"({", ".join(names)}) {{{attributes}}} : {types}'


def call(callee: str, operands: str, types: str) -> str:
    """A library call; the last operand is the output."""
    count = operands.count("%") - 1
    return f'"mlircx.call"({operands}) {{callee = "{callee}", inputs = {count} : i64}} : ({types}) -> ()'


def slot(name: str, type_: str, offset: str = "0") -> str:
    return f'{name} = "mlirc.slot"() {{offset = "{offset}"}} : () -> {type_}'


def allocate(name: str, type_: str) -> str:
    return f'{name} = "mlirc.allocate"() : () -> {type_}'


def view(name: str, x: str, x_type: str, type_: str, offset: str = "0") -> str:
    return f'{name} = "mlirc.view"({x}) {{map = "", offset = "{offset}"}} : ({x_type}) -> {type_}'


def resident_bytes() -> int:
    """Of this process, once garbage is collected."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def equal(got: torch.Tensor, want: torch.Tensor) -> None:
    """Bit for bit, and laid out alike."""
    assert got.dtype == want.dtype and got.stride() == want.stride() and got.device == want.device
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@contextmanager
def operators(namespace: str, **implementations: Any) -> Iterator[None]:
    """Operators `namespace::name(Tensor x) -> Tensor` for a while."""
    library = torch.library.Library(namespace, "FRAGMENT")
    for name, function in implementations.items():
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, function, "CompositeExplicitAutograd")
    try:
        yield
    finally:
        library._destroy()
