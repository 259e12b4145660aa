"""PyTorch's symbolic sizes (SymInt, sympy) as size expressions of the dialect."""

import hashlib
import operator
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import sympy
import torch
from sympy.core.function import Application as Function

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import NEGATIVE, Int
from mlirc.dialects.core.tensor_info import DTYPE_TEXT, TensorInfo
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer.size_equalities import facts_of, inequalities, simplest
from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import FloorDiv, Max, Min, Mod, PythonMod, ShapeEnv
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves

SHORT = 1024
"""What a fraction's numerator and denominator are below, so that a float holds it times any size."""

LARGEST = 2**47
"""Bytes of a tensor that a processor could address, and that verifiers accept."""

NO_MEMORY = "a tensor is larger than any memory"
"""Why a graph runs in eager that raises there."""

WHOLE = ("LShift", "RShift")
"""Functions that sympy does not know to be integers, beside those of bits."""

ROUNDINGS = ("CeilToInt", "FloorToInt", "TruncToInt")
QUOTIENTS = ("FloorDiv", "CleanDiv", "Mod", "PythonMod", "ModularIndexing", "CeilDiv")
COMPUTED: dict[str, Any] = {}
"""Symbols whose numbers Python computes before the call: name -> PyTorch's expression."""

OF_DATA: dict[str, Any] = {}
"""Symbols whose numbers depend on data, which Python computes between two subgraphs (data_sizes/): name -> PyTorch's expression."""

_converted: dict[sympy.Expr, Int] = {}


def size(value: Any) -> Int:
    """An int or SymInt as a size expression. Raises UnsupportedGraph for a function that sizes never need."""
    if isinstance(value, int):
        return value
    if isinstance(value, torch.SymInt):
        known = value.node.maybe_as_int()
        if known is not None:
            return known
        return _of_sympy(value.node.expr, value.node.shape_env)
    raise TypeError(f"{value!r} is no size")


def _of_sympy(expr: Any, environment: ShapeEnv) -> Int:
    """PyTorch's expression as one of the dialect. The result is kept until the environment learns something new about sizes."""
    sizes = facts_of(environment).sizes
    if expr not in sizes:
        sizes[expr] = expression(named(simplest(expr, environment), environment))
    return sizes[expr]


def named(expr: Any, environment: ShapeEnv) -> Any:
    """`expr` with its symbols as the dialect has them, whose first letters say whether they may be negative (symbols.py).

                                                                PyTorch's       the dialect's
        a size, and an int that a guard says is 0 or more       s0              s0
        an int that a guard says is below 0                     s0              uns0
        any other int                                           s0              us0
        a number that depends on data                           u0              u0; su0 where it is known to be 0 or more
        a number that no size expression gives                  Abs(s0 - 3)     sx21ab.. (computed_numbers.py)

    The sympy symbols carry no such assumption: sympy would simplify a runtime check of u0 >= 0 to true, before any data is there.
    """
    other = {s: _name(s.name, environment.var_to_range.get(s)) for s in expr.free_symbols}
    names = {s: sympy.Symbol(name, integer=True) for s, name in other.items() if name != s.name}
    if not expr.has(Function):
        return expr.xreplace(names)
    written = _written(expr, environment, names)
    return computed(expr, environment) if written is None else written


def _name(name: str, known: Any) -> str:
    if not name.startswith(("s", "u")):
        return name
    if known is not None and known.upper < 0:
        return NEGATIVE + name
    letter = "s" if known is not None and known.lower >= 0 else "u"
    return name if name.startswith(letter) else letter + name


def _written(expr: Any, environment: ShapeEnv, names: dict[Any, Any]) -> Any:
    """`expr` as a size expression of the dialect, with symbols for the integers in it that have none; None where it has none itself."""
    if expr.is_Symbol:
        return None if expr.name.startswith("z") else names.get(expr, expr)
    if not expr.args:
        return expr if expr.is_Integer or expr in (sympy.true, sympy.false) else None
    if type(expr).__name__ in ROUNDINGS:
        plain = expr.xreplace(names)
        return plain if expr.args[0].is_integer or _scaled(plain.args[0]) is not None else None
    if not _has_expression(expr, environment):
        return None
    parts = []
    for part in expr.args:
        written = _written(part, environment, names)
        if written is None and not _is_integer(part):
            return None
        parts.append(computed(part, environment) if written is None else written)
    return expr if parts == list(expr.args) else expr.func(*parts)


def _is_integer(expr: Any) -> bool:
    name = type(expr).__name__
    return bool(expr.is_integer) or name in WHOLE or name.startswith("BitwiseFn")


def _has_expression(expr: Any, environment: ShapeEnv) -> bool:
    if expr.is_Pow:
        return expr.args[1].is_Integer and int(expr.args[1]) >= 0
    name = type(expr).__name__
    if name in QUOTIENTS:
        divisor = expr.args[-1]
        if divisor.is_Integer:
            return divisor != 0
        if any(s.name.startswith("u") for s in divisor.free_symbols):
            return True
        return environment.bound_sympy(divisor).lower >= 1  # else Python says what comes of it, an error for 0
    return expr.is_Add or expr.is_Mul or expr.is_Boolean or expr.is_Relational or name in ("Max", "Min", "Identity")


