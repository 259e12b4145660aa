"""Writes C functions, as LLVM IR text, that compute a graph's symbols from the sizes of a call, and expressions from symbols.

    void @bind(ptr %sizes, ptr %symbols)        the sizes of all arguments, one after another -> the value of each symbol
    void @describe(ptr %symbols, ptr %numbers)  -> expressions of symbols: what sizes and strides have to be, bytes of the arena

Neither fails. @describe is asked after the caller has compared symbols with their ranges; where sizes contradict each other, what it
says differs from what was given.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mlirc.codegen.llvm.ir_text import LlvmFunctionText, SizeText
from mlirc.codegen.standalone.program import module_text
from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int

Truth = Sequence[Any]
"""["<=", "s0", "2*s1"], ["And", truth, truth], ["Not", truth]."""

PREDICATES = {"==": "eq", "!=": "ne", "<=": "sle", ">=": "sge", "<": "slt", ">": "sgt"}


class CheckedSizes(SizeText):
    """Divides by at least 1, so that no size of a caller's divides by 0, which would end the process."""

    def floordiv(self, a: str, b: str) -> str:
        return super().floordiv(a, self.max(b, "1"))

    def mod(self, a: str, b: str) -> str:
        return super().mod(a, self.max(b, "1"))


def bind_text(sizes: Sequence[Int], names: Sequence[str]) -> str:
    """@bind for arguments of these sizes. Raises ValueError for a symbol that none of them gives."""
    text = LlvmFunctionText()
    bound: dict[str, str] = {}
    for bare in (True, False):
        for k, expr in enumerate(sizes):
            if isinstance(expr, int) or str(expr).isidentifier() != bare:
                continue
            found = solution(expr, set(bound))
            if found is None:
                continue
            name, factor, rest = found
            value = text.value(f"load i64, ptr {at(text, '%sizes', k)}")
            value = text.value(f"sub i64 {value}, {rest}")
            bound[name] = text.value(f"sdiv i64 {value}, {factor}")
    if missing := set(names) - set(bound):
        raise ValueError(f"no argument says what {', '.join(sorted(missing))} is")
    for k, name in enumerate(names):
        text.line(f"store i64 {bound[name]}, ptr {at(text, '%symbols', k)}")
    text.line("ret void")
    return module_text(text, "void @bind(ptr %sizes, ptr %symbols)")


def solution(expr: Any, known: set[str]) -> tuple[str, int, int] | None:
    """(symbol, a, b) where `expr` is a*symbol + b, a is not 0, and the symbol is not known yet."""
    names = symbols.free_symbols(expr)
    if len(names) != 1 or names & known:
        return None
    (name,) = names
    rest, one = (symbols.substitute(expr, {name: k}) for k in (0, 1))
    if not isinstance(rest, int) or not isinstance(one, int) or one == rest:
        return None
    return (name, one - rest, rest) if expr == symbols.symbol(name) * (one - rest) + rest else None


def describe_text(numbers: Sequence[Int | Truth], names: Sequence[str]) -> str:
    """@describe for these expressions and truths, of which those that hold are 1."""
    text = LlvmFunctionText()
    sizes = CheckedSizes(text)
    for k, name in enumerate(names):
        sizes.bound[name] = text.value(f"load i64, ptr {at(text, '%symbols', k)}")
    for k, number in enumerate(numbers):
        value = sizes.of(number) if isinstance(number, (int, symbols.Expr)) else truth(sizes, number)
        text.line(f"store i64 {value}, ptr {at(text, '%numbers', k)}")
    text.line("ret void")
    return module_text(text, "void @describe(ptr %symbols, ptr %numbers)")


def truth(sizes: SizeText, condition: Truth) -> str:
    """The i64 that is 1 where the condition holds, else 0."""
    kind, *parts = condition
    text = sizes.text
    if kind in PREDICATES:
        left, right = (sizes.of(symbols.parse(part)) for part in parts)
        return text.value(f"zext i1 {text.value(f'icmp {PREDICATES[kind]} i64 {left}, {right}')} to i64")
    values = [truth(sizes, part) for part in parts]
    if kind == "Not":
        return text.value(f"xor i64 {values[0]}, 1")
    total = values[0]
    for value in values[1:]:
        total = text.value(f"{COMBINE[kind]} i64 {total}, {value}")
    return total


COMBINE: Mapping[str, str] = {"And": "and", "Or": "or"}


def at(text: LlvmFunctionText, base: str, index: int) -> str:
    return text.value(f"getelementptr i64, ptr {base}, i64 {index}", "at")
