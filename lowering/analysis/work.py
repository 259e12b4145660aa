"""Counts the bytes that an op reads and writes, and its floating-point operations; symbolic where sizes are.

Bytes: each operand counts once, by the elements that its type has (an expanded dimension has one). Of what is read by an index, as a
table of embeddings is, no more counts than there are elements read. Operations: two for each multiply-add of a matmul or convolution,
and one for each op of a kernel that computes a floating-point value, at each of its points: comparisons, and arithmetic with indices as
at the border of a window, are none.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Elementwise, Reduction, attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_info import symbols_sum
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.nn.flex_attention import FLEX

FREE = {"mlirc.view", "mlirc.constant", "mlirc.size", "mlirc.slot", "mlirc.allocate", "mlirc.release", "func.return"}
BODIES = ("mlircx.kernel", "mlircx.launch", "mlircx.run")
MATMULS = ("matmul", "addmm", "addmm_gelu")
GATHERS = ("mlirc.gather", "mlirc.index", "mlirc.index2", "mlirc.index3")
NO_ARITHMETIC = ("cast", "bitcast", "select")


@dataclass
class Work:
    """The work of some ops: how many by name, kernels among them, bytes, operations."""

    ops: Counter = field(default_factory=Counter)
    kernels: int = 0
    read: Int = 0
    written: Int = 0
    flops: Int = 0

    def add(self, op: Any) -> None:
        """A top-level op of a function. An ATen call counts with its bytes, and with no operations."""
        name = op.operation.name
        self.ops[name if name != "mlircx.call" else f"call {attribute_value(op.attributes['callee'])}"] += 1
        if name in FREE:
            return
        read, written = operands_of(op)
        self.kernels += name in BODIES
        self.read = self.read + bytes_read(op, read)
        self.written = self.written + symbols_sum(map(bytes_of, written))
        self.flops = self.flops + flops_of(op, read, written)

    def include(self, part: "Work") -> None:
        """Counts the work of other ops too."""
        self.ops += part.ops
        self.kernels += part.kernels
        self.read, self.written = self.read + part.read, self.written + part.written
        self.flops = self.flops + part.flops

    @staticmethod
    def sum(parts: "Iterable[Work]") -> "Work":
        total = Work()
        for part in parts:
            total.include(part)
        return total


def work_of(ops: Iterable[Any]) -> Work:
    """The work of a function's top-level ops, in any form."""
    total = Work()
    for op in ops:
        total.add(op)
    return total


def operands_of(op: Any) -> tuple[list[TensorInfo], list[TensorInfo]]:
    """The tensors that an op reads, each once, and those that it writes."""
    operands, results = list(op.operands), list(op.results)
    if "inputs" in op.attributes:
        count = attribute_value(op.attributes["inputs"])
        operands, results = operands[:count], operands[count:]
    elif op.operation.name == "mlirc.assign":
        operands, results = operands[1:], operands[:1]
    distinct = [x for k, x in enumerate(operands) if not any(x == y for y in operands[:k])]
    return tensors(distinct), tensors(results)


def tensors(values: Iterable[Any]) -> list[TensorInfo]:
    return [info_of(x) for x in values if isinstance(x.type, ir.RankedTensorType)]


def bytes_of(info: TensorInfo) -> Int:
    shape = [n for n, s in zip(info.shape, info.stride, strict=True) if s != 0]
    return symbols.product(shape) * info.dtype.itemsize


def bytes_read(op: Any, read: list[TensorInfo]) -> Int:
    """The bytes of an op's distinct operands."""
    name, most = op.operation.name, dict[int, Int]()
    if name in GATHERS:
        most = {0: info_of(op.results[0]).numel}
    elif name in BODIES:
        most = gathered_elements(op)
    sizes = []
    for k, info in enumerate(read):
        every = bytes_of(info)
        sizes.append(symbols.minimum(every, most[k] * info.dtype.itemsize) if k in most else every)
    return symbols_sum(sizes)


