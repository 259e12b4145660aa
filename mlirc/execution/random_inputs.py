"""Draws random inputs that a module runs on: sizes that fit each other, indices within bounds, numbers in the domain of roots and logarithms.

The module says which sizes are symbols, and by check_index which integers are below which size. The rest is found by trial: inputs are
drawn in several ways, the interpreter runs on each, and of those that run the first with the fewest non-finite results are taken.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_signature import guards_of
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.execution.accuracy import zeros_have_signs
from mlirc.execution.inputs import InputsError, with_strides
from mlirc.execution.isolated import Ended, isolated
from mlirc.execution.modules import given_arguments, graph_of, interpret
from mlirc.execution.pooled_indices import pooled_indices
from mlirc.lowering.analysis.index_maps import is_dimension
from mlirc.lowering.fusion.aten_calls import arguments
from mlirc.lowering.module.forms import stage_of
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.verify.assignments import assignments, holds

SIZES = ([5, 7, 6, 9, 4, 8], [8], [4], [6], [16], [2], [12], [3], [64], [1])  # of symbols, in turn
KINDS = {"negative": ([6, 4, 7, 8, 5, 9],), "special": ([33, 18, 2, 3],)}
"""Other kinds of floating-point numbers, that no normal draw has, each with sizes that are tried before SIZES: some are even, or
longer than a vector. negative: all of them, and integers that are no index.
special: zeros of both signs, and in what is no parameter infinities and NaN."""
INTEGERS = (10, 2, 1)  # that drawn integers are below, in turn
HIDES = "attention"  # ops that pass NaN of hidden keys on or not, by what the mask is known to be (docs/decisions.md): none is drawn
NEGATIVE = -100  # that drawn integers are not below, all of them less than 0
ALONG_A_DIMENSION = tuple(  # self, dim, index
    f"aten.{name}."
    for name in ("gather", "index_select", "index_add", "index_copy", "index_fill", "scatter", "scatter_add")
)
MOST_OPS = 10_000  # that are executed with one draw: a loop whose counter or state was drawn may not end
MOST_ENDLESS = 6  # draws with which a loop does not end, before no more are made
BODIES = ("mlircx.kernel", "mlircx.launch", "mlircx.run")


@dataclass(frozen=True)
class Draw:
    """One way to draw.

    sizes        symbol -> size
    within_one   floating-point numbers are all between 0 and 1, not normally distributed
    integers     integers are below this; where it is negative, they are not below it, and less than 0
    kind         one of KINDS, or "": none of them
    """

    sizes: Mapping[str, int]
    within_one: bool
    integers: int
    kind: str = ""


class Steps:
    """Counts the ops that the interpreter executes with one draw; raises InputsError where they are too many."""

    def __init__(self) -> None:
        self.left = MOST_OPS

    def before(self, op: Any, operands: Sequence[Any]) -> None:
        self.left -= 1
        if self.left < 0:
            raise InputsError("a loop does not end soon with them")

    def after(self, op: Any, values: Sequence[Any], held: Sequence[Any]) -> None:
        pass


def random_inputs(module: ir.Module, seed: int) -> list[Any]:
    """Arguments for @graph, the same for the same seed. Raises InputsError where none are found that the interpreter runs on."""
    with context():
        names = symbols_of(module)
        bounds = index_bounds(module)
        loops = holds_loop(module)
        best: tuple[int, list[Any]] | None = None
        why, endless = "", 0
        for draw in draws(names, guards_of(graph_of(module))):
            steps = Steps() if loops else None
            try:
                inputs = drawn(module, draw, bounds, seed)
                left = interpret(module, inputs, steps)
            except Exception as error:  # of any kind: an operator of ATen may raise what it likes
                why = why or " ".join(str(error).split())
                endless += steps is not None and steps.left < 0
                if endless == MOST_ENDLESS:
                    break
                continue
            lost = sum(not_finite(x) for x in left.results)
            if best is None or lost < best[0]:
                best = (lost, inputs)
            if lost == 0 or draw.within_one:  # numbers of both kinds were tried with these sizes
                break
        if best is None:
            raise InputsError(
                f"no random inputs were found that this module takes; give --inputs. The first said: {why}"
            )
        return best[1]


def other_inputs(module: ir.Module, seed: int) -> Iterator[tuple[str, list[Any]]]:
    """Arguments of each of KINDS that the interpreter runs on, with its name. Nothing of a kind for which there are none."""
    with context():
        names, bounds, signed = symbols_of(module), index_bounds(module), zeros_have_signs(str(module))
        guards = guards_of(graph_of(module))
        for kind, sizes in KINDS.items():
            steps = Steps() if holds_loop(module) else None
            lists = guarded(names, guards, (*sizes, *SIZES[:2]) if names else sizes[:1])
            ways = itertools.product(lists, (NEGATIVE, 2) if kind == "negative" else (2,))
            for chosen, integers in ways:
                numbers = "zeros" if kind == "special" and HIDES in str(module) else kind
                draw = Draw(chosen, False, integers, numbers)
                try:
                    inputs = drawn(module, draw, bounds, seed)
                    if not signed:
                        inputs = [without_signs(x) for x in inputs]
                    interpret(module, inputs, steps)
                except Exception:  # of any kind, as above
                    if steps is not None and steps.left < 0:
                        break
                    continue
                yield kind, inputs
                break


def holds_loop(module: ir.Module) -> bool:
    return "mlircx.while_loop" in str(module)


def draws(names: list[str], guards: Sequence[Int] = ()) -> Iterator[Draw]:
    """The ways to draw, in the order in which they are tried; `names` are symbols, for which the guards hold."""
    for chosen in guarded(names, guards, SIZES if names else SIZES[:1]):
        for integers in INTEGERS:
            for within_one in (False, True):
                yield Draw(chosen, within_one, integers)


def guarded(names: list[str], guards: Sequence[Int], lists: Sequence[list[int]]) -> list[dict[str, int]]:
    """The lists of sizes as sizes of the symbols, of those for which the guards hold; drawn sizes for which they do where there are none."""
    found = [dict(zip(names, itertools.cycle(sizes), strict=False)) for sizes in lists]
    known = [n for n in guards if symbols.free_symbols(n) <= set(names)]
    return [sizes for sizes in found if all(holds(n, sizes) for n in known)] or [*assignments(names, known, 5), *found]


def not_finite(x: Any) -> int:
    """How many elements are NaN or infinite."""
    return int((~torch.isfinite(x)).sum()) if isinstance(x, torch.Tensor) and x.is_floating_point() else 0


def symbols_of(module: ir.Module) -> list[str]:
    """The symbols that arguments bring, in order."""
    found: dict[str, None] = {}
    graph = graph_of(module)
    for k, argument in enumerate(given_arguments(module)):
        exprs: list[Int] = []
        if isinstance(argument.type, ir.RankedTensorType):
            info = info_of(argument)
            exprs += [*info.shape, *info.stride]
        if "mlirc.symbol" in graph.arg_attrs[k]:
            exprs.append(symbols.parse(attribute_value(graph.arg_attrs[k]["mlirc.symbol"])))
        for expr in exprs:
            found |= dict.fromkeys(sorted(symbols.free_symbols(expr)))
    return list(found)


def drawn(module: ir.Module, draw: Draw, bounds: Mapping[int, list[Int]], seed: int) -> list[Any]:
    """The arguments, drawn in one way. `bounds`: argument -> sizes that its integers stay below."""
    graph = graph_of(module)
    generator, numbers = torch.Generator().manual_seed(seed), random.Random(seed)
    made: list[Any] = []
    for k, argument in enumerate(given_arguments(module)):
        named = graph.arg_attrs[k]
        if "mlirc.symbol" in named:
            made.append(symbols.evaluate(symbols.parse(attribute_value(named["mlirc.symbol"])), draw.sizes))
        elif not isinstance(argument.type, ir.RankedTensorType):
            made.append(numbers.uniform(0.5, 1.5) if str(argument.type) == "f64" else numbers.randrange(1, 4))
        elif "mlirc.scalar" in named:
            made.append(numbers.uniform(0.5, 1.5))
        else:
            limits = [symbols.evaluate(n, draw.sizes) for n in bounds.get(k, ())]
            given = replace(draw, kind="zeros") if draw.kind == "special" and is_parameter(named) else draw
            made.append(tensor(info_of(argument), given, min(limits, default=draw.integers), generator))
    for k, indices in pooled_indices(module, draw.sizes, generator):
        made[k] = with_strides(indices.to(made[k].dtype), made[k].stride())
    return made


def without_signs(x: Any) -> Any:
    """`x` with 0.0 in place of -0.0."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    return with_strides(torch.where(x == 0, x.abs(), x), x.stride())


