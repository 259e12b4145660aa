"""Loads, stores and prefetches at an address, and functions beside a kernel's body: what kernels that are written by hand are made of."""

from collections.abc import Callable, Iterator, Sequence

import torch

from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.memory import load_vector, store_masked, stored_dtype
from mlirc.lowering.cpu.math.builder import Value, element_text

F32, BF16, BYTE = torch.float32, torch.bfloat16, torch.int8
PTR = "!llvm.ptr"
CACHE_LINE = 64
FIRST_LEVEL, SECOND_LEVEL = 3, 2  # of the caches, as a prefetch is told


def advance(e: VectorEmitter, address: Value, offset: Value | int, dtype: torch.dtype = F32) -> Value:
    """The address so many elements of `dtype` after `address`."""
    offset, element = offset if isinstance(offset, Value) else e.i64(offset), element_text(stored_dtype(dtype))
    return e.index.emit(
        f"llvm.getelementptr {address}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, {element}", torch.int64
    )


def lanes_below(e: VectorEmitter, count: Value) -> Value:
    """A mask of the first `count` lanes."""
    return e.builder(torch.int64, True).lt(e.lane_numbers(), e.splat(count))


def choose_address(e: VectorEmitter, condition: Value, x: Value, y: Value) -> Value:
    return e.index.emit(f"arith.select {condition}, {x}, {y} : !llvm.ptr", torch.int64)


def whole_vectors(e: VectorEmitter, count: Value) -> Value:
    """The elements of `count` that are whole vectors."""
    return e.index.and_(count, e.i64(-e.lanes))


def vectors(e: VectorEmitter, count: Value, ragged: bool = True) -> Iterator[tuple[Value, Value | None]]:
    """For a `for` loop: `count` elements, a vector at a time. The first iteration writes a loop over the whole vectors; the second, where
    the count may be `ragged`, the same under a mask. Each has the vector's first element, and the mask."""
    whole = whole_vectors(e, count)
    with e.each(0, whole, e.lanes) as k:
        yield k, None
    if ragged:
        with e.each(whole, count, e.lanes) as k:
            yield k, lanes_below(e, e.index.sub(count, k))


# ---- vectors


def load_floats(e: VectorEmitter, address: Value, dtype: torch.dtype = F32, mask: Value | None = None) -> Value:
    """Neighbouring elements as float32 (booleans as 0 or 1), at any address; 0 where the mask does not hold."""
    stored = stored_dtype(dtype)
    return widened(e, load_vector(e, address, mask, stored), dtype, True)


def store_floats(
    e: VectorEmitter, value: Value, address: Value, dtype: torch.dtype = F32, mask: Value | None = None
) -> None:
    """Lanes of float32 as neighbouring elements of `dtype`, at any address; those where the mask does not hold stay."""
    stored = stored_dtype(dtype)
    b = e.builder(stored, True)
    value = b.bitcast(e.builder(F32, True).cast(value, dtype), stored)
    if mask is None:
        type_ = b.type_text(stored)
        e.lines.append(f"llvm.store {value}, {address} {{alignment = {stored.itemsize} : i64}} : {type_}, !llvm.ptr")
    else:
        store_masked(e, value, address, mask)


def load_scratch(e: VectorEmitter, address: Value) -> Value:
    """A vector of float32 in scratch, which lies at a multiple of its size."""
    b = e.builder(F32, True)
    return b.emit(f"llvm.load {address} {{alignment = {4 * e.lanes} : i64}} : !llvm.ptr -> {b.type_text(F32)}", F32)


def store_scratch(e: VectorEmitter, value: Value, address: Value) -> None:
    type_ = e.builder(F32, True).type_text(F32)
    e.lines.append(f"llvm.store {value}, {address} {{alignment = {4 * e.lanes} : i64}} : {type_}, !llvm.ptr")


def clear_scratch(e: VectorEmitter, address: Value, count: Value | int) -> None:
    """Zeros, for `count` elements: whole vectors."""
    with e.each(0, count, e.lanes) as k:
        store_scratch(e, e.builder(F32, True).constant(0.0), advance(e, address, k))


