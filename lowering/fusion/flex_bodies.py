"""Makes one kernel's body of score_mod, mask_mod and their gradients: the ops between `flex_scores` and the op that reads the scores.

    %s = flex_scores(%q, %k);  %c = 20 * tanh(%s / 20);  %m = iota >= iota;  flex_attend(%c, %m, ...)
    body(%s: [B, H, L, S]) = yield(20 * tanh(read %s / 20), d2 >= d3)

The scores are virtual: no memory holds them, and the kernel computes each one just before the body reads it. An op that computes with
scores is inside the body. So is one whose result has an element for each query and each key, or that reads no memory. All others stay
outside: they are computed once, and the body reads their results.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_ops import Constant, Iota, Size, View
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.kernel_forms import broadcast_map
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.fusion.kernel_fusion import KernelFusion
from mlirc.lowering.module.target_attribute import set_target, target_of
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.pipeline.pass_manager import run_pipeline

PIPELINE = "decompose,canonicalize,cse,eliminate-views,canonicalize,cse,to-kernels"
"""Makes a kernel of each op; `merge_all` makes one of them all."""


class NotOneBody(Exception):
    """The ops cannot be one kernel's body. The message is the rule, as the ledger has it."""


@dataclass(frozen=True)
class FlexBody:
    """A body, in an op that is in no module yet.

    holder     its one block has an argument for each virtual tensor, and then one for each captured value
    captured   the values outside that the body reads
    """

    holder: ir.Operation
    captured: list[ir.Value]

    @property
    def block(self) -> ir.Block:
        return self.holder.regions[0].blocks[0]


def flex_body(
    reader: Any,
    roots: Sequence[ir.Value],
    virtual: Sequence[tuple[ir.Type, Sequence[ir.Value]]],
    space: tuple[Int, ...],
) -> FlexBody:
    """The body that computes `roots` over `space`, the sizes [B, H, L, S]. Raises NotOneBody.

    reader    the op that reads the roots; views that the body needs are built before it
    virtual   for each virtual tensor, its type and the values of the graph that stand for it
    """
    scores = {x for _, values in virtual for x in values}
    inside, captured = slice_of(roots, scores, dependents(scores, reader), space)
    module = ir.Module.create(reader.location)
    set_target(module, target_of(reader))
    types = [type_ for type_, _ in virtual] + [x.type for x in captured]
    with ir.InsertionPoint(module.body), reader.location:
        function = func.FuncOp("graph", (types, []))
    block = function.add_entry_block()
    known: dict[ir.Value, ir.Value] = {}
    for values, argument in zip([*(v for _, v in virtual), *((x,) for x in captured)], block.arguments, strict=True):
        known |= dict.fromkeys(values, argument)
    with ir.InsertionPoint(block), reader.location:
        for op in inside:
            made = op.operation.clone()
            for k, x in enumerate(op.operands):
                made.operands[k] = known[x]
            known |= dict(zip(op.results, made.results, strict=True))
        k = KernelBuilder(space, label="scores")
        results = []
        for root in roots:
            x = known[root]
            info = TensorInfo(info_of(x).dtype, space, device=info_of(x).device)
            results.append((k.read(x, broadcast_map(x, k.dims)), k.dims, info))
        func.ReturnOp(k.finish(results))
    given = [type_of(info) for *_, info in results]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, given))
    run_pipeline(module, PIPELINE, verify=False)
    return extract_body(reader, module, captured, len(virtual))


def slice_of(
    roots: Sequence[ir.Value], virtual: set[ir.Value], with_scores: set[Any], space: tuple[Int, ...]
) -> tuple[list[Any], list[ir.Value]]:
    """The ops that go inside the body, operands before their users, and the values that it reads. `with_scores`: the ops that compute with
    scores."""
    inside: dict[Any, None] = {}
    captured: dict[ir.Value, None] = {}
    free: dict[Any, bool] = {}
    stack = [*reversed(roots)]
    while stack:
        x = stack[-1]
        op = x.owner
        if x in virtual or x in captured or op in inside:
            stack.pop()
        elif isinstance(op, ir.Block) or not (
            op in with_scores or varies(info_of(x).shape, space) or reads_no_memory(op, free)
        ):
            captured[stack.pop()] = None
        else:
            waiting = [y for y in op.operands if y not in virtual and y not in captured and y.owner not in inside]
            if waiting:
                stack += reversed(waiting)
            else:
                inside[op] = None
                stack.pop()
    return [op.opview for op in inside], list(captured)


