"""Sizes of 0 and 1, which torch.export traces as if they were larger: whether the graph is the same for them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from mlirc.frontend.torch_compat.dynamo.trees import argument_trees

aten = torch.ops.aten
COPIES = (aten.clone.default, aten.contiguous.default)  # not made of what is contiguous with a size of 1
SMALL = 2  # from here on torch.export traces one graph for all sizes


def check_small_sizes(
    program: ExportedProgram, args: tuple, kwargs: Mapping[str, Any], export: Callable[[tuple, dict], ExportedProgram]
) -> None:
    """Raises the lower limit of each size of the program to where its graph is right.

    A limit below 2 is what a Dim says. The model is traced for each such size alone, and where it fails or has other operators or results of other
    sizes, the limit is 2, or 1 where that holds for 0 alone: a squeeze takes a dimension of 1 away, and `if len(x) == 1` is another graph.
    """
    limits: Any = program.range_constraints
    hints = sizes_of_inputs(program)
    for symbol in hints:
        for n in (1, 0):
            low, high = limits[symbol].lower, limits[symbol].upper
            if low <= n <= high and not same(program, args, kwargs, export, {**hints, symbol: n}):
                limits[symbol] = type(limits[symbol])(min(n + 1, high), high)
                break


def sizes_of_inputs(program: ExportedProgram) -> dict[Any, int]:
    """The symbols that are a size of an input, and what each is in the example arguments."""
    shapes = [fake.shape for fake in inputs(program) if isinstance(fake, torch.Tensor)]
    nodes = [size.node for shape in shapes for size in shape if isinstance(size, torch.SymInt)]
    known = {node.expr: node.hint for node in nodes}
    return {symbol: known[symbol] for symbol in known if symbol in program.range_constraints}


def same(
    program: ExportedProgram,
    args: tuple,
    kwargs: Mapping[str, Any],
    export: Callable[[tuple, dict], ExportedProgram],
    values: Mapping[Any, int],
) -> bool:
    """Whether the model traced for these sizes alone has the program's graph."""
    leaves, tree = argument_trees().tree_flatten((args, dict(kwargs)))
    fakes = inputs(program)
    if len(fakes) != len(leaves):
        return False
    given = [small(x, fake, values) for x, fake in zip(leaves, fakes, strict=True)]
    try:
        alone = export(*argument_trees().tree_unflatten(given, tree))
    except Exception:  # eager fails, too, or torch.export cannot say
        return False
    return list(operators(program, values)) == list(operators(alone, {}))


def inputs(program: ExportedProgram) -> list[Any]:
    """What the graph has for each argument."""
    nodes = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    return [
        nodes.get(spec.arg.name) for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT
    ]


def small(x: Any, fake: Any, values: Mapping[Any, int]) -> Any:
    """An example of these sizes."""
    if not isinstance(x, torch.Tensor) or not isinstance(fake, torch.Tensor):
        return x
    sizes = known(fake.shape, values)
    return x if sizes == tuple(x.shape) else x.detach().new_zeros(sizes).requires_grad_(x.requires_grad)


def operators(program: ExportedProgram, values: Mapping[Any, int]) -> Iterator[tuple]:
    """Each operator on tensors, and the sizes of its results."""
    for node in program.graph.nodes:
        results = node.meta.get("val")
        shapes = [known(x.shape, values) for x in argument_trees().tree_leaves(results) if isinstance(x, torch.Tensor)]
        if node.op == "call_function" and shapes and node.target not in COPIES:
            yield node.target, shapes


def known(shape: Any, values: Mapping[Any, int]) -> tuple[Any, ...]:
    """The sizes; one that depends on data is its text."""
    found = [s.node.expr.xreplace(values) if isinstance(s, torch.SymInt) else s for s in shape]
    return tuple(int(s) if isinstance(s, int) or s.is_number else str(s) for s in found)
