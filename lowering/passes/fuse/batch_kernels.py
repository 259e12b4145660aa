"""batch-kernels: small kernels of equal iteration space become one launch, on a GPU."""

from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.kernel_ops import ROUNDED
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.liveness import byte_size
from mlirc.lowering.pipeline.ledger import Ledger

AT_ONCE = 8  # kernels whose reads a merged one has in flight


@dataclass(frozen=True)
class BatchKernels:
    """Merge small kernels of equal iteration space into one launch, on a GPU, where the results of the earlier ones are not needed yet.

    Such kernels combine the partial sums of gradients of biases and norms, which only the optimizer reads. A launch takes longer than one
    of them.

    before:  %1 = "mlircx.kernel"(%a) ({ reduce sum }) {parallel = "768", inner = "64"}
             ...
             %2 = "mlircx.kernel"(%b) ({ reduce sum }) {parallel = "768", inner = "64"}
    after:   ...
             %1, %2 = "mlircx.kernel"(%a, %b) ({ reduce sum; reduce sum }) {parallel = "768", inner = "64"}

    SMALL       each reads at most `bytes`, written by other kernels, and reduces it; no check_index, no scan
    READ LATER  nothing reads the results of the earlier kernels before the last kernel
    LIMITS      together they read at most `max_reads` tensors
    """

    name = "batch-kernels"
    takes = "kernel"
    bytes: int = 1 << 20
    max_reads: int = 24

    def run(self, function: Any, ledger: Ledger) -> None:
        ops = [op.operation for op in function.regions[0].blocks[0].operations]
        records = records_of(function, ledger, self.name)
        read = first_readers(ops)
        waiting: dict[tuple, list[Any]] = {}
        groups: list[list[Any]] = []
        for place, op in enumerate(ops):
            if op.name != "mlircx.kernel" or not self.is_small(op):
                continue
            group = waiting.setdefault(space(op), [])
            reads = sum(len(member.operands) for member in (*group, op))
            rule = ""
            if any(read.get(x, place + 1) <= place for member in group for x in member.results):
                rule = "READ LATER"
            elif reads > self.max_reads:
                rule = "LIMITS"
            numbers = {"reads": reads, "max_reads": self.max_reads} if rule == "LIMITS" else {}
            if rule == "LIMITS":
                ledger.record(self.name, "merge", attribute_value(op.attributes["label"]), rule, False, op, **numbers)
            if records is not None and group:
                if rule:
                    numbers["kernels"] = len(group) + 1
                    records.add(group, op, rule, "cost" if rule == "LIMITS" else "legal", **numbers)
                elif records.refused_by_plan(group, op):
                    rule = "PLAN"
            if rule:
                group = waiting[space(op)] = []
            if not group:
                groups.append(group)
            group.append(op)
        for group in groups:
            taken = len(group) > 1 and ledger.allows(self.name, group[-1])
            label = attribute_value(group[0].attributes["label"])
            ledger.record(self.name, "merge", label, "READ LATER", taken, group[-1], kernels=len(group))
            if records is not None:
                for k in range(1, len(group)):
                    records.add(group[:k], group[k], "READ LATER" if taken else "REWRITES", "" if taken else "rewrites")
            if taken:
                names = records.leave(group) if records is not None else ()
                made = merge(group)
                if records is not None:
                    records.take(names, made)
        if records is not None:
            records.finish()

    def is_small(self, op: Any) -> bool:
        if not info_of(op.results[0]).device.startswith("cuda"):
            return False
        names = [item.operation.name for item in op.regions[0].blocks[0].operations]
        if "mlirc.reduce" not in names or "mlirc.scan" in names or "mlirc.check_index" in names:
            return False
        sizes = [byte_size(info_of(x)) for x in op.operands]
        known = [n for n in sizes if isinstance(n, int)]
        if len(known) < len(sizes) or sum(known) > self.bytes:
            return False
        return all(not isinstance(x.owner, ir.Block) and x.owner.name == "mlircx.kernel" for x in op.operands)


