"""Gemm with a symbolic number of rows: code for few rows and code for many, chosen in each call.

A batch that grew from one sequence to two is such a symbol. Code for many rows packs or widens the weight, which for few rows is most
of the work.
"""

from mlirc.dialects.core import symbols
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.loops.entry import load_slot
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.matmul.dot_product import MOST_ROWS, DotWriter, fit
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.kernel.axes import Vector
from mlirc.lowering.target import CpuTarget


def may_be_few(gemm: Gemm) -> bool:
    """Whether the number of rows is symbolic and may be small; not where it is a multiple of a long sequence."""
    m = gemm.m_size
    if isinstance(m, int) or gemm.plain is None or gemm.plain[1] != 1 or not fit(gemm, MOST_ROWS):
        return False
    return symbols.evaluate(m, dict.fromkeys(symbols.free_symbols(m), 1)) <= MOST_ROWS


def few_or_many(gemm: Gemm, many: KernelText, name: str, target: CpuTarget) -> KernelText:
    """A kernel that calls code for few rows, or `many`, the code for any number of rows, which has that name now."""
    few = DotWriter(gemm, f"{name}_few", target).write()
    own, other = (f"func.func {head}@{name}" for head in ("", "private "))
    functions = [
        many.functions.replace(f"{own}(", f"{other}_many("),
        few.functions.replace(f"{own}_few(", f"{other}_few("),
        _entry(gemm, many.symbols, name, target),
    ]
    declarations = list(dict.fromkeys([*many.declarations, *few.declarations]))
    return KernelText("\n".join(functions), declarations, many.symbols)


def _entry(gemm: Gemm, names: list[str], name: str, target: CpuTarget) -> str:
    e = VectorEmitter(Vector(None, 1), target)
    for k, symbol in enumerate(names):
        e.env[symbol] = load_slot(e, "%args", gemm.kernel.operand_count + k, "i64")
    many = e.index.gt(e.integer(gemm.m_size), e.i64(MOST_ROWS))
    lines = [
        f"func.func @{name}(%args: !llvm.ptr) -> i64 {{",
        *e.text.preamble,
        *e.lines,
        f"%status = scf.if {many} -> i64 {{",
        *_call(f"{name}_many"),
        "} else {",
        *_call(f"{name}_few"),
        "}",
        "return %status : i64",
        "}",
    ]
    return "\n".join(lines)


def _call(name: str) -> list[str]:
    return [f"%made = func.call @{name}(%args) : (!llvm.ptr) -> i64", "scf.yield %made : i64"]
