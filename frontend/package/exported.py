"""A model as a functional graph of ATen's, by torch.export: parameters, buffers and constants are arguments of it."""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, SymIntArgument, TensorArgument
from torch.fx import GraphModule, Node

from mlirc.codegen.abi.lazy_tensors import in_memory, is_lazy
from mlirc.frontend.capture.quantized_operators import quantized_operators
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback.input_starts import is_strided
from mlirc.frontend.importer.sizes import environment_of, expression, is_of_data, named, size
from mlirc.frontend.package import signature
from mlirc.frontend.package.exported_diagonals import with_diagonals
from mlirc.frontend.package.signature import (
    CONNECTIVES,
    RELATIONS,
    Argument,
    Condition,
    Signature,
    symbols_of,
    symbols_told,
    symbols_used,
)
from mlirc.frontend.package.small_sizes import SMALL, check_small_sizes
from mlirc.frontend.strides.traced import traced_as_eager
from mlirc.frontend.torch_compat.composite_operators import composite_operators
from mlirc.frontend.torch_compat.dynamo.trees import argument_trees
from mlirc.frontend.torch_compat.fake_tensors import storage_id
from mlirc.frontend.torch_compat.list_operators import list_operators
from mlirc.frontend.torch_compat.scripted_models import jit_export

aten = torch.ops.aten
STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
WRITTEN = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


@dataclasses.dataclass(frozen=True)
class Functional:
    """A graph, and what its placeholders are.

    state      name of a parameter, a buffer or a constant -> its position and tensor
    arguments  positions of what a call gives, in the order of `signature`
    parameters positions of those in `state` that the graph does not write to
    written    names of those that it writes to
    views      results that lie in an argument's memory: their positions and the placeholder's
    """

    gm: GraphModule
    signature: Signature
    state: dict[str, tuple[int, torch.Tensor]]
    arguments: list[int]
    parameters: list[int]
    written: list[str]
    views: list[tuple[int, int]]


def exported_program(
    model: Any, args: tuple, kwargs: Mapping[str, Any], dynamic_shapes: Any, training: bool = False
) -> ExportedProgram:
    """The model through torch.export: a module, a function, what torch.jit made, or an exported program as it is.

    training   whether gradients are wanted of it

    Raises TypeError for anything else, and what torch.export raises.
    """
    if isinstance(model, ExportedProgram):
        return _of_any_size(model)
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        if dynamic_shapes is not None:
            raise TypeError("a model of torch.jit takes no dynamic_shapes")
        if (convert := jit_export()) is None:
            raise UnsupportedGraph("this PyTorch has no converter of torch.jit's models")
        try:
            return convert(model, tuple(args), dict(kwargs))
        except Exception as error:
            raise UnsupportedGraph(f"PyTorch does not export this model of torch.jit: {error}") from error
    if not isinstance(model, torch.nn.Module):
        if not callable(model):
            raise TypeError(
                f"mlirc.compile takes a module, a function or an ExportedProgram, not a {type(model).__name__}"
            )
        model = _Called(model, len(args))
        if isinstance(dynamic_shapes, (tuple, list)) and not kwargs:
            dynamic_shapes = tuple(dynamic_shapes)
    args, named = distinct((tuple(args), dict(kwargs)), [*model.parameters(), *model.buffers()])

    def export(args: tuple, kwargs: dict[str, Any], dynamic_shapes: Any = None) -> ExportedProgram:
        with torch.set_grad_enabled(training):
            return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)

    program = export(args, named, dynamic_shapes)
    check_small_sizes(program, args, named, export)
    return program


def _of_any_size(program: ExportedProgram) -> ExportedProgram:
    """A program whose limits of sizes hold; the program itself where they are of no small size."""
    if program.example_inputs is None or all(limits.lower >= SMALL for limits in program.range_constraints.values()):
        return program
    module, (args, kwargs) = program.module(check_guards=False), program.example_inputs
    program = program.run_decompositions({})  # another one: this is the user's
    check_small_sizes(program, args, kwargs, lambda a, k: torch.export.export(module, a, k).run_decompositions({}))
    return program


def distinct(given: Any, known: Sequence[torch.Tensor]) -> Any:
    """The same arguments, each tensor an object of its own: torch.export takes two arguments that are one object for one value."""
    leaves, tree = argument_trees().tree_flatten(given)
    seen = {id(x) for x in known}
    for k, x in enumerate(leaves):
        if isinstance(x, torch.Tensor):
            if id(x) in seen:
                leaves[k] = x.detach().requires_grad_(x.requires_grad)
            seen.add(id(leaves[k]))
    return argument_trees().tree_unflatten(leaves, tree)


