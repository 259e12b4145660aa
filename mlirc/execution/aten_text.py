"""Evaluates the text of an ATen graph that a capture keeps, 000_inference_aten.py, in its own dtypes or in float64.

The text is read as a syntax tree and is never executed as Python. It may call the operators that a module from a file may call
(lowering/files/aten_calls.py), take items of lists, and write numbers, lists and torch's constants. Anything else raises NoReference.
"""

import ast
import json
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mlirc.dialects.core import aten_arguments
from mlirc.dialects.interpreter.float64 import WIDER, widened
from mlirc.dialects.interpreter.gpu_operators import call, never_draws
from mlirc.lowering.files.aten_calls import refusal
from mlirc.lowering.module.counted import counted

MOST = 1 << 26  # bytes of a graph's text
OPERATOR = re.compile(r"torch\.ops\.((?:aten|prims)\.(?!__)\w+\.(?!__)\w+)")
LINE = re.compile(r"\s*# File: (.*?:\d+) in ")
HALVES = (torch.float16, torch.bfloat16, torch.complex32)
NUMBERS = {"inf": float("inf"), "nan": float("nan")}
CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)
ALLOWED = (  # by a graph beyond those of a module: they check what they are given
    "aten._unsafe_view.default",
    "aten._conj.default",
    "aten._neg_view.default",
    "aten.sym_size.int",
)
EMPTY = ("aten.empty", "aten.new_empty")
ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class NoReference(ValueError):
    """Why a graph cannot be evaluated, in one line."""


@dataclass(frozen=True)
class AtenNode:
    """`name = value`, and the user's line, "model.py:12"."""

    name: str
    value: ast.expr
    line: str


@dataclass
class AtenText:
    """A graph of ATen calls, read from its text.

    inputs   positions of the parameters that are arguments of the module; others are None or not read
    """

    parameters: list[str]
    nodes: list[AtenNode]
    returned: list[ast.expr]
    inputs: list[int]


def read_graph(path: Path) -> AtenText:
    """Raises NoReference, whatever is in the file."""
    try:
        if path.stat().st_size > MOST:
            raise NoReference(f"{path.name} is larger than {MOST} bytes")
        text = path.read_text()
        lines = text.splitlines()
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(
                re.sub(r"\Aclass \S+\(", "class Graph(", text)
            )  # FX writes `class <lambda>(torch.nn.Module)`
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        if isinstance(error, NoReference):
            raise
        raise NoReference(f"{path.name}: {' '.join(str(error).split())}") from error
    body = tree.body[0].body if len(tree.body) == 1 and isinstance(tree.body[0], ast.ClassDef) else []
    function = body[0] if len(body) == 1 else None
    if not isinstance(function, ast.FunctionDef) or function.name != "forward" or not function.body:
        raise NoReference(f"{path.name} is no class with a method `forward` alone")
    given = function.args
    if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs or given.defaults or not given.args:
        raise _refused(function, "it takes other than plain arguments")
    parameters = [x.arg for x in given.args[1:]]
    nodes, line, seen = [], "", 0
    for one in function.body[:-1]:
        for text in lines[seen : one.lineno]:
            match = LINE.match(text)
            line = match[1] if match else "" if "# No stacktrace found" in text else line
        seen = one.lineno
        nodes += [AtenNode(name, value, line) for name, value in _assigned(one)]
    last = function.body[-1]
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Tuple | ast.List):
        raise _refused(last, "the graph does not end with a tuple")
    return AtenText(parameters, nodes, last.value.elts, _inputs_of(path, len(parameters)))


