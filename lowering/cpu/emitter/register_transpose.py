"""Register transpose: transposes square tiles of an operand in registers, so that a strided read or write becomes contiguous.

Each direction is a function beside the kernel's body, one for each element type. LLVM takes 5 to 10 ms to select instructions for
the shuffles of a tile, each time that they stand in the text; a call costs little beside them.

    llvm.func internal @kernel_0_transpose_f32(%matrix: !llvm.ptr, %stride: i64, %count: i64, %square: !llvm.ptr)
"""

from collections.abc import Callable

import torch

from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.memory import advance, load_vector, pointer, store_masked, stored_dtype
from mlirc.lowering.cpu.math.builder import Value, VectorBuilder, element_text
from mlirc.lowering.kernel.nodes import Access

_PARAMETERS = "%matrix: !llvm.ptr, %stride: i64, %count: i64, %square: !llvm.ptr"
_COUNT = Value("%count", torch.int64)
_STRIDE = Value("%stride", torch.int64)


def load_transposed(e: VectorEmitter, access: Access, start: Value, end: Value, square: Value) -> None:
    """Reads for each lane the elements from `start` on, before `end`, along the axis with stride 1; they become columns."""
    _call(e, "load_transposed", _load_transposed, access, start, end, square)


def store_transposed(e: VectorEmitter, access: Access, start: Value, end: Value, square: Value) -> None:
    """The counterpart: the tile's columns are written."""
    _call(e, "store_transposed", _store_transposed, access, start, end, square)


def _call(
    e: VectorEmitter, verb: str, write: Callable, access: Access, start: Value, end: Value, square: Value
) -> None:
    dtype = stored_dtype(access.dtype)
    name = f"@KERNEL_{verb}_{element_text(dtype)}"
    if name not in e.text.functions:
        inside = VectorEmitter(e.vector, e.text.target)
        write(inside, dtype)
        lines = [
            f"llvm.func internal {name}({_PARAMETERS}) {{",
            *inside.text.preamble,
            *inside.lines,
            "llvm.return",
            "}",
        ]
        e.text.functions[name] = "\n".join(lines)
    b, stride = e.index, e.integer(access.address.strides[e.axis])
    matrix = advance(e, access, pointer(e, access), b.add(start, b.mul(e.env[e.axis], stride)))
    types = "(!llvm.ptr, i64, i64, !llvm.ptr) -> ()"
    e.lines.append(f"llvm.call {name}({matrix}, {stride}, {b.sub(end, start)}, {square}) : {types}")


def _load_transposed(e: VectorEmitter, dtype: torch.dtype) -> None:
    inside = _inside(e)
    rows = [load_vector(e, address, inside, dtype) for address in _rows(e, dtype)]
    type_ = e.builder(dtype, True).type_text(dtype)
    for k, row in enumerate(transposed(e, rows)):
        e.lines.append(f"llvm.store {row}, {_place(e, dtype, k)} {{alignment = 1 : i64}} : {type_}, !llvm.ptr")


def _store_transposed(e: VectorEmitter, dtype: torch.dtype) -> None:
    b, inside = e.builder(dtype, True), _inside(e)
    type_ = b.type_text(dtype)
    columns = [
        b.emit(f"llvm.load {_place(e, dtype, k)} {{alignment = 1 : i64}} : !llvm.ptr -> {type_}", dtype)
        for k in range(e.lanes)
    ]
    for row, address in zip(transposed(e, columns), _rows(e, dtype), strict=True):
        store_masked(e, row, address, inside)


def _inside(e: VectorEmitter) -> Value:
    """The lanes before %count."""
    return e.builder(torch.int64, True).lt(e.lane_numbers(), e.splat(_COUNT))