def dependents(values: Iterable[ir.Value], reader: Any) -> set[Any]:
    """The ops before `reader` that depend on these values, directly or through other ops."""
    found: set[Any] = set()
    stack = list(values)
    while stack:
        for use in stack.pop().uses:
            op = use.owner.operation
            if op not in found and op != reader.operation:
                found.add(op)
                stack += op.results
    return found


def varies(shape: Sequence[Int], space: tuple[Int, ...]) -> bool:
    """Whether a tensor of this shape may have an element for each query and each key."""
    batch, heads, rows, columns = space
    return not any(within(shape, [batch, heads, n]) for n in (rows, columns))


def within(shape: Sequence[Int], sizes: list[Int]) -> bool:
    """Whether each size of `shape`, other than 1, has an equal one in `sizes` of its own."""
    left = list(sizes)
    for n in shape:
        if n != 1:
            if n not in left:
                return False
            left.remove(n)
    return True


def reads_no_memory(op: Any, known: dict[Any, bool]) -> bool:
    """Whether an op depends on constants, sizes and positions alone. `known` keeps the answers."""
    if op not in known:
        view = op.opview
        known[op] = isinstance(view, (Constant, Size, Iota)) or (
            len(op.operands) > 0
            and op.name.startswith("mlirc.")
            and all(not isinstance(x.owner, ir.Block) and reads_no_memory(x.owner, known) for x in op.operands)
        )
    return known[op]


def extract_body(reader: Any, module: ir.Module, captured: list[ir.Value], count: int) -> FlexBody:
    """Merges the kernels of the module's function into one, and takes the body out of it. The first `count` arguments of the function are
    virtual; the others are `captured`."""
    function = module.body.operations[0]
    merge_all(function)
    arguments = list(function.regions[0].blocks[0].arguments)
    ops = [op for op in function.regions[0].blocks[0].operations if op.operation.name != "func.return"]
    kernels = [op for op in ops if op.operation.name == "mlircx.kernel"]
    if others := [op for op in ops if op not in kernels and not isinstance(op, View)]:
        raise NotOneBody(f"NO KERNEL OF {others[0].operation.name.upper()}")
    if len(kernels) != 1:
        raise NotOneBody("SEVERAL KERNELS")
    (kernel,) = kernels
    if attribute_value(kernel.attributes["inner"]):
        raise NotOneBody("A REDUCTION")
    holder = ir.Operation.create("mlircx.kernel", regions=1, ip=False, loc=kernel.location)
    types = [x.type for x in arguments[:count]]
    block = ir.Block.create_at_start(holder.regions[0], types, [kernel.location] * count)
    read: list[ir.Value] = []
    for x, old in zip(kernel.operands, list(kernel.regions[0].blocks[0].arguments), strict=True):
        if x in arguments[:count]:
            old.replace_all_uses_with(block.arguments[arguments.index(x)])
            continue
        read.append(value_outside(reader, x, arguments, captured, count))
        old.replace_all_uses_with(block.add_argument(old.type, kernel.location))
    for op in list(kernel.regions[0].blocks[0].operations):
        block.append(op)
    return FlexBody(holder, read)


def value_outside(
    reader: Any, x: ir.Value, arguments: list[ir.Value], captured: list[ir.Value], count: int
) -> ir.Value:
    """The graph's value for `x`, an argument of the function or a view of one; the view is built again before `reader`."""
    if x in arguments:
        return captured[arguments.index(x) - count]
    (base,) = x.owner.operands
    if base not in arguments[count:]:
        raise NotOneBody("A VIEW OF SCORES")
    view = x.owner.clone(ip=ir.InsertionPoint(reader))
    view.operands[0] = captured[arguments.index(base) - count]
    return view.result


def merge_all(function: Any) -> None:
    """Merges kernels as long as two can be one."""
    fusion = KernelFusion(function, Ledger(), "fuse-flex-attention", checks=False)
    while pairs := [p for p in fusion.candidates() if p.action != "horizontal" and p.kind != "legal"]:
        if not fusion.merge(pairs[0]):
            break
    fusion.write_back()