def _assigned(one: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    match one:
        case ast.Assign(targets=targets, value=value):
            pass
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            targets = [target]
        case _:
            raise _refused(one, "it assigns no value to a name")
    for x in targets:
        if not isinstance(x, ast.Name):
            raise _refused(one, "it assigns no value to a name")
        yield x.id, value


def _inputs_of(path: Path, count: int) -> list[int]:
    """Which parameters are arguments, as the capture's record says; all where there is none."""
    try:
        record = path.with_name(f"{path.name.partition('_')[0]}.json")
        if not record.is_file() or record.stat().st_size > MOST:
            return list(range(count))
        inputs = json.loads(record.read_bytes())["inputs_of"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return list(range(count))
    if not isinstance(inputs, list) or not all(type(k) is int and 0 <= k < count for k in inputs):
        raise NoReference(f"the record of {path.name} names inputs that it does not have")
    return inputs


def _refused(part: Any, why: str) -> NoReference:
    try:
        text = " ".join(ast.unparse(part).split())
    except RecursionError:
        text = "..."
    return NoReference(f"line {part.lineno}, '{text if len(text) <= 80 else text[:77] + '...'}': {why}")


# ---- evaluation


@dataclass
class Evaluation:
    """The graph's values, in float64 where `own` says in which dtypes the operators that draw take their operands.

    drawn     by node, the dtypes of the operands of an operator that draws random numbers
    makers    name -> the number of the node that made its value
    rounds    whether a value is of a half type, of which numbers are rounded where eager does it
    """

    graph: AtenText
    own: "dict[int, list[torch.dtype]] | None" = None
    drawn: dict[int, list[torch.dtype]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    makers: dict[str, int] = field(default_factory=dict)
    constants: list[Any] = field(default_factory=list)
    rounds: bool = False
    number: int = 0

    def run(self, inputs: Sequence[Any], visit: "Callable[[Evaluation, AtenNode], None] | None" = None) -> list[Any]:
        """The values that are returned. `visit` sees each node before it is evaluated. Raises NoReference."""
        graph, count = self.graph, len(self.graph.inputs)
        if len(inputs) < count:
            raise NoReference(f"the graph takes {counted(count, 'argument')}, the module {len(inputs)}")
        self.values = dict.fromkeys(graph.parameters)
        self.values |= {graph.parameters[k]: x for k, x in zip(graph.inputs, inputs, strict=False)}
        self.constants = list(inputs[count:])
        self.rounds = any(x.dtype in HALVES for x in tensors_in(list(inputs)))
        for self.number, node in enumerate(graph.nodes):
            if isinstance(node.value, ast.Constant) and node.value.value is None:
                self.values.pop(node.name, None)  # FX frees it
                continue
            if visit is not None:
                visit(self, node)
            self.values[node.name] = self.value(node.value)
            self.made(node)
        if self.constants:
            raise NoReference("the module has constants that the graph does not read")
        found = {}
        for k, item in enumerate(graph.returned):
            value = self.value(item)
            if isinstance(item, ast.Name) and value is not None:
                found.setdefault(item.id, value)
            elif not isinstance(item, ast.Name | ast.Constant):
                raise _refused(item, f"result {k} is no name")
        return list(found.values())

    def made(self, node: AtenNode) -> None:
        source = node.value.value if isinstance(node.value, ast.Subscript) else None
        if isinstance(source, ast.Name):  # an item is made by what made the list
            self.makers[node.name] = self.makers.get(source.id, self.number)
        else:
            self.makers[node.name] = self.number

    def value(self, part: ast.expr) -> Any:
        match part:
            case ast.Constant(value=None | bool() | int() | float() | complex() | str()):
                return part.value
            case ast.Name(id=name) if name in self.values:
                return self.values[name]
            case ast.Name(id=name) if name in NUMBERS:
                return NUMBERS[name]
            case ast.List():
                return [self.value(x) for x in part.elts]
            case ast.Tuple():
                return tuple([self.value(x) for x in part.elts])
            case ast.UnaryOp(op=ast.USub()):
                return -self.numeral(part.operand)
            case ast.BinOp() if type(part.op) in ARITHMETIC:
                return self.arithmetic(part)
            case ast.Subscript():
                return self.item(part)
            case ast.Attribute(value=ast.Name(id="torch")):
                found = vars(torch).get(part.attr)
                if isinstance(found, CONSTANTS):
                    return found
            case ast.Attribute(value=ast.Name(id="self")) if self.constants:
                return self.constants.pop(0)
            case ast.Call():
                return self.call(part)
        raise _refused(part, "it is none of what a graph is evaluated by")

    def numeral(self, part: ast.expr) -> Any:
        found = self.value(part)
        if type(found) not in (int, float) or (type(found) is int and abs(found) >= 1 << 63):
            raise _refused(part, "it is no number of 64 bits")
        return found

    def arithmetic(self, part: ast.BinOp) -> Any:
        left, right = self.numeral(part.left), self.numeral(part.right)
        try:
            return ARITHMETIC[type(part.op)](left, right)
        except (ArithmeticError, TypeError) as error:
            raise _refused(part, str(error)) from error

    def item(self, part: ast.Subscript) -> Any:
        whole, index = self.value(part.value), self.value(part.slice)
        if not isinstance(whole, list | tuple) or type(index) is not int or not -len(whole) <= index < len(whole):
            raise _refused(part, "it is no item of a list")
        return whole[index]

    def call(self, part: ast.Call) -> Any:
        name = ast.unparse(part.func)
        if any(x.arg is None for x in part.keywords) or any(isinstance(x, ast.Starred) for x in part.args):
            raise _refused(part, "its arguments are unpacked")
        if name in ("device", "torch.device"):
            return torch.device("cpu")  # wherever the graph ran
        if name == "operator.getitem" and len(part.args) == 2 and not part.keywords:
            return self.item(ast.copy_location(ast.Subscript(part.args[0], part.args[1]), part))
        match = OPERATOR.fullmatch(name)
        if match is None:
            raise _refused(part, "it calls no operator of ATen or prims")
        called = _operator(part, match[1])
        args = [self.value(x) for x in part.args]
        kwargs = {str(x.arg): self.value(x.value) for x in part.keywords}
        for argument, x in zip(called._schema.arguments, part.args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(x, ast.Name):
                self.makers[x.id] = self.number
        try:
            found = self.called(called, args, kwargs)
        except Exception as error:  # whatever an operator says
            raise _refused(part, " ".join(f"{type(error).__name__}: {error}".split())[:200]) from error
        self.rounds |= any(x.dtype in HALVES for x in tensors_in(found))
        if match[1].startswith(EMPTY) and any(x.numel() for x in tensors_in(found)):
            raise _refused(part, "what is in its memory is not known")
        return found

    def called(self, called: Any, args: Any, kwargs: Any) -> Any:
        draws = torch.Tag.nondeterministic_seeded in called.tags and not never_draws(called, args, kwargs)
        if draws and self.own is None:
            self.drawn[self.number] = [x.dtype for x in tensors_in((args, list(kwargs.values())))]
        if self.own is None:
            return call(called, args, kwargs)
        if not draws:
            wide = lambda x: WIDER.get(x, x) if isinstance(x, torch.dtype) else x
            with _default_dtype(torch.float64):
                return call(called, _mapped(args, wide), {k: wide(x) for k, x in kwargs.items()})
        own = iter(self.own.get(self.number, ()))  # in another dtype it would draw other numbers
        narrow = lambda x: x.to(next(own)) if isinstance(x, torch.Tensor) else x
        found = call(called, _mapped(args, narrow), {k: _mapped(x, narrow) for k, x in kwargs.items()})
        return _mapped(found, widened)


def _operator(part: ast.Call, name: str) -> Any:
    try:
        found = aten_arguments.resolve(name)
    except ValueError as error:
        raise _refused(part, " ".join(str(error).split())) from error
    if not isinstance(found, torch._ops.OpOverload):
        raise _refused(part, f"{name} is no operator")
    why = "" if name in ALLOWED else refusal(name)
    if why:
        raise _refused(part, f"{name} {why}")
    return found


def _mapped(x: Any, change: Callable[[Any], Any]) -> Any:
    return type(x)([_mapped(y, change) for y in x]) if type(x) in (list, tuple) else change(x)


def tensors_in(x: Any) -> Iterator[torch.Tensor]:
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, list | tuple):
        for y in x:
            yield from tensors_in(y)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