def records_of(function: Any, ledger: Ledger, name: str) -> Any:
    """What keeps records of pairs, where somebody asked for them."""
    if ledger.fusion is None:
        return None
    from mlirc.lowering.fusion.batch_records import BatchRecords

    return BatchRecords(function, ledger, name)


def space(op: Any) -> tuple:
    """Equal for kernels that can be one."""
    texts = [attribute_value(op.attributes[name]) for name in ("parallel", "inner")]
    return (*texts, info_of(op.results[0]).device, ROUNDED in op.attributes)


def first_readers(ops: list[Any]) -> dict[ir.Value, int]:
    """The position of the first op that reads a value, itself or through views."""
    found: dict[ir.Value, int] = {}
    for place, op in reversed(list(enumerate(ops))):
        if op.name == "mlirc.view":
            if op.results[0] in found:
                found[op.operands[0]] = min(found[op.results[0]], found.get(op.operands[0], len(ops)))
        else:
            found |= dict.fromkeys(op.operands, place)
    return found


def merge(group: list[Any]) -> Any:
    """Replaces the kernels by one, at the position of the last, and returns that."""
    last = group[-1]
    operands = [x for op in group for x in op.operands]
    made = ir.Operation.create(
        "mlircx.kernel",
        results=[x.type for op in group for x in op.results],
        operands=operands,
        attributes=dict(last.attributes.items()),
        regions=1,
        loc=last.location,
        ip=ir.InsertionPoint(last),
    )
    block = ir.Block.create_at_start(made.regions[0], [x.type for x in operands], [last.location] * len(operands))
    given = iter(block.arguments)
    values: dict[ir.Value, ir.Value] = {x: next(given) for op in group for x in op.regions[0].blocks[0].arguments}
    for first in range(0, len(group), AT_ONCE):
        copy(block, [list(op.regions[0].blocks[0].operations) for op in group[first : first + AT_ONCE]], values)
    ends = [list(op.regions[0].blocks[0].operations)[-1] for op in group]
    results = [values[x] for end in ends for x in end.operands]
    maps = [text for end in ends for text in attribute_value(end.attributes["maps"])]
    attributes = {"maps": ir.ArrayAttr.get([ir.StringAttr.get(text) for text in maps])}
    ir.Operation.create(
        "mlircx.yield", operands=results, attributes=attributes, loc=last.location, ip=ir.InsertionPoint(block)
    )
    left = iter(made.results)
    for op in group:
        for x in op.results:
            x.replace_all_uses_with(next(left))
    move_views(made)
    for op in group:
        op.erase()
    return made


def copy(block: ir.Block, bodies: list[list[Any]], values: dict[ir.Value, ir.Value]) -> None:
    """The ops of kernels, without their yields, to the end of the block: what leads to the first reduction of each before any
    reduction, so that all their reads are on the way at once. `values`: the old ones -> the new ones."""
    ends = [len(body) - 1 for body in bodies]
    folds = [
        next((k for k, item in enumerate(body) if item.operation.name == "mlirc.reduce"), end)
        for body, end in zip(bodies, ends, strict=True)
    ]
    early = [item for body, fold in zip(bodies, folds, strict=True) for item in body[:fold]]
    late = [item for body, fold in zip(bodies, folds, strict=True) for item in body[fold:-1]]
    for item in (*early, *late):
        made = ir.Operation.create(
            item.operation.name,
            results=[x.type for x in item.results],
            operands=[values[x] for x in item.operands],
            attributes=dict(item.attributes.items()),
            loc=item.location,
            ip=ir.InsertionPoint(block),
        )
        values |= dict(zip(item.results, made.results, strict=True))


def move_views(made: Any) -> None:
    """Views of the op's results that stand before it go behind it."""
    after = made
    waiting = list(made.results)
    while waiting:
        views = [use.owner for use in waiting.pop(0).uses if use.owner.name == "mlirc.view"]
        for view in views:
            if view.is_before_in_block(made):
                view.move_after(after)
                after = view
                waiting.append(view.results[0])