def gather(e: VectorEmitter, address: Value, offsets: Value, dtype: torch.dtype) -> Value:
    """The elements at `offsets` (in elements) from `address`, as float32."""
    stored = stored_dtype(dtype)
    b = e.builder(stored, True)
    pointers = lane_addresses(e, address, offsets, stored)
    vector, bools = b.type_text(stored), b.type_text(torch.bool)
    loaded = b.emit(
        f"llvm.intr.masked.gather {pointers}, {b.constant(True, torch.bool)}, {b.constant(0, stored)} "
        f"{{alignment = {stored.itemsize} : i32}} : (vector<{e.lanes}x!llvm.ptr>, {bools}, {vector}) -> {vector}",
        stored,
    )
    return widened(e, loaded, dtype, True)


def lane_addresses(e: VectorEmitter, address: Value, offsets: Value, dtype: torch.dtype) -> Value:
    """A vector of addresses: each lane's offset, in elements of `dtype`, from `address`."""
    lanes, element = e.lanes, element_text(dtype)
    kinds = f"(!llvm.ptr, vector<{lanes}xi64>) -> vector<{lanes}x!llvm.ptr>, {element}"
    return e.index.emit(f"llvm.getelementptr {address}[{offsets}] : {kinds}", torch.int64)


# ---- one element


def load_scalar(e: VectorEmitter, address: Value, dtype: torch.dtype = F32) -> Value:
    """Loads one element as float32."""
    stored = stored_dtype(dtype)
    element = element_text(stored)
    text = f"llvm.load {address} {{alignment = {stored.itemsize} : i64}} : !llvm.ptr -> {element}"
    return widened(e, e.builder(stored).emit(text, stored), dtype, False)


def store_scalar(e: VectorEmitter, value: Value, address: Value) -> None:
    e.lines.append(f"llvm.store {value}, {address} {{alignment = 4 : i64}} : f32, !llvm.ptr")


def copy_scalar(e: VectorEmitter, source: Value, target: Value) -> None:
    store_scalar(e, load_scalar(e, source), target)


def widened(e: VectorEmitter, loaded: Value, dtype: torch.dtype, wide: bool) -> Value:
    if dtype == F32:
        return loaded
    b = e.builder(F32, wide)
    value = b.cast(loaded, torch.bool) if dtype == torch.bool else b.bitcast(loaded, dtype)
    return b.cast(value, F32)


# ---- caches


def prefetch(e: VectorEmitter, address: Value, level: int = FIRST_LEVEL, write: bool = False) -> None:
    """Asks for a line of memory, to be in the cache of that level when it is read, or written."""
    options = f"<{{cache = 1 : i32, hint = {level} : i32, rw = {int(write)} : i32}}>"
    e.lines.append(f'"llvm.intr.prefetch"({address}) {options} : (!llvm.ptr) -> ()')


# ---- functions


def call(
    e: VectorEmitter,
    name: str,
    arguments: Sequence[tuple[Value, str]],
    write: Callable[[VectorEmitter, list[Value]], None],
) -> None:
    """Calls a function of the kernel's own, which `write` writes at its first use, given its parameters. Code that stands in
    several places, shuffles above all, takes LLVM long; one large body takes it longer than several small ones."""
    name, types = f"@KERNEL_{name}", ", ".join(type_ for _, type_ in arguments)
    if name not in e.text.functions:
        e.text.functions[name] = ""
        inside = VectorEmitter(e.vector, e.text.target)
        inside.text.functions = e.text.functions
        parameters = [Value(f"%p{k}", x.dtype) for k, (x, _) in enumerate(arguments)]
        write(inside, parameters)
        listed = ", ".join(f"{x}: {type_}" for x, (_, type_) in zip(parameters, arguments, strict=True))
        head = f"llvm.func internal {name}({listed}) {{"
        e.text.functions[name] = "\n".join([head, *inside.text.preamble, *inside.lines, "llvm.return", "}"])
    e.lines.append(f"llvm.call {name}({', '.join(x for x, _ in arguments)}) : ({types}) -> ()")