class _Called(torch.nn.Module):
    """A function as a module with its signature, by which torch.export names arguments."""

    def __init__(self, function: Any, positional: int):
        super().__init__()
        self.function = [function]  # a module in it would become a part of this one
        self.forward = _forward(function, positional)


def _forward(function: Any, positional: int) -> Any:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    try:
        told = inspect.signature(function)
    except ValueError:  # a function of C, which tells nobody
        kind = inspect.Parameter.POSITIONAL_ONLY
        told = inspect.Signature([inspect.Parameter(f"args_{k}", kind) for k in range(positional)])
    forward.__signature__ = told  # type: ignore[attr-defined]
    return forward


def functional(program: ExportedProgram) -> Functional:
    """The program's graph with its operators decomposed as for torch.compile, and its writes at its end."""
    program = with_diagonals(program)
    fakes = [node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")]
    parts = {**(composite_operators() or {}), **(list_operators() or {}), **quantized_operators()}
    with torch.no_grad():
        tensors = [x for x in fakes if isinstance(x, torch.Tensor)]
        program = traced_as_eager(tensors, partial(program.run_decompositions, parts))
    gm = program.graph_module
    drop_known_types(gm)
    placeholders = gm.graph.find_nodes(op="placeholder")
    return described(program, gm, _write_at_the_end(gm, program.graph_signature, placeholders))


def drop_known_types(gm: GraphModule) -> None:
    """Removes the checks of dtypes, devices and layouts that torch.export puts before each conversion: those of a graph's values are known."""
    for node in gm.graph.find_nodes(op="call_function", target=aten._assert_tensor_metadata.default):
        _, *sizes = node.args
        if all(x is None for x in sizes[:2]) and not node.kwargs.keys() & {"size", "stride"}:
            gm.graph.erase_node(node)
    gm.graph.eliminate_dead_code()


def described(
    program: ExportedProgram,
    gm: GraphModule,
    written: set[Node],
    beside: Mapping[str, torch.Tensor] | None = None,
    gives: Any = None,
) -> Functional:
    """A functional graph that takes what the program takes, and then the tensors `beside`, by name; it writes to `written`.

    gives   the tree of its results, where that is not the program's
    """
    told, beside = program.graph_signature, dict(beside or {})
    placeholders = gm.graph.find_nodes(op="placeholder")
    tensors = {**program.state_dict, **program.constants}
    state, parameters, changed, arguments, positions = {}, [], [], [], []

    def add(name: str, k: int, x: Any) -> None:
        state[name] = k, _plain(x, name)
        if placeholders[k] in written:
            changed.append(name)
        else:
            parameters.append(k)

    names = _argument_names(program)
    for k, (spec, node) in enumerate(zip(told.input_specs, placeholders, strict=False)):
        if spec.kind in STATE:
            assert spec.target is not None
            add(spec.target, k, tensors[spec.target])
        elif spec.kind is InputKind.USER_INPUT:
            positions.append(k)
            arguments.append(_argument(spec.arg, node, names[spec.arg.name], node in written))
        else:
            raise UnsupportedGraph(f"the exported program takes {spec.kind.name.lower()} '{spec.arg.name}'")
    for k, (name, x) in enumerate(beside.items(), len(told.input_specs)):
        add(name, k, x)
    if missing := symbols_used(arguments) - symbols_told(arguments):
        raise UnsupportedGraph(f"no argument says what {', '.join(sorted(missing))} is")
    found = program.call_spec
    assert found.in_spec is not None and found.out_spec is not None
    environment = environment_of(gm)
    ranges = {} if environment is None else _ranges(program, environment)
    conditions = _conditions(environment)
    if missing := symbols_of(conditions) - symbols_told(arguments):
        raise UnsupportedGraph(
            f"a call would have to hold to a condition on {', '.join(sorted(missing))}, which no argument says"
        )
    takes = Signature(
        tuple(arguments), ranges, conditions, found.in_spec, found.out_spec if gives is None else gives, _names(program)
    )
    return Functional(gm, takes, state, positions, parameters, changed, _views(gm, placeholders))


def _write_at_the_end(gm: GraphModule, told: Any, placeholders: Sequence[Node]) -> set[Node]:
    """Replaces results that are new values of placeholders by writes to those, which it gives."""
    output = gm.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    by_name = {node.name: node for node in placeholders}
    of_target = {s.target: by_name[s.arg.name] for s in told.input_specs if s.target is not None}
    kept, written = [], set()
    for spec, result in zip(told.output_specs, results, strict=True):
        if spec.kind in WRITTEN:
            target = by_name[spec.target] if spec.kind is OutputKind.USER_INPUT_MUTATION else of_target[spec.target]
            with gm.graph.inserting_before(output):
                copy = gm.graph.call_function(aten.copy_.default, (target, result))
            copy.meta["val"] = target.meta["val"]
            written.add(target)
        elif spec.kind is OutputKind.USER_OUTPUT:
            kept.append(result)
        else:
            raise UnsupportedGraph(f"the exported program gives {spec.kind.name.lower()}")
    output.args = (tuple(kept),)
    gm.recompile()
    return written


def _views(gm: GraphModule, placeholders: Sequence[Node]) -> list[tuple[int, int]]:
    """Results that lie in the memory of a placeholder, and are not that itself."""
    places = {storage_id(x): k for k, node in enumerate(placeholders) if is_strided(x := node.meta.get("val"))}
    results = gm.graph.output_node().args[0]
    assert isinstance(results, tuple)
    fakes = [node.meta.get("val") if isinstance(node, Node) and node not in placeholders else None for node in results]
    found = [(k, places.get(storage_id(x))) for k, x in enumerate(fakes) if is_strided(x)]
    return [(k, place) for k, place in found if place is not None]


def _plain(x: Any, name: str) -> torch.Tensor:
    if not isinstance(x, torch.Tensor) or type(x) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise UnsupportedGraph(f"'{name}' is a {type(x).__name__}, which is no tensor of numbers")
    return in_memory(x) if x.layout is torch.strided and is_lazy(x) else x


def _argument(told: Any, node: Node, name: str, written: bool) -> Argument:
    value = node.meta.get("val")
    if isinstance(told, TensorArgument):
        assert isinstance(value, torch.Tensor)
        sizes = tuple(map(size, value.shape)), tuple(map(size, value.stride()))
        return signature.TensorArgument(name, value.dtype, *sizes, str(value.device), written)
    if isinstance(told, SymIntArgument) and isinstance(value, torch.SymInt):
        n = size(value)
        return signature.FixedArgument(name, n) if isinstance(n, int) else signature.SizeArgument(name, str(n))
    if isinstance(told, ConstantArgument):
        return signature.FixedArgument(name, told.value)
    raise UnsupportedGraph(f"the argument '{name}' is a {type(value).__name__}")


def _argument_names(program: ExportedProgram) -> dict[str, str]:
    """The placeholder's name -> its place in a call: x, ys[0], config['scale']."""
    assert program.call_spec.in_spec is not None
    spec, names = program.call_spec.in_spec, _names(program)
    given = argument_trees().tree_unflatten([None] * spec.num_leaves, spec)
    paths: list[Any] = [
        path for path, _ in argument_trees().tree_flatten_with_path(given, is_leaf=lambda x: x is None)[0]
    ]
    placeholders = [s.arg.name for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    found = {}
    for placeholder, (which, first, *rest) in zip(placeholders, paths, strict=True):
        positional = which.idx == 0
        name = names[first.idx] if positional and first.idx < len(names) else str(first).strip("[]'")
        found[placeholder] = name + "".join(map(str, rest))
    return found


def _names(program: ExportedProgram) -> tuple[str, ...]:
    told = program.module_call_graph[0].signature
    return tuple(told.forward_arg_names or ()) if told is not None else ()


def _ranges(program: ExportedProgram, environment: Any) -> dict[str, tuple[int | None, int | None]]:
    found = {}
    for symbol, limits in program.range_constraints.items():
        low, high = (int(n) if isinstance(n, int) or n.is_Integer else None for n in (limits.lower, limits.upper))
        found[str(expression(named(symbol, environment)))] = low, high
    return found


def _conditions(environment: Any) -> list[Condition]:
    """What torch.export found out of sizes, and a call has to hold to."""
    if environment is None:
        return []
    known = [environment.replace(guard.expr) for guard in environment.guards]
    return [
        _condition(expr, environment)
        for expr in dict.fromkeys(known)
        if expr is not sympy.true and not any(map(is_of_data, expr.free_symbols))
    ]


def _condition(expr: Any, environment: Any) -> Condition:
    name = type(expr).__name__
    if name in RELATIONS:
        return [RELATIONS[name][0], *(str(expression(named(x, environment))) for x in expr.args)]
    if name in CONNECTIVES:
        return [name, *(_condition(x, environment) for x in expr.args)]
    raise UnsupportedGraph(f"a call would have to hold to '{expr}', which has no text")
