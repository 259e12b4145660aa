"""The object file of a graph for C: its functions for several kinds of processors, its sizes, and its weights.

    NAME_bind, NAME_describe                 shapes.py
    NAME_KIND_graph, NAME_KIND_ready         program.py and runtime_text.py, for each kind: avx2, avx512, ...
    NAME_data                                the weights, in pages that processes share

No function but these is seen from outside. What they call is C's library, and libgomp where the process has it.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from typing import Any

from mlirc.codegen.llvm.machine_code import mlir_to_llvm, relocatable_object
from mlirc.codegen.llvm.processor import portable_name_and_features
from mlirc.codegen.standalone.program import NeedsLibrary, StandaloneProgram, standalone_program
from mlirc.codegen.standalone.runtime_text import COPY, MATH, OPTIONAL, SCRATCH, declared, without_libraries
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.target import CpuTarget

LIBRARY = frozenset({*MATH, *(f"{name}f" for name in MATH), *OPTIONAL}) | {
    "pthread_getspecific",
    "pthread_setspecific",
    "pthread_once",
    "pthread_key_create",
    "calloc",
    "aligned_alloc",
    "free",
    "memcpy",
    "memmove",
    "memset",
}
"""What an object file may leave to its process."""


@dataclass(frozen=True)
class Kind:
    """The code of a graph for one kind of processor."""

    name: str
    target: CpuTarget
    program: StandaloneProgram
    text: str


def kind_of(name: str, target: CpuTarget, module: Any, symbols: Sequence[str]) -> Kind:
    """The code of a lowered module's @graph, which takes these symbols; needs an entered context. Raises NeedsLibrary with what it would call."""
    functions = {op.attributes["sym_name"].value: op for op in module.body.operations if "sym_name" in op.attributes}
    program = standalone_program(functions["graph"], symbols)
    kernels = [
        op.operation.get_asm(use_local_scope=True)
        for found, op in functions.items()
        if found != "graph" and op.operation.name in ("func.func", "llvm.func")
    ]
    text = without_libraries(mlir_to_llvm("\n".join(kernels))) if kernels else ""
    whole = merged([text, program.text, SCRATCH, COPY])
    if missing := set(declared(whole)) - LIBRARY:
        raise NeedsLibrary(sorted(missing))
    return Kind(name, target, program, whole)


def object_file(
    name: str, kinds: Sequence[Kind], sizes: Sequence[str], weights: Sequence[bytes], written: bool
) -> bytes:
    """The object file: `sizes` are the texts of @bind and @describe, `weights` what NAME_data holds, in parts.

    written   whether the graph writes to weights
    """
    texts = [named(text, {"bind": f"{name}_bind", "describe": f"{name}_describe"}) for text in sizes]
    for kind in kinds:
        names = {"graph": f"{name}_{kind.name}_graph", "make_ready": f"{name}_{kind.name}_ready"}
        texts.append(for_target(internal(named(kind.text, names), names.values()), kind.target))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "weights")
        with open(path, "wb") as file:
            file.writelines(weights)
        texts.append(data_text(f"{name}_data", path, written))
        return relocatable_object(texts)


def data_text(symbol: str, path: str, written: bool) -> str:
    """A module whose only symbol is the bytes of a file, aligned to a page."""
    lines = [
        f'.section .{"data" if written else "rodata"}.{symbol},"a{"w" if written else ""}",@progbits',
        ".balign 4096",
        f".globl {symbol}",
        f".type {symbol},@object",
        f"{symbol}:",
        f'.incbin "{path}"',
        ".byte 0",
        f".size {symbol}, . - {symbol}",
        ".text",
    ]
    return "\n".join('module asm "' + line.replace("\\", "\\5C").replace('"', "\\22") + '"' for line in lines)


def merged(texts: Sequence[str]) -> str:
    """One module's text: a function that several texts declare is declared once, and not where one defines it."""
    text = "\n".join(texts)
    known = set(re.findall(r"^define .*?@([\w.]+)\(", text, re.MULTILINE))
    lines = []
    for line in text.split("\n"):
        if line.startswith("declare "):
            match = re.search(r"@([\w.]+)\(", line)
            assert match is not None
            if match[1] in known:
                continue
            known.add(match[1])
        lines.append(line)
    return "\n".join(lines)


def named(text: str, names: dict[str, str]) -> str:
    """The text with other names for some of its functions."""
    return re.sub(rf"@({'|'.join(names)})(?=\()", lambda match: f"@{names[match[1]]}", text)


def internal(text: str, seen: Any) -> str:
    """The text with functions that only those named in `seen` call."""
    head = rf"^define (?!internal|private)(?!.*@(?:{'|'.join(seen)})\()"
    return re.sub(head, "define internal ", text, flags=re.MULTILINE)


def for_target(text: str, target: CpuTarget) -> str:
    """The text with functions for that kind of processor, whatever the module's is."""
    cpu, features = portable_name_and_features(target)
    attributes = f'"target-cpu"="{cpu}"' + (f' "target-features"="{features}"' if features else "")
    return re.sub(r"^(define .*?) ?\{$", rf"\1 {attributes} {{", text, flags=re.MULTILINE)