def is_parameter(named: Any) -> bool:
    return "mlirc.parameter" in named or "mlirc.constant" in named


def tensor(info: TensorInfo, draw: Draw, limit: int, generator: torch.Generator) -> torch.Tensor:
    """A tensor of that dtype, shape and strides; integers are below `limit`, or from it to -1."""
    shape, stride = ([symbols.evaluate(n, draw.sizes) for n in sizes] for sizes in (info.shape, info.stride))
    if info.dtype == torch.bool:
        value = torch.randint(0, 2, shape, generator=generator).bool()
    elif not info.dtype.is_floating_point and not info.dtype.is_complex:
        value = torch.randint(min(limit, 0), max(limit, 1) if limit >= 0 else 0, shape, generator=generator).to(
            info.dtype
        )
    elif draw.within_one and not info.dtype.is_complex:
        value = (0.05 + 0.9 * torch.rand(shape, generator=generator)).to(info.dtype)
    else:
        wide = torch.complex64 if info.dtype.is_complex else torch.float32
        value = torch.randn(shape, generator=generator, dtype=wide)
        if len(shape) > 1 and value.numel():  # rows of about unit length, so that matmuls of many layers stay in range
            value = value * max(0.05, (value.numel() / shape[0]) ** -0.5)
        value = of_kind(value, draw.kind, generator).to(info.dtype)
    return with_strides(value, stride)


