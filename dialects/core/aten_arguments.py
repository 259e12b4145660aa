"""Converts arguments of an ATen call to text and back: the JSON in `AtenOp.args`.

    [{"$": 0}, 2.5, null, {"dtype": "float16"}, {"kwargs": {"size": [{"size": "2*s0"}, 4]}}]

A list of the positional arguments, and last, where there are any, the keyword arguments. Numbers, true, false, null,
strings and lists stand for themselves; everything else is an object of one key, whose name says what it is:

    "$"         operand i                       "size"      a size expression
    "float"     inf, -inf, nan                  "complex"   [real, imaginary]
    "dtype", "device", "layout", "memory_format": as text
    "tuple"     [...]                           "dict"      [[key, value], ...]
    "op"        a torch operator
    "object"    k: item k of a side table, for what has no text (a subgraph, a generator)
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Expr

if TYPE_CHECKING:  # reading arguments needs no MLIR
    from mlirc.dialects.core.bindings import ir


def encode(
    args: Sequence[Any], kwargs: Mapping[str, Any], operand_index: "Callable[[ir.Value], int]", objects: list[Any]
) -> str:
    """The text of a call's arguments. MLIR values in them become operands, which `operand_index` numbers; what has no
    text is appended to `objects`."""
    items = [_encode(x, operand_index, objects) for x in args]
    if kwargs:
        items.append({"kwargs": {key: _encode(x, operand_index, objects) for key, x in kwargs.items()}})
    return json.dumps(items, allow_nan=False)


def _encode(x: Any, operand_index: "Callable[[ir.Value], int]", objects: list[Any]) -> Any:
    from mlirc.dialects.core.bindings import ir

    if x is None or isinstance(x, bool | str) or type(x) is int:
        return x
    if type(x) is float:
        return x if math.isfinite(x) else {"float": repr(x)}
    if isinstance(x, ir.Value):
        return {"$": operand_index(x)}
    if isinstance(x, Expr):
        return {"size": str(x)}
    if type(x) in (list, torch.Size):
        return [_encode(y, operand_index, objects) for y in x]
    if type(x) is tuple:
        return {"tuple": [_encode(y, operand_index, objects) for y in x]}
    if type(x) is dict:
        return {"dict": [[_encode(y, operand_index, objects) for y in pair] for pair in x.items()]}
    if type(x) is complex:
        return {"complex": [_encode(x.real, operand_index, objects), _encode(x.imag, operand_index, objects)]}
    if isinstance(x, torch._ops.OpOverload):
        return {"op": str(x)}
    for kind, cls in _TORCH_CONSTANTS.items():
        if isinstance(x, cls):
            return {kind: str(x).removeprefix("torch.")}
    for k, known in enumerate(objects):
        if known is x:
            return {"object": k}
    objects.append(x)
    return {"object": len(objects) - 1}


def decode(
    text: str, operands: Sequence[Any], symbol_values: Mapping[str, int], objects: Sequence[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments and keyword arguments of the call. Raises ValueError for text that is not such an encoding."""
    return arguments(text, objects)(operands, lambda size: symbols.evaluate(symbols.parse(size), symbol_values))


Filled = tuple[tuple[Any, ...], dict[str, Any]]


def arguments(text: str, objects: Sequence[Any]) -> Callable[[Sequence[Any], Callable[[str], int]], Filled]:
    """Reads the text once: the function returned gives (args, kwargs) from operands and a way to evaluate sizes."""
    positional, keywords = parse(text)
    make_args = _tuple_of([_read(x, objects) for x in positional])
    make_kwargs = {key: _read(x, objects) for key, x in keywords.items()}
    if not make_kwargs:
        return lambda operands, size: (make_args(operands, size), {})
    return lambda operands, size: (
        make_args(operands, size),
        {key: make(operands, size) for key, make in make_kwargs.items()},
    )


