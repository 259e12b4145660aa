"""Writes one LLVM function as text, top to bottom: fresh names, constants, stack places, size expressions."""

from collections.abc import Iterable, Sequence
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int


class LlvmFunctionText:
    """The body of one function whose blocks follow each other. What an earlier line defined, a later one may use.

    `links` names functions, and other things, whose addresses the loader writes into the module's global array @links.
    """

    def __init__(self):
        self.lines: list[str] = []
        self.places: list[str] = []  # allocas: all in the entry block, so that a call uses a fixed amount of stack
        self.globals: dict[str, str] = {}  # text of a constant -> its name
        self.declared: dict[str, str] = {}
        self.links: dict[str, int] = {}
        self.functions: dict[
            str, tuple[list[str], str]
        ] = {}  # others that this one calls: symbols that they take, text
        self.count = 0

    def beside(self) -> "LlvmFunctionText":
        """The body of another function of the same module."""
        made = LlvmFunctionText()
        made.globals, made.declared, made.links, made.functions = (
            self.globals,
            self.declared,
            self.links,
            self.functions,
        )
        return made

    def fresh(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def value(self, text: str, hint: str = "v") -> str:
        name = f"%{self.fresh(hint)}"
        self.line(f"{name} = {text}")
        return name

    def block(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def place(self, type_: str, hint: str = "at", align: int = 8) -> str:
        """A place on the stack, uninitialised, at a multiple of `align` bytes."""
        name = f"%{self.fresh(hint)}"
        self.places.append(f"  {name} = alloca {type_}, align {align}")
        return name

    def constant(self, text: str) -> str:
        """The address of a read-only `text`, "[2 x i64] [i64 1, i64 2]"; equal ones are one."""
        return self.globals.setdefault(text, f"@constant{len(self.globals)}")

    def letters(self, text: str) -> str:
        return self.constant(f'[{len(text)} x i8] c"{text}"') if text else "null"

    def string(self, text: str) -> str:
        """The address of a C string."""
        return self.constant(f'[{len(text) + 1} x i8] c"{text}\\00"')

    def call(self, name: str, signature: str, *args: str) -> str:
        """The value of a call of a function that the process has by `name`; its signature is "i32 (ptr, i64)"."""
        return self.value(self.call_text(name, signature, *args))

    def call_text(self, name: str, signature: str, *args: str) -> str:
        self.declared[name] = signature
        return call_text(f"@{name}", signature, args)

    def call_link(self, name: str, signature: str, *args: str) -> str:
        """The value ("" for void) of a call of a function that the loader links by `name`."""
        text = call_text(self.link(name), signature, args)
        if signature.startswith("void "):
            self.line(text)
            return ""
        return self.value(text)

    def link(self, name: str) -> str:
        """The address that the loader links by `name`."""
        index = self.links.setdefault(name, len(self.links))
        return self.value(f"load ptr, ptr getelementptr (ptr, ptr @links, i64 {index})", "link")

    def module(self, signature: str) -> str:
        """The module's text: this function, with `signature` ("ptr @graph(ptr %self)") and what it needs."""
        declarations = [
            f"declare {s.partition(' ')[0]} @{name}{s.partition(' ')[2]}" for name, s in self.declared.items()
        ]
        constants = [f"{name} = private unnamed_addr constant {text}" for text, name in self.globals.items()]
        others = [text for _, text in self.functions.values()]
        links = [f"@links = global [{max(len(self.links), 1)} x ptr] zeroinitializer"]
        return "\n".join([*declarations, *links, *constants, *others, self.function(signature), ""])

    def function(self, signature: str) -> str:
        """This function alone."""
        return "\n".join([f"define {signature} {{", "entry:", *self.places, *self.lines, "}"])


def call_text(function: str, signature: str, args: Sequence[str]) -> str:
    result, _, types = signature.partition(" ")
    given = zip([t for t in types.strip("()").split(", ") if t], args, strict=True)
    return f"call {result} {function}({', '.join(f'{t} {x}' for t, x in given)})"


class SizeText:
    """Size expressions as i64 values in a function's text; each is written once."""

    def __init__(self, text: LlvmFunctionText):
        self.text = text
        self.bound: dict[str, str] = {}  # symbol -> value
        self.known: dict[Any, str] = {}  # an expression, or a tuple of them, -> its value

    def of(self, expr: Int) -> str:
        """The value of `expr`. Raises ValueError for a symbol that nothing binds."""
        if isinstance(expr, int):
            return str(expr)
        if expr not in self.known:
            self.known[expr] = symbols.emit(expr, self)
        return self.known[expr]

    def array(self, exprs: Iterable[Int]) -> str:
        """The address of an array of i64."""
        exprs = tuple(exprs)
        if not exprs:
            return "null"
        if all(isinstance(x, int) for x in exprs):
            return self.text.constant(f"[{len(exprs)} x i64] [{', '.join(f'i64 {x}' for x in exprs)}]")
        if exprs not in self.known:
            values = [self.of(x) for x in exprs]
            self.known[exprs] = self.text.place(f"[{len(exprs)} x i64]", "sizes")
            for k, x in enumerate(values):
                at = self.text.value(f"getelementptr i64, ptr {self.known[exprs]}, i64 {k}", "at")
                self.text.line(f"store i64 {x}, ptr {at}")
        return self.known[exprs]

    # ---- symbols.IndexEmitter

    def constant(self, value: int) -> str:
        return str(value)

    def symbol(self, name: str) -> str:
        if name not in self.bound:
            raise ValueError(f"no argument of the graph gives the size {name}")
        return self.bound[name]

    def add(self, a: str, b: str) -> str:
        return self.text.value(f"add i64 {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        return self.text.value(f"mul i64 {a}, {b}")

    def floordiv(self, a: str, b: str) -> str:
        quotient = self.text.value(f"sdiv i64 {a}, {b}")  # rounds to zero; b > 0
        negative = self.text.value(f"icmp slt i64 {self.text.value(f'srem i64 {a}, {b}')}, 0")
        return self.text.value(f"sub i64 {quotient}, {self.text.value(f'zext i1 {negative} to i64')}")

    def mod(self, a: str, b: str) -> str:
        rest = self.text.value(f"srem i64 {a}, {b}")
        negative = self.text.value(f"icmp slt i64 {rest}, 0")
        return self.text.value(f"select i1 {negative}, i64 {self.text.value(f'add i64 {rest}, {b}')}, i64 {rest}")

    def max(self, a: str, b: str) -> str:
        return self.text.value(f"select i1 {self.text.value(f'icmp sgt i64 {a}, {b}')}, i64 {a}, i64 {b}")

    def min(self, a: str, b: str) -> str:
        return self.text.value(f"select i1 {self.text.value(f'icmp slt i64 {a}, {b}')}, i64 {a}, i64 {b}")
