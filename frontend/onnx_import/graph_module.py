"""An ONNX graph as a module of PyTorch's: runs its nodes in order, so that torch.export sees the operators that they are.

Initializers are parameters. What depends on shapes and constants alone is computed with Python's numbers and symbols while the graph is
traced. Where an operator needs numbers (sizes, axes, scales), nothing else is left of it; where it takes a tensor, a change of a weight is seen.
"""

import inspect
import keyword
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.onnx_import import known_numbers  # noqa: F401  enters what is computed on numbers alone
from mlirc.frontend.onnx_import.function_bodies import expanded
from mlirc.frontend.onnx_import.number_operands import inputs_as_numbers
from mlirc.frontend.onnx_import.protos import attributes, constant_of, constant_tensor, few, label
from mlirc.frontend.onnx_import.registry import KNOWN, OnnxNode, operators
from mlirc.frontend.onnx_import.values import (
    DTYPES,
    WIDE_UNSIGNED,
    Known,
    OnnxValueError,
    Value,
    dtype_of,
    tensor,
)

OURS = ("", "ai.onnx")


class OnnxError(UnsupportedGraph):
    """A model that cannot be read, or an operator of it that cannot be compiled: names the node."""


class OnnxGraph(torch.nn.Module):
    """model(*inputs): what the graph gives for its inputs, in their order, as one tensor or a tuple.

    graph   an onnx.GraphProto
    opsets  version of each operator set
    types   element types of values, by name
    initializers  the weights by name
    functions     what the model brings along, by domain and name
    fixed         inputs whose numbers are part of the compiled code: they come as lists
    """

    def __init__(
        self,
        graph: Any,
        opsets: Mapping[str, int],
        types: Mapping[str, int],
        initializers: Mapping[str, torch.Tensor],
        functions: Mapping[tuple[str, str], Any],
    ):
        super().__init__()
        self.graph, self.opsets, self.types, self.functions = graph, opsets, dict(types), functions
        self.places: dict[str, str] = {}
        self.known: dict[str, Known] = {}
        constants = {node.output[0]: a.t for node in graph.node if (a := _plain_constant(node)) is not None}
        self.nodes = [node for node in graph.node if _plain_constant(node) is None]
        weights = {**initializers, **{name: constant_tensor(t) for name, t in constants.items()}}
        for k, (name, x) in enumerate(weights.items()):
            self._keep(k, name, x)
        self.inputs = [v.name for v in graph.input if v.name not in self.places]
        self.outputs = [v.name for v in graph.output]
        self.fixed = inputs_as_numbers(graph) & set(self.inputs)
        self.forward = _named(self.run, self.inputs)

    def _keep(self, k: int, name: str, x: torch.Tensor) -> None:
        """Enters a constant: a parameter or a buffer by its own name, and its numbers if they are few."""
        self.places[name] = place = attribute_name(name) if not hasattr(self, attribute_name(name)) else f"weight_{k}"
        if x.dtype.is_floating_point and x.dtype.itemsize > 1:
            self.register_parameter(place, torch.nn.Parameter(x, requires_grad=False))
        else:
            self.register_buffer(place, x)
        if few(x):
            self.known[name] = Known(x.numpy(), x.dtype)

    def run(self, *inputs: Any) -> Any:
        values: dict[str, Value] = {"": None}
        for name, place in self.places.items():
            x = getattr(self, place)
            values[name] = Known(self.known[name].array, x.dtype, x) if name in self.known else x
        for name, x in zip(self.inputs, inputs, strict=True):
            values[name] = Known(np.array(x, dtype=object), dtype_of(self.types[name])) if name in self.fixed else x
        self.run_nodes(self.nodes, values, self.opsets)
        results = tuple(tensor(_found(values, name)) for name in self.outputs)
        return results[0] if len(results) == 1 else results

    def run_graph(self, graph: Any, values: Mapping[str, Value], opsets: Mapping[str, int]) -> list[Value]:
        """The results of a graph that is an attribute of a node, which sees the values around it."""
        inner: dict[str, Value] = dict(values)
        for t in graph.initializer:
            inner[t.name] = constant_of(t)
        self.run_nodes(graph.node, inner, opsets)
        return [_found(inner, v.name) for v in graph.output]

    def run_nodes(self, nodes: Sequence[Any], values: dict[str, Value], opsets: Mapping[str, int]) -> None:
        for proto in nodes:
            try:
                self.run_node(proto, values, opsets)
            except OnnxError:
                raise
            except Exception as error:
                text = str(error).strip().split("\n")[0] or type(error).__name__
                raise OnnxError(f"{label(proto)}: {text}") from error

    def run_node(self, proto: Any, values: dict[str, Value], opsets: Mapping[str, int]) -> None:
        domain = "" if proto.domain in OURS else proto.domain
        operands = [_found(values, name) for name in proto.input]
        given = [self.types.get(name) for name in proto.input]
        operator = operators().get((domain, proto.op_type))
        if operator is None or (domain, proto.op_type) in self.functions:
            self._run_function(proto, domain, operands, values, opsets)
            return
        node = OnnxNode(proto.name, proto.op_type, opsets.get(domain, 1), attributes(proto))
        node.given, node.results = given, [self.types.get(name) for name in proto.output]
        node.wanted = max((k + 1 for k, name in enumerate(proto.output) if name), default=0)
        node.run = lambda graph, more: self.run_graph(graph, {**values, **more}, opsets)
        rule = KNOWN.get(proto.op_type) if not domain else None
        results: Any = NotImplemented
        if (rule is not None and all(x is None or isinstance(x, Known) for x in operands)) or (
            rule is not None and proto.op_type in ("Shape", "Size")
        ):
            results = rule(node, *operands)
            if (
                isinstance(results, Known)
                and proto.op_type not in ("Shape", "Size")
                and any(map(_of_weights, operands))
            ):
                results = results.of(lambda: tensor(_run(operator, node, operands)))
        if results is NotImplemented:
            results = _run(operator, node, operands)
        results = results if isinstance(results, tuple | list) else (results,)
        for name, x in zip(proto.output, results, strict=False):
            if name:
                values[name] = x
        for name in proto.output[len(results) :]:
            if name:
                raise OnnxValueError(f"its result '{name}' is not given")

    def _run_function(
        self, proto: Any, domain: str, operands: list[Value], values: Mapping[str, Value], opsets: Mapping[str, int]
    ) -> None:
        """A function of the model, or an operator whose meaning ONNX itself writes with others."""
        body = expanded(
            proto,
            domain,
            self.functions,
            opsets,
            [self._type(x, n) for x, n in zip(operands, proto.input, strict=True)],
        )
        if body is None:
            where = f" of the domain '{proto.domain}'" if domain else ""
            raise OnnxValueError(f"mlirc has no operator {proto.op_type}{where}")
        inner: dict[str, Value] = {
            "": None,
            **dict.fromkeys(body.inputs),
            **dict(zip(body.inputs, operands, strict=False)),
        }
        self.run_nodes(body.nodes, inner, body.opsets)
        for name, result in zip(proto.output, body.outputs, strict=False):
            if name:
                values[name] = _found(inner, result)  # type: ignore[index]

    def _type(self, x: Value, name: str) -> tuple[int, list[Any]] | None:
        if x is None:
            return None
        dtype, shape = (x.dtype, list(x.array.shape)) if isinstance(x, Known) else (x.dtype, list(x.shape))
        return self.types.get(name) or _elem_type(dtype), shape