def _rows(e: VectorEmitter, dtype: torch.dtype) -> list[Value]:
    """The address of each row of the matrix."""
    found = [Value("%matrix", torch.int64)]
    for _ in range(e.lanes - 1):
        text = f"llvm.getelementptr {found[-1]}[{_STRIDE}] : (!llvm.ptr, i64) -> !llvm.ptr, {element_text(dtype)}"
        found.append(e.index.emit(text, torch.int64))
    return found


def _place(e: VectorEmitter, dtype: torch.dtype, row: int) -> Value:
    """The address of a row of the tile."""
    text = f"llvm.getelementptr %square[{row * e.lanes * dtype.itemsize}] : (!llvm.ptr) -> !llvm.ptr, i8"
    return e.index.emit(text, torch.int64)


def transposed(e: VectorEmitter, rows: list[Value]) -> list[Value]:
    """The columns of a tile of lanes x lanes: at each stage the blocks off the diagonal change places."""
    lanes, dtype = len(rows), rows[0].dtype
    b = e.builder(dtype, True)
    type_ = b.type_text(dtype)
    size = lanes // 2
    while size:
        first = [k if not k & size else lanes + k - size for k in range(lanes)]
        second = [k + size if not k & size else lanes + k for k in range(lanes)]
        for k in range(lanes):
            if not k & size:
                x, y = rows[k], rows[k + size]
                rows[k], rows[k + size] = (
                    b.emit(f"vector.shuffle {x}, {y} {mask} : {type_}, {type_}", dtype) for mask in (first, second)
                )
        size //= 2
        if size == 2 and dtype.is_floating_point and e.text.target.arch == "x86_64":
            # LLVM tries to merge every shuffle with those before it, stage by stage: half as many stages, a third of the time
            text = f"({type_}) -> {type_}"
            rows = [b.emit(f'llvm.call_intrinsic "llvm.arithmetic.fence"({x}) : {text}', dtype) for x in rows]
    return rows


def across(e: VectorEmitter, rows: list[Value]) -> Value:
    """The sum of the lanes of each of 2, 4, ... vectors of float32 or int32, in the lane of its number: a vector of as many.

    At each stage blocks of two vectors are added, half as long as before; then the parts of the last vector.
    """
    b, count, width = e.builder(rows[0].dtype, True), len(rows), e.lanes
    size = count // 2
    while size:
        first = [k if not k & size else width + k - size for k in range(width)]
        second = [k + size if not k & size else width + k for k in range(width)]
        rows = [_add_chosen(b, x, y, (first, second), width) for x, y in zip(rows[:size], rows[size:], strict=True)]
        size //= 2
    (sums,) = rows
    while width > count:
        width //= 2
        halves = list(range(width)), list(range(width, 2 * width))
        sums = _add_chosen(b, sums, sums, halves, 2 * width)
    return sums


def lane_sums(e: VectorEmitter, rows: list[Value]) -> tuple[Value, str]:
    """The sum of the lanes of each of the vectors `rows`, of float32 or int32: a vector of these sums, of one row a scalar; and its type."""
    dtype = rows[0].dtype
    element = element_text(dtype)
    if len(rows) > 1:
        return across(e, rows), f"vector<{len(rows)}x{element}>"
    order = " fastmath<reassoc>" if dtype.is_floating_point else ""
    text = f"vector.reduction <add>, {rows[0]}{order} : vector<{e.lanes}x{element}> into {element}"
    return e.builder(dtype).emit(text, dtype), element


def _add_chosen(b: VectorBuilder, x: Value, y: Value, choices: tuple[list[int], list[int]], width: int) -> Value:
    """The sum of two choices of lanes, of those of x and then those of y."""
    element, add = element_text(x.dtype), "arith.addf" if x.dtype.is_floating_point else "arith.addi"
    type_ = f"vector<{width}x{element}>"
    halves = [b.emit(f"vector.shuffle {x}, {y} {choice} : {type_}, {type_}", x.dtype) for choice in choices]
    return b.emit(f"{add} {halves[0]}, {halves[1]} : vector<{len(choices[0])}x{element}>", x.dtype)
