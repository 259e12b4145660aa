"""`mlirc opt --emit KIND`: the module as IR, as code, as a drawing, or not at all."""

from typing import Any

from mlirc.commands.failure import Failure
from mlirc.commands.module_file import module_text

KINDS = ("mlir", "llvm", "asm", "triton", "ptx", "dot", "none")
COMMENT = {"llvm": ";", "asm": "#", "triton": "#", "ptx": "//"}


def checked_kind(kind: str) -> str:
    """Raises Failure."""
    from mlirc.lowering.module.nearest import unknown

    if kind not in KINDS:
        hint = "; to make machine code, and see whether that works, write --emit asm"
        raise Failure(f"--emit: {unknown('kind', kind, KINDS)}{hint}", 2)
    return kind


def emitted(module: Any, kind: str, locations: bool) -> str:
    """The text of a module as `kind`. Raises Failure. Needs an entered context."""
    if kind == "none":
        return ""
    if kind == "mlir":
        return module_text(module, locations)
    if kind == "dot":
        from mlirc.report.dot import drawn

        return drawn(module)
    from mlirc.lowering.module.errors import describe
    from mlirc.lowering.pipeline.standard_steps import form_of_module

    form = form_of_module(module)
    if kind in ("llvm", "asm") and form in ("graph", "kernel"):
        raise Failure(
            f"--emit {kind}: the module is in the {form} form, and code is made of the lowered one: --pipeline cpu"
        )
    try:
        if kind == "asm":
            _compile(module)
        parts = list(_code(module, kind))
    except ImportError as error:
        raise Failure(f"--emit {kind}: {error}; pip install 'mlirc[gpu]'") from error
    except Exception as error:
        raise Failure(f"emit failed{describe(error)}") from error
    if not parts and kind in ("llvm", "asm"):
        raise Failure(f"--emit {kind}: the module has no function that machine code is made of")
    if not parts:
        raise Failure(
            f"--emit {kind}: the module has no mlirc.triton, which lower-triton makes for tensors on a GPU; of a graph "
            "that was captured on a CPU, -p move-to-gpu puts them there"
        )
    mark = COMMENT[kind]
    return "".join(f"{mark} ----- {name} -----\n{text.rstrip()}\n\n" for name, text in parts)


def _compile(module: Any) -> None:
    """Makes and links machine code as the last stage does, so that what fails there fails here. Code for a GPU needs one; that
    for a processor whose instructions this one lacks is made, and not linked."""
    from mlirc.codegen.emit.emit import compile_module
    from mlirc.codegen.emit.readable import triton_ops
    from mlirc.codegen.llvm.processor import why_not_here
    from mlirc.lowering.module.target_attribute import target_of
    from mlirc.lowering.pipeline.pass_manager import functions

    if not triton_ops(module) and not why_not_here(target_of(module).cpu):
        for function in functions(module):
            compile_module(module, entry=function.name.value)


def _code(module: Any, kind: str) -> Any:
    from mlirc.codegen.emit import readable

    if kind == "llvm":
        return ((name, text) for name, text, _ in readable.llvm_texts(module))
    return {"asm": readable.assembly_texts, "triton": readable.triton_texts, "ptx": readable.ptx_texts}[kind](module)
