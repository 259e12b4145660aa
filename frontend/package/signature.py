"""What a compiled model takes and gives: the checks of a call's arguments, and the trees around arguments and results.

    {"inputs": [{"name": "x", "tensor": ["float32", "s0, 8", "8, 1", "cpu"], "written": false},
                {"name": "n", "symbol": "s1"}, {"name": "causal", "value": true}],
     "ranges": {"s0": [2, null]}, "conditions": [["<=", "s1", "s0"]],
     "takes": "tree of (args, kwargs)", "gives": "tree", "names": ["x", "n", "causal"]}

A size is an expression of symbols (dialects/core/symbols.py). Trees are PyTorch's pytrees, as json.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from mlirc.codegen.abi.lazy_tensors import in_memory, is_lazy
from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.torch_compat.dynamo.trees import argument_trees, tree_from_text


class ArgumentError(TypeError, ValueError):
    """A call's arguments are not those that a model was compiled for: says which one, what it is, and what it has to be."""


@dataclass(frozen=True)
class TensorArgument:
    """A tensor: sizes and strides are expressions. `written`: whether the model changes it."""

    name: str
    dtype: torch.dtype
    shape: tuple[Int, ...]
    stride: tuple[Int, ...]
    device: str
    written: bool = False

    @cached_property
    def fixed(self) -> tuple[tuple[Int, ...], tuple[Int, ...]] | None:
        """Its sizes and strides, if no symbol is in them."""
        known = all(isinstance(n, int) for n in (*self.shape, *self.stride))
        return (self.shape, self.stride) if known else None

    def check_kind(self, x: Any) -> None:
        """Raises ArgumentError for another type, dtype, rank, device or layout."""
        if not isinstance(x, torch.Tensor) or type(x) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise ArgumentError(f"'{self.name}' is a {type(x).__name__}; the model was compiled for a tensor")
        if x.layout is not torch.strided or x.is_nested:
            layout = "nested" if x.is_nested else x.layout
            raise ArgumentError(f"'{self.name}' is {layout}; the model was compiled for a dense tensor")
        if x.dtype != self.dtype or x.dim() != len(self.shape) or str(x.device) != self.device:
            shape = ", ".join(map(str, self.shape))
            raise ArgumentError(
                f"'{self.name}' is {x.dtype} of {x.dim()} dimensions on {x.device}; the model was compiled for "
                f"{self.dtype} of [{shape}] on {self.device}"
            )

    def with_strides(self, x: torch.Tensor, values: Mapping[str, int]) -> torch.Tensor:
        """`x` with the strides that the model was compiled for; a copy where it has others. Raises ArgumentError where that
        would lose what the model writes to it."""
        if is_lazy(x) and not self.written:
            x = in_memory(x)
        if self.fixed is not None and x.stride() == self.stride and not is_lazy(x):
            return x
        stride = [symbols.evaluate(n, values) for n in self.stride]
        same = not x.numel() or all(n == 1 or a == b for n, a, b in zip(x.shape, x.stride(), stride, strict=True))
        if same and not is_lazy(x):
            return x
        if self.written:
            raise ArgumentError(
                f"'{self.name}' has strides {list(x.stride())}; the model writes to it, and was compiled for {stride}"
            )
        return torch.empty_strided(x.shape, stride, dtype=x.dtype, device=x.device).copy_(x.detach())


@dataclass(frozen=True)
class SizeArgument:
    """A Python int, as a symbol."""

    name: str
    symbol: str


@dataclass(frozen=True)
class FixedArgument:
    """A value that is part of the compiled code."""

    name: str
    value: Any

    def check(self, x: Any) -> None:
        same = type(x) is type(self.value) and (x == self.value or (x != x and self.value != self.value))
        if not same:
            raise ArgumentError(f"'{self.name}' is {x!r}; the model was compiled for {self.value!r} alone")


Argument = TensorArgument | SizeArgument | FixedArgument
Condition = list[Any]
"""["<=", "s0", "2*s1"], ["And", condition, condition], ["Not", condition]: text, and nothing that runs."""

RELATIONS: dict[str, tuple[str, Callable[[int, int], bool]]] = {
    "Equality": ("==", operator.eq),
    "Unequality": ("!=", operator.ne),
    "LessThan": ("<=", operator.le),
    "GreaterThan": (">=", operator.ge),
    "StrictLessThan": ("<", operator.lt),
    "StrictGreaterThan": (">", operator.gt),
}
COMPARE = dict(RELATIONS.values())
CONNECTIVES = ("And", "Or", "Not")