def _of_weights(x: Value) -> bool:
    return isinstance(x, Known) and x.of_weights


def _run(operator: Any, node: OnnxNode, operands: Sequence[Value]) -> Any:
    """The operator on tensors. PyTorch has no arithmetic of wide unsigned integers: 64 bits do it, and are cut."""
    if operator.raw:
        return operator.run(node, *operands)
    xs = [None if x is None else tensor(x) for x in operands]
    unsigned = [x.dtype for x in xs if x is not None and x.dtype in WIDE_UNSIGNED]
    if not unsigned or node.op in TAKE_UNSIGNED:
        return operator.run(node, *xs)
    if torch.uint64 in unsigned and node.op in NEED_64_BITS:
        raise OnnxValueError("PyTorch has no such operator on uint64")
    flip = -(2**63) if torch.uint64 in unsigned and node.op in OF_ORDER else 0  # keeps the order of 64 bits
    wide = [x.to(torch.int64) ^ flip if x is not None and x.dtype in WIDE_UNSIGNED else x for x in xs]
    found = operator.run(node, *wide)
    several = found if isinstance(found, tuple | list) else (found,)
    elements = [*node.results, *[None] * len(several)]
    cut = tuple(
        (x ^ flip).to(unsigned[0])
        if isinstance(x, torch.Tensor) and x.dtype is torch.int64 and (e is None or dtype_of(e) in WIDE_UNSIGNED)
        else x
        for x, e in zip(several, elements, strict=False)
    )
    return cut if isinstance(found, tuple | list) else cut[0]


TAKE_UNSIGNED = {"Cast", "CastLike", "BitCast", "Identity", "QuantizeLinear", "DequantizeLinear"}
NEED_64_BITS = {"Div", "Mod", "BitShift", "Pow", "ReduceMean", "Mean"}
OF_ORDER = {"Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Max", "Min", "Clip", "Equal"} | {
    "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"
}  # fmt: skip


def _named(run: Any, names: Sequence[str]) -> Any:
    """The function with one parameter an input, by which torch.export names arguments."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    unique = dict.fromkeys(attribute_name(name) for name in names)
    chosen = list(unique) if len(unique) == len(names) else [f"input_{k}" for k in range(len(names))]
    forward.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in chosen])  # type: ignore[attr-defined]
    return forward


def _plain_constant(node: Any) -> Any:
    """The attribute of a node that is a dense constant, which is kept as weights are. None for another node."""
    known = node.op_type == "Constant" and node.domain in OURS and len(node.attribute) == 1
    return (
        node.attribute[0]
        if known and node.attribute[0].HasField("t") and node.attribute[0].t.data_type in DTYPES
        else None
    )


def _found(values: Mapping[str, Value], name: str) -> Value:
    if name not in values:
        raise OnnxValueError(f"no node before it gives '{name}'")
    return values[name]


def attribute_name(name: str) -> str:
    """A name that a module's attribute can have."""
    found = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return found if found.isidentifier() and not keyword.iskeyword(found) else f"x{found}"


def _elem_type(dtype: torch.dtype) -> int:
    return next(k for k, known in DTYPES.items() if known is dtype)
