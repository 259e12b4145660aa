"""Operators without an op of ours, as `mlircx.aten`: called as eager calls them, inside the compiled graph."""

from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.dialects.core import aten_arguments, symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.interpreter.triton_kernels import triton_kernel
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer.sizes import size, tensor_info
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves

QUANTIZED = (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4)

RETURNS_FIRST = ("_c10d_functional.wait_tensor.default",)
"""Operators that return their first operand, though their schema does not say so."""


def operator_text(target: Callable) -> str:
    """ "aten.add.Tensor", "higher_order.cond", or the function's own name."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    raise UnsupportedGraph(f"{target} is no operator that PyTorch registers; mlirc cannot call it by name")


def has_effect(target: Callable) -> bool:
    """Whether a call must stay, in order: it mutates, draws random numbers, or is opaque."""
    if target is triton_kernel:
        return False  # it gives copies of what the kernel writes
    if not isinstance(target, torch._ops.OpOverload):
        return True
    return target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags or not target._schema.returns


def without_op(target: Callable, args: Sequence[Any]) -> str:
    """Why a call whose operator has no rule is left to PyTorch."""
    if not isinstance(target, torch._ops.HigherOrderOperator):
        return "no op of ours"
    bodies = [operators(x) for x in tree_leaves(list(args)) if isinstance(x, GraphModule)]
    if not bodies:
        return "no op of ours, and PyTorch's is Python"
    return (
        f"its {'body runs' if len(bodies) == 1 else 'bodies run'} in eager ({' and '.join(map(str, bodies))} operators)"
    )


def operators(body: GraphModule) -> int:
    """How many calls a graph that an operator takes has, and graphs within it have."""
    graphs = [module.graph for module in body.modules() if isinstance(module, GraphModule)]
    return sum(node.op == "call_function" and node.target is not getitem for graph in graphs for node in graph.nodes)


def result_aliases(target: Callable, count: int, operand_of_argument: Sequence[int]) -> list[int]:
    """For each result, the position of the operand that it may share memory with by the schema's annotations, or -1."""
    if not isinstance(target, torch._ops.OpOverload):
        return [-1] * count
    if str(target) in RETURNS_FIRST:
        return list(operand_of_argument[:1])
    positions = [-1] * count
    for k, result in enumerate(target._schema.returns[:count]):
        if result.alias_info is None:
            continue
        for position, argument in enumerate(target._schema.arguments):
            info = argument.alias_info
            if info and result.alias_info.before_set & info.before_set and position < len(operand_of_argument):
                positions[k] = operand_of_argument[position]
    if len(target._schema.returns) == 1 and count > 1:  # a list of tensors
        positions = positions[:1] * count
    return positions


def each_dimension(target: Callable, args: tuple) -> tuple:
    """A convolution's arguments with a number for each dimension of its images, where ATen takes [0] for all of them."""
    ops: dict[Callable, int] = {torch.ops.aten.convolution.default: 3, torch.ops.aten.convolution_backward.default: 4}
    first = ops.get(target)
    if first is None:
        return args
    count = info_of(args[0]).rank - 2
    lists = (first, first + 1, first + 2, first + 4)  # stride, padding, dilation, output_padding
    return tuple([list(x) * count if k in lists and len(x) == 1 else x for k, x in enumerate(args)])


def call_aten(
    target: Callable,
    args: tuple,
    kwargs: dict,
    promised: Any,
    objects: list[Any],
    effect: bool = False,
    kept: Sequence[ir.Value] = (),
    overridden: bool = False,
) -> Any:
    """The op that calls `target`; its results as one value, a tuple of values, or None. `effect`: it must stay. `kept`: whose memory must stay
    as it is until then. `overridden`: its kernel is not PyTorch's, and no pass may put anything in its place."""
    name = operator_text(target)
    for x in (*args, *kwargs.values()):
        if isinstance(x, torch.dtype) and x in QUANTIZED:
            raise UnsupportedGraph(f"{name} gives a tensor of {x}, which the dialect has no type for")
    operands: list[ir.Value] = []

    def operand_index(value: ir.Value) -> int:
        for k, known in enumerate(operands):
            if known == value:
                return k
        operands.append(value)
        return len(operands) - 1

    operand_of_argument = [operand_index(x) if isinstance(x, ir.Value) else -1 for x in args]
    text = aten_arguments.encode(args, kwargs, operand_index, objects)
    for value in kept:
        operand_index(value)
    many = isinstance(promised, (list, tuple))
    fakes = list(promised) if many else [promised] if promised is not None else []
    infos, numbers = [], []
    for fake in fakes:
        if fake is not None and not isinstance(fake, (torch.Tensor, TensorInfo, int, torch.SymInt)):
            raise UnsupportedGraph(
                f"{name} returns a {type(fake).__name__} that depends on data; such graphs run in eager"
            )
        infos.append(
            tensor_info(fake) if isinstance(fake, torch.Tensor) else fake if isinstance(fake, TensorInfo) else None
        )
        numbers.append(size(fake) if isinstance(fake, (int, torch.SymInt)) else None)  # flash attention's longest row
    present = [info for info in infos if info is not None]
    aliases = result_aliases(target, len(infos), operand_of_argument)
    attributes: dict[str, Any] = {
        "op": name,
        "args": text,
        "aliases": symbols.print_list(a for a, info in zip(aliases, infos, strict=True) if info is not None),
    }
    if len(present) < len(infos):
        attributes["present"] = symbols.print_list(k for k, info in enumerate(infos) if info is not None)
    if overridden:
        attributes["overridden"] = True
    kind = "aten_effect" if effect or has_effect(target) else "aten"
    op = create(kind, operands, list(map(type_of, present)), attributes)
    results = iter(op.operation.results)
    values = [next(results) if info else number for info, number in zip(infos, numbers, strict=True)]
    if promised is None:
        return None
    return tuple(values) if many else values[0]