def size_expressions(text: str) -> list[str]:
    """The size expressions in the text, each once, in order."""
    found: dict[str, None] = {}

    def visit(x: Any) -> None:
        if isinstance(x, dict) and "size" in x:
            found[x["size"]] = None
        for y in x.values() if isinstance(x, dict) else x if isinstance(x, list) else ():
            visit(y)

    for x in parse(text):
        for y in x.values() if isinstance(x, dict) else x:
            visit(y)
    return list(found)


@lru_cache(maxsize=4096)
def parse(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments as JSON, not to be changed. Raises ValueError for text that is no such list."""
    try:
        items = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the arguments of an ATen call must be JSON: {error}: {text}") from error
    if not isinstance(items, list):
        raise ValueError(f"the arguments of an ATen call must be a JSON list: {text}")
    if items and isinstance(items[-1], dict) and "kwargs" in items[-1]:
        return items[:-1], items[-1]["kwargs"]
    return items, {}


Make = Callable[[Sequence[Any], Callable[[str], int]], Any]


class _Constant:
    """A part of the arguments that no operand or size enters: the same object at each call."""

    def __init__(self, value: Any):
        self.value = value

    def __call__(self, operands: Sequence[Any], size: Callable[[str], int]) -> Any:
        return self.value


def _read(x: Any, objects: Sequence[Any]) -> Make:
    if isinstance(x, list):
        items = [_read(y, objects) for y in x]
        return lambda operands, size: [
            make(operands, size) for make in items
        ]  # a new list: the callee may keep or change it
    if not isinstance(x, dict):
        return _Constant(x)
    if len(x) != 1:
        raise ValueError(f"an argument of an ATen call has one key that says what it is, not {x}")
    kind, value = next(iter(x.items()))
    if kind == "$":
        return lambda operands, size: operands[value]
    if kind == "size":
        return lambda operands, size: size(value)
    if kind == "tuple":
        return _tuple_of([_read(y, objects) for y in value])
    if kind == "dict":
        pairs = [(_read(key, objects), _read(y, objects)) for key, y in value]
        return lambda operands, size: {key(operands, size): make(operands, size) for key, make in pairs}
    return _Constant(_constant(kind, value, objects))


def _tuple_of(items: list[Make]) -> Make:
    if all(isinstance(make, _Constant) for make in items):
        return _Constant(tuple(make.value for make in items))
    return lambda operands, size: tuple([make(operands, size) for make in items])


_TORCH_CONSTANTS = {
    "dtype": torch.dtype,
    "device": torch.device,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}


def _constant(kind: str, value: Any, objects: Sequence[Any]) -> Any:
    if kind == "float":
        return float(value)
    if kind == "complex":
        return complex(*(_read(part, objects)((), int) for part in value))
    if kind == "device":
        return torch.device(value)
    if kind == "op":
        return resolve(value)
    if kind == "object":
        if not 0 <= value < len(objects):
            raise ValueError(
                f"an ATen call needs object {value} of a table that has {len(objects)}: it has no text form"
            )
        return objects[value]
    found = getattr(torch, value, None) if kind in _TORCH_CONSTANTS else None
    if found is None or not isinstance(found, _TORCH_CONSTANTS[kind]):
        raise ValueError(f'an argument of an ATen call is {{"{kind}": {json.dumps(value)}}}, which stands for nothing')
    return found


def resolve(name: str) -> Callable[..., Any]:
    """The operator of an `mlircx.aten`: "aten.add.Tensor", "mylib.op.default", "higher_order.cond"."""
    found: Any = torch.ops
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ValueError(f"PyTorch has no operator '{name}': is the library that defines it imported?") from error
    if not isinstance(found, torch._ops.OpOverload | torch._ops.HigherOrderOperator):
        # nothing else that Python's attributes reach: torch.ops.load_library is one
        raise ValueError(f"'{name}' names no operator of PyTorch; it takes the form aten.add.Tensor")
    return found