def gathered_elements(op: Any) -> dict[int, Int]:
    """For each distinct operand that a body reads by an index alone: by how many index tuples and positions it does so at most."""
    space = [n for key in ("parallel", "inner") for n in symbols.parse_list(attribute_value(op.attributes[key]))]
    block = op.regions[0].blocks[0]
    given = list(op.operands)[: len(block.arguments)]
    firsts = [next(k for k, y in enumerate(given) if y == x) for x in given]
    place = {x: sorted(set(firsts)).index(first) for x, first in zip(block.arguments, firsts, strict=True)}
    axes: dict[Any, frozenset[str]] = {}
    counted: dict[int, Int] = {}
    whole: set[int] = set()
    for inside in block.operations:
        texts = [attribute_value(inside.attributes[key]) for key in ("map", "expr") if key in inside.attributes]
        used = frozenset(n for text in texts for e in symbols.parse_list(text) for n in symbols.free_symbols(e))
        used = used.union(*(axes.get(x, frozenset()) for x in inside.operands))
        axes |= dict.fromkeys(inside.results, used)
        for x in inside.operands:
            if x not in place:
                continue
            if inside.operation.name == "mlirc.read" and len(inside.operands) > 1:
                points = symbols.product(n for d, n in enumerate(space) if f"d{d}" in used)
                counted[place[x]] = counted.get(place[x], 0) + points
            else:
                whole.add(place[x])
    return {k: n for k, n in counted.items() if k not in whole}


def flops_of(op: Any, read: list[TensorInfo], written: list[TensorInfo]) -> Int:
    name = op.operation.name
    if name in BODIES:
        return body_flops(op)
    kind = attribute_value(op.attributes["callee"]) if name == "mlircx.call" else name.partition(".")[2]
    if kind in MATMULS:
        inputs = attribute_value(op.attributes["inputs"]) if name == "mlircx.call" else len(op.operands)
        return 2 * written[0].numel * info_of(op.operands[inputs - 1]).shape[-2]
    if "convolution" in kind or kind == "depthwise_weight_gradient":
        return convolution_flops(kind, read, written)
    if kind in ("attention", "attention_backward"):
        first = 0 if kind == "attention" else 1
        q, k, v = (info_of(x) for x in list(op.operands)[first : first + 3])  # which may be one tensor
        each = q.numel * k.shape[-2] + symbols.product(q.shape[:-1]) * k.shape[-2] * v.shape[-1]
        return 2 * each if kind == "attention" else 5 * each
    if kind in FLEX:  # as if every query saw every key
        q, k, v = (info_of(x) for x in list(op.operands)[:3])
        products = {"flex_attention": (1, 1), "flex_attention_query_gradient": (2, 1)}.get(kind, (2, 2))
        rows = symbols.product(q.shape[:3]) * k.shape[2] * 2
        return rows * (q.shape[3] * products[0] + v.shape[3] * products[1])
    if isinstance(op, Reduction):
        return read[0].numel if is_floating(op.operands[0]) else 0
    if isinstance(op, Elementwise) and kind not in NO_ARITHMETIC:
        return written[0].numel if written and is_floating(op.results[0]) else 0
    return 0


def is_floating(value: Any) -> bool:
    """Whether a tensor, or a number within a kernel, is floating-point or complex."""
    kind = value.type.element_type if isinstance(value.type, ir.RankedTensorType) else value.type
    return isinstance(kind, ir.FloatType | ir.ComplexType)


def convolution_flops(kind: str, read: list[TensorInfo], written: list[TensorInfo]) -> Int:
    """Operations of a convolution: two for each tap of each window and each channel that it sums."""
    x, second, out = read[0], read[1], written[0]
    if kind in ("convolution", "convolution_add"):
        image, weight = out, second
    elif kind == "transposed_convolution":
        image, weight = x, second
    else:
        image, weight = second, out
    return 2 * image.numel * symbols.product(weight.shape[1:])


def body_flops(op: Any) -> Int:
    """An inner value is computed at each point, an outer one once for each point of the parallel space."""
    parallel, inner = (
        symbols.product(symbols.parse_list(attribute_value(op.attributes[n]))) for n in ("parallel", "inner")
    )
    rank = len(symbols.parse_list(attribute_value(op.attributes["parallel"])))
    every = rank + len(symbols.parse_list(attribute_value(op.attributes["inner"])))
    names = {f"d{d}" for d in range(rank, every)}
    is_inner: dict[Any, bool] = {}
    outer_ops, inner_ops = 0, 0
    for inside in op.regions[0].blocks[0].operations:
        name = inside.operation.name
        texts = [attribute_value(inside.attributes[key]) for key in ("map", "expr") if key in inside.attributes]
        here = any(is_inner.get(x, False) for x in inside.operands)
        here = here or any(names & symbols.free_symbols(e) for text in texts for e in symbols.parse_list(text))
        counts = name in ("mlirc.reduce", "mlirc.scan")
        counts = counts or (isinstance(inside, Elementwise) and name.removeprefix("mlirc.") not in NO_ARITHMETIC)
        counts = counts and any(map(is_floating, inside.results))
        outer_ops += counts and not here
        inner_ops += counts and here
        for result in inside.results:
            is_inner[result] = here and name != "mlirc.reduce"
    return parallel * outer_ops + parallel * inner * inner_ops