def holds(condition: Condition, values: Mapping[str, int]) -> bool:
    """Raises KeyError for a symbol without a value."""
    kind, *parts = condition
    if kind in COMPARE:
        left, right = (symbols.evaluate(symbols.parse(text), values) for text in parts)
        return COMPARE[kind](left, right)
    if kind == "Not":
        return not holds(parts[0], values)
    found = (holds(part, values) for part in parts)
    return all(found) if kind == "And" else any(found)


def told(condition: Condition) -> str:
    """A condition as people write it."""
    kind, *parts = condition
    if kind in COMPARE:
        return f"{parts[0]} {kind} {parts[1]}"
    if kind == "Not":
        return f"not ({told(parts[0])})"
    return f" {kind.lower()} ".join(f"({told(part)})" for part in parts)


@dataclass(frozen=True)
class Signature:
    """`arguments` in the order of the flat tree `takes` of (args, kwargs); `gives` is the tree of the result.

    ranges      the least and the largest value of each symbol, None for no limit
    conditions  what holds of symbols beside that
    names       of the arguments of the model's forward function that were given, in order
    """

    arguments: tuple[Argument, ...]
    ranges: dict[str, tuple[int | None, int | None]]
    conditions: list[Condition]
    takes: Any
    gives: Any
    names: tuple[str, ...] = ()

    def flat(self, args: tuple, kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves of a call's arguments. Raises ArgumentError where they make another tree."""
        positional = self.takes.child(0).num_children
        if len(args) < positional:  # those that are given by name
            missing = self.names[len(args) : positional]
            if len(missing) == positional - len(args) and all(name in kwargs for name in missing):
                args = (*args, *(kwargs[name] for name in missing))
                kwargs = {name: x for name, x in kwargs.items() if name not in missing}
        names = self.takes.child(1).context
        if set(names) == set(kwargs):
            kwargs = {name: kwargs[name] for name in names}
        leaves, tree = argument_trees().tree_flatten((args, dict(kwargs)))
        if tree != self.takes:
            raise ArgumentError(f"the arguments are {form(tree)}; the model was compiled for {form(self.takes)}")
        return leaves

    def checked(self, leaves: list[Any]) -> list[Any]:
        """The leaves as the model takes them. Raises ArgumentError."""
        values: dict[str, int] = {}
        for argument, x in zip(self.arguments, leaves, strict=True):
            if isinstance(argument, TensorArgument):
                argument.check_kind(x)
                self._bind(argument.name, argument.shape, x.shape, values)
            elif isinstance(argument, SizeArgument):
                if type(x) is not int:
                    raise ArgumentError(f"'{argument.name}' is {x!r}; the model was compiled for an int")
                self._bind(argument.name, (symbols.symbol(argument.symbol),), (x,), values)
            else:
                argument.check(x)
        for argument, x in zip(self.arguments, leaves, strict=True):
            if isinstance(argument, TensorArgument):
                self._check_sizes(argument, x.shape, values)
        for condition in self.conditions:
            if not holds(condition, values):
                known = ", ".join(f"{name} = {n}" for name, n in values.items() if name in told(condition))
                raise ArgumentError(f"the model was compiled for {told(condition)}, and {known}")
        return [
            argument.with_strides(x, values) if isinstance(argument, TensorArgument) else x
            for argument, x in zip(self.arguments, leaves, strict=True)
        ]

    def _bind(self, name: str, shape: Sequence[Int], found: Sequence[int], values: dict[str, int]) -> None:
        """Notes the symbols that are a size by themselves, or a multiple of one with a number added."""
        for size, n in zip(shape, found, strict=True):
            if isinstance(size, int):
                continue
            for symbol in symbols.free_symbols(size):
                if symbol not in values and (value := solved(size, symbol, n)) is not None:
                    low, high = self.ranges.get(symbol, (None, None))
                    if (low is not None and value < low) or (high is not None and value > high):
                        limits = (
                            f"at most {high}"
                            if low is None
                            else f"at least {low}"
                            if high is None
                            else f"{low} to {high}"
                        )
                        less = ""
                        if low == 2 and value in (0, 1):
                            less = ": torch.export.Dim('a name') instead of Dim.DYNAMIC takes less, where the graph is the same"
                        raise ArgumentError(
                            f"'{name}' has {size} = {n}; the model was compiled for {symbol} {limits}{less}"
                        )
                    values[symbol] = value

    def _check_sizes(self, argument: TensorArgument, found: Sequence[int], values: Mapping[str, int]) -> None:
        for dim, (size, n) in enumerate(zip(argument.shape, found, strict=True)):
            try:
                expected = size if isinstance(size, int) else symbols.evaluate(size, values)
            except KeyError:  # no integer gives this size
                expected = "an integer"
            if n != expected:
                meaning = "" if isinstance(size, int) else f"{size} = "
                raise ArgumentError(
                    f"'{argument.name}' has the size {n} in dimension {dim}; the model was compiled for {meaning}{expected}"
                )


def form(tree: Any) -> str:
    """A tree of (args, kwargs) as people write it: (_, [_, _], y=_)."""
    args, kwargs = argument_trees().tree_unflatten([_Leaf()] * tree.num_leaves, tree)
    return f"({', '.join([*map(repr, args), *(f'{name}={x!r}' for name, x in kwargs.items())])})"


class _Leaf:
    def __repr__(self) -> str:
        return "_"


def solved(size: Int, symbol: str, n: int) -> int | None:
    """The value of `symbol` for which `size` is n, where size is a*symbol + b; None for any other form, and for no integer."""
    if symbols.free_symbols(size) != {symbol}:
        return None
    at = [symbols.evaluate(size, {symbol: k}) for k in (0, 1, 2)]
    factor = at[1] - at[0]
    if size != symbols.symbol(symbol) * factor + at[0] or not factor:
        return None
    value, rest = divmod(n - at[0], factor)
    return None if rest else value


def symbols_told(arguments: Sequence[Argument]) -> set[str]:
    """Symbols whose values a call's arguments say."""
    found = {a.symbol for a in arguments if isinstance(a, SizeArgument)}
    for size in (n for a in arguments if isinstance(a, TensorArgument) for n in a.shape):
        names = symbols.free_symbols(size)
        for name in names if len(names) == 1 else ():
            if solved(size, name, symbols.evaluate(size, {name: 1})) == 1:
                found.add(name)
    return found


def symbols_used(arguments: Sequence[Argument]) -> set[str]:
    """Symbols in sizes and strides."""
    sizes = [n for a in arguments if isinstance(a, TensorArgument) for n in (*a.shape, *a.stride)]
    return set().union(*map(symbols.free_symbols, sizes))


def symbols_of(conditions: Sequence[Condition]) -> set[str]:
    """Symbols in conditions."""
    found: set[str] = set()
    for kind, *parts in conditions:
        if kind in COMPARE:
            found = found.union(*(symbols.free_symbols(symbols.parse(x)) for x in parts))
        else:
            found |= symbols_of(parts)
    return found


def to_data(signature: Signature) -> dict[str, Any]:
    """A signature as JSON data. Raises ValueError where a tree or a value has no text."""
    return {
        "inputs": [_argument_to_data(a) for a in signature.arguments],
        "ranges": {name: list(limits) for name, limits in signature.ranges.items()},
        "conditions": signature.conditions,
        "takes": _tree_to_text(signature.takes),
        "gives": _tree_to_text(signature.gives),
        "names": list(signature.names),
    }


def from_data(data: Mapping[str, Any]) -> Signature:
    return Signature(
        tuple(_argument_from_data(a) for a in data["inputs"]),
        {name: (low, high) for name, (low, high) in data["ranges"].items()},
        data["conditions"],
        tree_from_text(data["takes"]),
        tree_from_text(data["gives"]),
        tuple(data["names"]),
    )


def _tree_to_text(tree: Any) -> str:
    try:
        return argument_trees().treespec_dumps(tree)
    except NotImplementedError as error:
        raise ValueError(f"a type among arguments or results has no text: {error}") from error


def _argument_to_data(a: Argument) -> dict[str, Any]:
    if isinstance(a, TensorArgument):
        dtype = str(a.dtype).removeprefix("torch.")
        tensor = [dtype, symbols.print_list(a.shape), symbols.print_list(a.stride), a.device]
        return {"name": a.name, "tensor": tensor, "written": a.written}
    if isinstance(a, SizeArgument):
        return {"name": a.name, "symbol": a.symbol}
    if not (a.value is None or isinstance(a.value, bool | int | float | str)):
        raise ValueError(f"'{a.name}' is a {type(a.value).__name__}, which has no text")
    return {
        "name": a.name,
        "value": repr(a.value) if isinstance(a.value, float) else a.value,
        "float": isinstance(a.value, float),
    }


def _argument_from_data(data: Mapping[str, Any]) -> Argument:
    if "tensor" in data:
        dtype, shape, stride, device = data["tensor"]
        sizes = tuple(symbols.parse_list(shape)), tuple(symbols.parse_list(stride))
        kind = getattr(torch, dtype)
        if not isinstance(kind, torch.dtype):
            raise ValueError(f"{dtype} is no dtype")
        return TensorArgument(data["name"], kind, *sizes, device, data["written"])
    if "symbol" in data:
        return SizeArgument(data["name"], data["symbol"])
    return FixedArgument(data["name"], float(data["value"]) if data["float"] else data["value"])
