"""The table of ONNX operators: one function each, and what it is told of its node.

    @op("Gelu")
    def gelu(node, x):
        return F.gelu(x, approximate=node.get("approximate", "none"))

An operand is a tensor, or None where the node leaves it out. `raw=True`: numbers that are known while the graph is traced are given
as `Known`. A result is one value, or a tuple of as many as the operator can give.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import field
from functools import cache
from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.onnx_import.values import OnnxValueError, dtype_of


@dataclass(frozen=True)
class Operator:
    """One ONNX operator: `run(node, *operands)`."""

    run: Callable[..., Any]
    raw: bool = False


@dataclass
class OnnxNode:
    """A node's attributes, and what is known around it.

    opset    version of the domain that its operator is of
    results  element types of its results, where known
    given    element types of its operands, where known
    run      runs a graph that it has as an attribute: run(graph, operands by name) -> results
    """

    name: str
    op: str
    opset: int
    attributes: dict[str, Any]
    results: list[int | None] = field(default_factory=list)
    given: list[int | None] = field(default_factory=list)
    wanted: int = 1
    run: Callable[..., Any] | None = None

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def need(self, name: str) -> Any:
        if name not in self.attributes:
            raise OnnxValueError(f"it has no attribute '{name}'")
        return self.attributes[name]

    def dtype(self, default: int, name: str = "dtype") -> Any:
        return dtype_of(self.get(name, default) or default)


OPERATORS: dict[tuple[str, str], Operator] = {}
KNOWN: dict[str, Callable[..., Any]] = {}


def op(*names: str, raw: bool = False, domain: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function for operators of ONNX."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert (domain, name) not in OPERATORS, name
            OPERATORS[domain, name] = Operator(function, raw)
        return function

    return enter


def on_known(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function of numbers for operators all of whose operands are known while the graph is traced."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            KNOWN[name] = function
        return function

    return enter


@cache
def operators() -> dict[tuple[str, str], Operator]:
    """All operators: the files of ops/ are imported once."""
    from mlirc.frontend.onnx_import import ops

    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
    return OPERATORS