def of_kind(value: torch.Tensor, kind: str, generator: torch.Generator) -> torch.Tensor:
    """Normally distributed numbers with the features of a kind."""
    if not kind or value.is_complex() or not value.numel():
        return value
    if kind == "negative":
        return -value.abs()
    chance = torch.rand(value.shape, generator=generator)
    value = torch.where(chance < 0.125, torch.copysign(torch.zeros(()), value), value)
    if kind == "special":
        for k, number in enumerate((torch.inf, -torch.inf, torch.nan)):
            value = torch.where((chance - 0.2 - 0.1 * k).abs() < 0.005, number, value)
    value.view(-1)[int(torch.randint(value.numel(), (1,), generator=generator))] = -0.0  # of few elements, too
    return value


# ---- which arguments are indices, and of what size


def index_bounds(module: ir.Module) -> dict[int, list[Int]]:
    """Argument -> the sizes that its elements index: they stay below each. Read off check_index of kernels, and off some ATen calls.

    In the graph form kernels are made first, in another process: the module may be one that a pass crashes on.
    """
    text = str(module)
    if stage_of(graph_of(module)) == "graph":
        text = isolated(lambda tell: _as_kernels(text), None)
        if isinstance(text, Ended):  # that a module or a pass is wrong is reported where it is run
            return {}
    copied = ir.Module.parse(text)
    graph = graph_of(copied)
    block = graph.regions[0].blocks[0]
    position = {argument: k for k, argument in enumerate(block.arguments)}
    made: dict[Any, tuple[Any, int]] = {}  # a value -> the kernel that computes it, as which of its results
    viewed: dict[Any, Any] = {}  # a view or copy -> what it is of
    found: dict[int, list[Int]] = {}
    for op in block.operations:
        name = op.operation.name
        if name in ("mlirc.view", "mlirc.copy"):
            viewed[op.results[0]] = op.operands[0]
        elif name == "mlircx.aten":
            _bounds_of_aten(op, viewed, position, found)
        elif name in BODIES:
            count = attribute_value(op.attributes["inputs"]) if "inputs" in op.attributes else len(op.operands)
            outputs = list(op.results) or list(op.operands)[count:]
            _bounds_of_body(op, viewed, made, position, found)
            made |= {value: (op, k) for k, value in enumerate(outputs)}
    return found


def _as_kernels(text: str) -> str:
    module = ir.Module.parse(text)
    run_pipeline(module, "decompose,to-kernels", verify=False)
    return str(module)


def _bounds_of_aten(op: Any, viewed: Any, position: Any, found: dict[int, list[Int]]) -> None:
    """Adds the bounds that an ATen call gives: of its index operand, by the size that it indexes."""
    name = attribute_value(op.attributes["op"])
    if name == "aten.embedding_dense_backward.default":
        index, size = op.operands[1], info_of(op.results[0]).shape[0]
    elif name.startswith(ALONG_A_DIMENSION):
        args = arguments(op)
        if not isinstance(args[1], int) or len(op.operands) < 2 or not info_of(op.operands[0]).rank:
            return
        index, size = op.operands[1], info_of(op.operands[0]).shape[args[1]]
    else:
        return
    while index in viewed:
        index = viewed[index]
    if index in position:
        found.setdefault(position[index], []).append(size)


def _bounds_of_body(op: Any, viewed: Any, made: Any, position: Any, found: dict[int, list[Int]]) -> None:
    """Adds the bounds that the check_index ops in a kernel's body give."""
    for inside in op.regions[0].blocks[0].operations:
        if inside.operation.name != "mlirc.check_index":
            continue
        size = symbols.parse(attribute_value(inside.attributes["size"]))
        argument = _element_of(op, inside.operands[0], viewed, made)
        if argument in position and not any(map(is_dimension, symbols.free_symbols(size))):
            found.setdefault(position[argument], []).append(size)


def _element_of(op: Any, value: Any, viewed: Any, made: Any) -> Any:
    """The tensor outside of kernels that a scalar of a body is an element of, as read, converted, and passed on by other kernels.

    None where the scalar is computed.
    """
    block = op.regions[0].blocks[0]
    while not isinstance(value.owner, ir.Block) and value.owner.name == "mlirc.cast":
        value = value.owner.operands[0]
    if isinstance(value.owner, ir.Block) or value.owner.name != "mlirc.read":
        return None
    read = value.owner.operands[0]
    arguments = list(block.arguments)
    if read not in arguments:
        return None
    outside = op.operands[arguments.index(read)]
    while outside in viewed:
        outside = viewed[outside]
    if outside in made:
        maker, k = made[outside]
        last = list(maker.regions[0].blocks[0].operations)[-1]
        return _element_of(maker, last.operands[k], viewed, made)
    return outside