def computed(expr: Any, environment: ShapeEnv) -> Any:
    """The symbol for an integer that Python computes: before the graph runs, or where only data says it, between subgraphs."""
    of_data = any(map(is_of_data, expr.free_symbols))
    letter = "u" if of_data or environment.bound_sympy(expr).lower < 0 else "s"
    name = f"{letter}x{hashlib.sha1(str(expr).encode()).hexdigest()[:12]}"
    (OF_DATA if of_data else COMPUTED)[name] = expr
    return sympy.Symbol(name, integer=True)


def is_of_data(symbol: Any) -> bool:
    """Whether one of PyTorch's symbols is a number that only data says: an integer (u0) or a float (zuf0)."""
    return symbol.name.startswith(("u", "zu"))


def depends_on_data(gm: torch.fx.GraphModule) -> bool:
    """Whether a size or an integer in the graph is one that only data says. Raises UnsupportedGraph for one of no number."""
    values = [s for node in gm.graph.nodes if not is_ragged_size(node) for s in scalars(node.meta.get("val"))]
    if any(s.node.is_nested_int() for s in values):
        raise UnsupportedGraph("a size of a jagged nested tensor is no integer")
    return any(is_of_data(symbol) for s in values for symbol in s.node.expr.free_symbols)


def is_ragged_size(node: torch.fx.Node) -> bool:
    """Whether a placeholder is a size of jagged nested tensors, which stands for their offsets and is no number, and nothing reads it."""
    value = node.meta.get("val")
    return (
        node.op == "placeholder" and isinstance(value, torch.SymInt) and value.node.is_nested_int() and not node.users
    )


def scalars(value: Any) -> Iterator[Any]:
    """The symbolic integers and truths in what a node stands for."""
    for leaf in (value,) if isinstance(value, torch.Tensor) else tree_leaves(value):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
            yield from (s for s in (*leaf.shape, *leaf.stride()) if isinstance(s, torch.SymInt))
        elif isinstance(leaf, (torch.SymInt, torch.SymBool)):
            yield leaf


def expression(expr: sympy.Expr) -> Int:
    if expr not in _converted:
        _converted[expr] = _convert(expr)
    return _converted[expr]


def _convert(expr: Any) -> Int:
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        if not expr.name.startswith(("s", "u")):
            raise UnsupportedGraph(f"a size is computed from {expr.name}, a float of the data")
        return symbols.symbol(expr.name)
    if expr.is_Add or expr.is_Mul:
        total: Int = 0 if expr.is_Add else 1
        for argument in expr.args:
            part = expression(argument)
            total = total + part if expr.is_Add else total * part
        return total
    if expr.is_Pow and expr.args[1].is_Integer and int(expr.args[1]) >= 0:
        return symbols.product([expression(expr.args[0])] * int(expr.args[1]))
    name = type(expr).__name__
    if name in ("FloorDiv", "CleanDiv"):
        return symbols.floordiv(expression(expr.args[0]), expression(expr.args[1]))
    if name in ("Mod", "PythonMod"):
        return symbols.mod(expression(expr.args[0]), expression(expr.args[1]))
    if name == "ModularIndexing":
        base, divisor, modulus = map(expression, expr.args)
        return symbols.mod(symbols.floordiv(base, divisor), modulus)
    if name == "CeilDiv":
        a, b = map(expression, expr.args)
        return symbols.floordiv(a + b - 1, b)
    if name in ("Max", "Min"):
        fold = symbols.maximum if name == "Max" else symbols.minimum
        parts = [expression(argument) for argument in expr.args]
        result = parts[0]
        for part in parts[1:]:
            result = fold(result, part)
        return result
    if name in ("Identity", *ROUNDINGS) and expr.args[0].is_integer:
        return expression(expr.args[0])
    scaled = _scaled(expr.args[0]) if name in ROUNDINGS else None
    if scaled is not None:
        value, over = scaled
        return symbols.floordiv(value + over - 1 if name == "CeilToInt" else value, over)
    raise UnsupportedGraph(f"the size {expr} uses {name}, which size expressions do not have (+ - * // % max min)")


def _scaled(expr: Any) -> tuple[Int, int] | None:
    """(value, over) where a product of floats is value/over, exactly and not negative: 1.5*ToFloat(s0) is 3*s0 over 2."""
    factor: Any = sympy.Rational(1)
    value: Int | None = None
    parts: Any = sympy.Mul.make_args(expr)
    for part in parts:
        if part.is_Float or part.is_Rational:
            factor *= sympy.Rational(float(part))
        elif type(part).__name__ == "ToFloat" and value is None:
            value = expression(part.args[0])
        else:
            return None
    short = 0 < factor.p < SHORT and factor.q < SHORT  # so that a float holds the product of it and any size
    if value is None or not short or not symbols.known_nonnegative(value):
        return None
    return value * factor.p, factor.q


SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def is_sparse(x: Any) -> bool:
    """Whether it is a tensor of a few elements and their indices, which operators of ATen's alone read and make."""
    return isinstance(x, torch.Tensor) and x.layout in SPARSE


def tensor_info(fake: torch.Tensor) -> TensorInfo:
    """dtype, sizes, strides, device, layout of a fake tensor. Raises UnsupportedGraph for what has too much memory, or memory of another kind."""
    if fake.dtype not in DTYPE_TEXT:
        raise UnsupportedGraph(f"a tensor has dtype {fake.dtype}, which the dialect has no type for")
    shape = tuple(map(size, fake.shape))
    if is_sparse(fake):
        return TensorInfo(fake.dtype, shape, device=str(fake.device), layout=str(fake.layout).removeprefix("torch."))
    if fake.layout is not torch.strided:
        raise UnsupportedGraph(f"a tensor has layout {fake.layout}, which no graph takes")
    stride = tuple(map(size, fake.stride()))
    info = _one_info(fake.dtype, shape, stride, fake.device)
    bytes_ = info.extent * fake.dtype.itemsize
    if isinstance(bytes_, int) and bytes_ >= LARGEST:
        raise UnsupportedGraph(f"{NO_MEMORY}: {list(shape)} of {fake.dtype}")
    return info


@lru_cache(maxsize=4096)
def _one_info(dtype: torch.dtype, shape: tuple[Int, ...], stride: tuple[Int, ...], device: torch.device) -> TensorInfo:
    """A TensorInfo, the same object for equal arguments: most tensors of a graph are alike, and the object keeps its derived properties."""
    return TensorInfo(dtype, shape, stride, str(device))


def guarded(value: Int, environment: ShapeEnv) -> Int:
    """A size that an op has computed from others, with what the guards say of it, as in sizes that PyTorch promises."""
    return _of_sympy(symbols.emit(value, _Sympy(environment)), environment)


def guarantees(environment: ShapeEnv | None, known: Iterable[str]) -> list[Int]:
    """Expressions that PyTorch's guards make 0 or more in every call, and that no name of a symbol says: those that tie symbols to `known`
    ones. A symbol that is not among these may stand between two that are."""
    if environment is None:
        return []
    from mlirc.lowering.verify.assignments import related  # which loads the dialect: a warm start does not

    found: dict[Int, None] = {}
    for expr in inequalities(environment):
        try:
            found[expression(named(expr, environment))] = None
        except UnsupportedGraph:  # of a function that sizes never need: then nothing is said of it
            continue
    names = related(known, found)
    return [n for n in found if symbols.free_symbols(n) & names and not symbols.known_nonnegative(n)]


class _Sympy:
    """Writes size expressions as PyTorch's: see symbols.IndexEmitter."""

    add, mul = staticmethod(operator.add), staticmethod(operator.mul)
    floordiv, max, min = FloorDiv, Max, Min

    def __init__(self, environment: ShapeEnv):
        self.symbols = {s.name: s for s in environment.var_to_range}

    def mod(self, a: Any, b: Any) -> Any:
        """a mod b as PyTorch writes it."""
        return Mod(a, b) if a.is_nonnegative and b.is_nonnegative else PythonMod(a, b)

    def constant(self, value: int) -> sympy.Integer:
        return sympy.Integer(value)

    def symbol(self, name: str) -> sympy.Symbol:
        known = self.symbols.get(name)
        if known is None:
            known = COMPUTED.get(name, OF_DATA.get(name))
        if known is None:  # see `named`
            known = self.symbols[name.removeprefix(NEGATIVE) if name.startswith(NEGATIVE) else name[1:]]
        return known


def environment_of(gm: torch.fx.GraphModule) -> ShapeEnv | None:
    """The ShapeEnv that holds a graph's guards; None where all its sizes are numbers."""
    values = (s for node in gm.graph.nodes for s in scalars(node.meta.get("val")))
    return next((s.node.shape_env for s in values), None)


def absent_symbols(gm: torch.fx.GraphModule) -> frozenset[Any]:
    """PyTorch's symbols of which sizes of the graph could be made by its guards, and which are in none of its inputs."""
    environment = environment_of(gm)
    if environment is None or not (found := facts_of(environment).symbols):
        return frozenset()
    inputs = (s for node in gm.graph.find_nodes(op="placeholder") for s in scalars(node.meta.get("val")))
    return found.difference(*(s.node.expr.free_symbols for s in inputs))


def size_hints(gm: torch.fx.GraphModule) -> dict[str, int]:
    """What each size symbol of the graph's inputs was when it was traced."""
    found: dict[str, int] = {}
    for node in gm.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        for n in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(n, torch.SymInt) and n.node.hint is not None and str(size(n)).isidentifier():
                found[str(size(n))] = int(n.node.hint)
    return found


def storage_offset(fake: torch.Tensor) -> Int:
    return size(fake.storage_offset())
