"""How a kernel reads its operands and writes its results: it decides whether an output may take an operand's memory."""

from dataclasses import field
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.dialects.lazy_dataclass import dataclass


@dataclass
class ReadAccess:
    """How a kernel reads an operand.

    map     the index that is read, or None where it depends on data
    latest  the last round in which the element may be needed
    """

    map: tuple[Int, ...] | None
    latest: int


@dataclass
class Accesses:
    """reads[k] of operand k; maps[k] and rounds[k] of result k: the index written, and the first round in which it can.

    A round is one loop over the inner dimensions: a value that needs n reductions, one after the other, is known in
    round n.
    """

    reads: list[list[ReadAccess]]
    maps: list[tuple[Int, ...]] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    scans: bool = False
    may_fail: bool = False  # a check_index may raise IndexError after the kernel


def accesses(kernel: Any) -> Accesses:
    """Analyse a `mlircx.kernel` (or a launch)."""
    block = kernel.regions[0].blocks[0]
    found = Accesses([[] for _ in block.arguments])
    round_of: dict[ir.Value, int] = {}
    reads_of: dict[
        ir.Value, dict[int, ReadAccess]
    ] = {}  # the reads that a value is computed from, in the same round, by id
    position = {argument: k for k, argument in enumerate(block.arguments)}
    for op in block.operations:
        name = op.operation.name
        operands = list(op.operands)
        this_round = max([round_of.get(x, 0) for x in operands], default=0)
        reads = union([of for x in operands if (of := reads_of.get(x))])
        if name == "mlircx.yield":
            found.maps = [symbols.parse_list(text) for text in attribute_value(op.attributes["maps"])]
            found.rounds = [round_of.get(x, 0) for x in operands]
            for x in operands:
                needed(reads_of.get(x, {}), round_of.get(x, 0))
            break
        if name == "mlirc.read" and operands[0] in position:
            map_ = symbols.parse_list(attribute_value(op.attributes["map"]))
            gather = any(n.startswith("i") for expr in map_ for n in symbols.free_symbols(expr))
            read = ReadAccess(None if gather else map_, this_round)
            found.reads[position[operands[0]]].append(read)
            reads = {**reads, id(read): read}
        elif name == "mlirc.scan":
            found.scans = True
        elif name == "mlirc.check_index":
            found.may_fail = True
        result = op.results[0]
        round_of[result] = this_round
        if name == "mlirc.reduce":
            needed(reads, this_round)
            round_of[result] = this_round + 1
        else:
            reads_of[result] = reads
    return found


def union(reads: list[dict[int, ReadAccess]]) -> dict[int, ReadAccess]:
    """All of these. The one itself where there is one: most ops of a kernel have one operand that was read."""
    if len(reads) == 1:
        return reads[0]
    return {key: read for of in reads for key, read in of.items()}


def needed(reads: dict[int, ReadAccess], in_round: int) -> None:
    for read in reads.values():
        read.latest = max(read.latest, in_round)


def address(map_: tuple[Int, ...], info: TensorInfo, offset: Int) -> Int:
    """Elements from the buffer's start to index `map_` of a view at `offset`."""
    total = offset
    for index, stride in zip(map_, info.stride, strict=True):
        total = total + index * stride
    return total


def writes_where_read(
    found: Accesses, k: int, out: TensorInfo, out_offset: Int | None, operand: int, x: TensorInfo, x_offset: Int | None
) -> bool:
    """Whether result number k, laid out as `out`, may be written into the buffer that operand number `operand`, `x`, is
    in. Offsets are in elements from the buffer's start, None if unknown.

    Each read of the operand must be at the very address that is written, and nothing may need it in a later round: a
    softmax may overwrite what it reads, since its last loop reads each element once more and then writes it.
    """
    if found.scans or out_offset is None or x_offset is None:
        return False
    if x.dtype.itemsize != out.dtype.itemsize:
        return False
    map_ = found.maps[k]
    same_layout = x.stride == out.stride and x_offset == out_offset
    return all(
        read.map is not None
        and read.latest <= found.rounds[k]
        and ((same_layout and read.map == map_) or address(read.map, x, x_offset) == address(map_, out, out_offset))
        for read in found.reads[operand]
    )
