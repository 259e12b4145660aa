"""Loads and stores of a kernel: one vector where the lanes lie side by side, a scalar where all lanes read one element,
else a gather or scatter.

Addresses grow with the loops: each level adds to the pointer what its axis contributes, so that little is left inside.
Booleans are bytes in memory: not 0, and written as 0 or 1.
"""

from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.scope import Scope
from mlirc.lowering.cpu.math.builder import Value, element_text
from mlirc.lowering.kernel.axes import picked_stride
from mlirc.lowering.kernel.nodes import Access, Node, is_dim, is_index, monomial_of, terms


def stored_dtype(dtype: torch.dtype) -> torch.dtype:
    """What is loaded and stored: booleans as bytes, half types as their bits, which LLVM can mask on every processor."""
    if dtype == torch.bool:
        return torch.int8
    return torch.int16 if dtype in (torch.float16, torch.bfloat16) else dtype


def load(e: Scope, access: Access, wide: bool) -> Value:
    """The element that `access` reaches at the current point; 0 where its mask does not hold."""
    dtype = stored_dtype(access.dtype)
    value = _load_wide(e, access, dtype) if wide else _load_scalar(e, access, dtype)
    b = e.builder(dtype, wide)
    if (
        access.dtype == torch.bfloat16
    ):  # LLVM would load bfloat16, and between blocks, without AVX-512, keep float and round again
        value = b.emit(f"llvm.freeze {value} : {b.type_text(dtype)}", dtype)
    return b.cast(value, torch.bool) if access.dtype == torch.bool else b.bitcast(value, access.dtype)


def _load_scalar(e: Scope, access: Access, dtype: torch.dtype) -> Value:
    b = e.builder(dtype)
    address, mask = pointer(e, access), read_mask(e, access, False)
    element = element_text(dtype)
    if mask is None:
        return b.emit(f"llvm.load {address} {{alignment = {dtype.itemsize} : i64}} : !llvm.ptr -> {element}", dtype)
    one = f"vector<1x{element}>"
    mask = b.emit(f"vector.broadcast {mask} : i1 to vector<1xi1>", torch.bool)
    zero = b.emit(f"arith.constant dense<{'0.0' if dtype.is_floating_point else '0'}> : {one}", dtype)
    loaded = b.emit(
        f"llvm.intr.masked.load {address}, {mask}, {zero} {{alignment = {dtype.itemsize} : i32}} : "
        f"(!llvm.ptr, vector<1xi1>, {one}) -> {one}",
        dtype,
    )
    return frozen(b, b.emit(f"vector.extract {loaded}[0] : {element} from {one}", dtype), dtype)


def _load_wide(e: Scope, access: Access, dtype: torch.dtype) -> Value:
    b = e.builder(dtype, True)
    vector, bools = b.type_text(dtype), b.type_text(torch.bool)
    if is_one_element(e, access):
        return e.splat(_load_scalar(e, access, dtype))
    mask = read_mask(e, access, True)
    if is_unit_stride(e, access):
        return load_vector(e, unit_stride_pointer(e, access), mask, dtype)
    stride = picked_stride(access, e.vector)
    if stride is not None:
        return _load_picked(e, access, dtype, stride, mask)
    pointers = lane_pointers(e, access)
    gathered = b.emit(
        f"llvm.intr.masked.gather {pointers}, {mask or b.constant(True, torch.bool)}, {b.constant(0, dtype)} "
        f"{{alignment = {dtype.itemsize} : i32}} : (vector<{e.lanes}x!llvm.ptr>, {bools}, {vector}) -> {vector}",
        dtype,
    )
    return gathered if mask is None else frozen(b, gathered, dtype)


def load_vector(e: Scope, address: Value, mask: Value | None, dtype: torch.dtype) -> Value:
    b = e.builder(dtype, True)
    vector, align = b.type_text(dtype), dtype.itemsize
    if mask is None:
        return b.emit(f"llvm.load {address} {{alignment = {align} : i64}} : !llvm.ptr -> {vector}", dtype)
    text = f"llvm.intr.masked.load {address}, {mask}, {b.constant(0, dtype)} {{alignment = {align} : i32}} : "
    return frozen(b, b.emit(f"{text}(!llvm.ptr, {b.type_text(torch.bool)}, {vector}) -> {vector}", dtype), dtype)


def frozen(b: Any, value: Value, dtype: torch.dtype) -> Value:
    """What a masked load gives, which LLVM 22 would read again where a select of the same mask takes it, behind a store to that memory:

    %l = masked.load(p, mask, 0);  store x, p;  select mask, %l, y    ->    store x, p;  masked.load(p, mask, y)
    """
    return b.emit(f"llvm.freeze {value} : {b.type_text(dtype)}", dtype)


def _load_picked(e: Scope, access: Access, dtype: torch.dtype, stride: int, mask: Value | None) -> Value:
    """Every `stride`-th element, picked out of the vectors that hold it; nothing before or after these is read."""
    b = e.builder(dtype, True)
    vector, bools, lanes = b.type_text(dtype), b.type_text(torch.bool), e.lanes
    start = e.index.mul(e.env[e.axis], e.i64(stride))
    lowest = min((lanes - 1) * stride, 0)
    address = advance(e, access, pointer(e, access), e.index.add(start, e.i64(lowest)))
    places = [k * stride - lowest for k in range(lanes)]  # where each lane's element is from `address` on
    result = None
    for first in range(0, max(places) + 1, lanes):
        here = advance(e, access, address, e.i64(first)) if first else address
        found = {place - first: lane for lane, place in enumerate(places) if first <= place < first + lanes}
        if mask is not None:
            none = b.constant(False, torch.bool)
            pick = [found.get(k, lanes) for k in range(lanes)]
            inside = b.emit(f"vector.shuffle {mask}, {none} {pick} : {bools}, {bools}", torch.bool)
        elif first + lanes > max(places) + 1:
            text = ", ".join("true" if first + k <= max(places) else "false" for k in range(lanes))
            inside = e.text.constant(f"dense<[{text}]>", f"vector<{lanes}xi1>", torch.bool, -1)
        else:
            inside = None
        loaded = load_vector(e, here, inside, dtype)
        # lanes found before stay; those of this vector take their places
        pick = [lanes + place - first if first <= place < first + lanes else k for k, place in enumerate(places)]
        result = b.emit(f"vector.shuffle {result or loaded}, {loaded} {pick} : {vector}, {vector}", dtype)
    assert result is not None
    return result


def store(e: Scope, access: Access, node: Node) -> None:
    """Writes the value of `node` at the current point."""
    wide = e.axis != "" and (access.contiguous_lanes or e.axis in access.address.dims)
    dtype = stored_dtype(access.dtype)
    b = e.builder(dtype, wide)
    value = e.operand(node, wide)
    value = b.cast(value, dtype) if access.dtype == torch.bool else b.bitcast(value, dtype)
    align = dtype.itemsize
    if not wide:
        e.lines.append(
            f"llvm.store {value}, {pointer(e, access)} {{alignment = {align} : i64}} : {element_text(dtype)}, !llvm.ptr"
        )
        return
    if not is_unit_stride(e, access):
        mask = e.mask or b.constant(True, torch.bool)
        pointers = lane_pointers(e, access)
        e.lines.append(
            f"llvm.intr.masked.scatter {value}, {pointers}, {mask} {{alignment = {align} : i32}} : "
            f"{b.type_text(dtype)}, {b.type_text(torch.bool)} into vector<{e.lanes}x!llvm.ptr>"
        )
        return
    address, type_ = unit_stride_pointer(e, access), b.type_text(dtype)
    if e.mask is not None and not access.contiguous_lanes:
        store_masked(e, value, address, e.mask)
    elif access.operand in e.non_temporal:
        e.lines += store_text(e, e.non_temporal[access.operand], value, address, align, type_)
    else:
        e.lines.append(f"llvm.store {value}, {address} {{alignment = {align} : i64}} : {type_}, !llvm.ptr")


def store_masked(e: Scope, value: Value, address: Value, mask: Value) -> None:
    """The lanes of `value`, as they are stored, where the mask holds, as neighbouring elements."""
    dtype = value.dtype
    b = e.builder(dtype, True)
    if e.text.target.has_avx512 and not dtype.is_floating_point:
        mask = _unknown(e, mask)
    e.lines.append(
        f"llvm.intr.masked.store {value}, {address}, {mask} {{alignment = {dtype.itemsize} : i32}} : "
        f"{b.type_text(dtype)}, {b.type_text(torch.bool)} into !llvm.ptr"
    )


def _unknown(e: Scope, mask: Value) -> Value:
    """The mask behind an empty piece of assembly, through which LLVM does not see.

    With AVX-512 LLVM 22 makes of a truncation and its store under a mask that it knows, and that holds for one lane, a
    store of the number before the truncation, which overwrites the elements behind.
    """
    b, lanes = e.builder(torch.bool, True), e.lanes
    bits = b.emit(f"llvm.bitcast {mask} : vector<{lanes}xi1> to i{lanes}", torch.bool)
    bits = b.emit(f'llvm.inline_asm asm_dialect = att "", "=r,0" {bits} : (i{lanes}) -> i{lanes}', torch.bool)
    return b.emit(f"llvm.bitcast {bits} : i{lanes} to vector<{lanes}xi1>", torch.bool)


def prefetch_store(e: Scope, access: Access) -> None:
    """Fetches the memory that the next vector's store will write, if this one's lies side by side."""
    if is_unit_stride(e, access):
        address = advance(e, access, unit_stride_pointer(e, access), e.i64(e.lanes))
        e.lines.append(
            f'"llvm.intr.prefetch"({address}) {{rw = 1 : i32, hint = 3 : i32, cache = 1 : i32}} : (!llvm.ptr) -> ()'
        )


def read_mask(e: Scope, access: Access, wide: bool) -> Value | None:
    """The mask of a read: lanes within the space, where the read's own mask holds, and no index into an empty tensor."""
    b = e.builder(torch.bool, wide)
    parts = [e.mask] if wide and e.mask is not None and not access.contiguous_lanes else []
    if access.mask is not None:
        parts.append(e.operand(access.mask, wide))
    for node in access.scalars:
        if node.kind == "check_index" and not symbols.known_positive(node.size.rest):
            e.value(node)
            good = e.env["checked", node]
            parts.append(e.splat(good) if wide and not e.is_wide(node) else good)
    mask = None
    for part in parts:
        mask = part if mask is None else b.and_(mask, part)
    return mask


# ---- addresses


def is_unit_stride(e: Scope, access: Access) -> bool:
    """Whether the lanes reach neighbouring elements."""
    if access.contiguous_lanes:
        return True
    return access.address.strides.get(e.axis) == 1 and not _wide_terms(e, access)


def is_one_element(e: Scope, access: Access) -> bool:
    """Whether all lanes reach the same element, if any does."""
    wide = any(map(e.is_wide, (*access.scalars, *([] if access.mask is None else [access.mask]))))
    return not access.contiguous_lanes and e.axis not in access.address.dims and not wide


def _is_wide_name(e: Scope, access: Access, name: str) -> bool:
    if is_index(name):
        return e.is_wide(access.scalars[int(name[1:])])
    return name == e.axis


def _wide_terms(e: Scope, access: Access) -> list:
    found = []
    for monomial, coefficient in terms(access.address.rest):
        term = monomial_of(monomial, coefficient)
        if any(_is_wide_name(e, access, name) for name in symbols.free_symbols(term)):
            found.append(term)
    return found


def base(e: Scope, access: Access) -> Value:
    return e.env["base", access.operand]


def advance(e: Scope, access: Access, address: Value, offset: Value) -> Value:
    element = element_text(stored_dtype(access.dtype))
    text = f"llvm.getelementptr {address}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, {element}"
    return e.index.emit(text, torch.int64)


def pointer(e: Scope, access: Access) -> Value:
    """The address with every scalar part that is known here, saved for the loops inside."""
    address, done = e.env.get(access) or (base(e, access), frozenset())
    b, offset, added = e.index, None, set()
    parts: list[tuple[Any, Int, str | None]] = [
        ("", stride, dim) for dim, stride in access.address.strides.items() if dim != e.axis
    ]
    for monomial, coefficient in terms(access.address.rest):
        parts.append((monomial, monomial_of(monomial, coefficient), None))
    for monomial, value, dim in parts:
        key = dim or monomial
        if key in done or not _is_known(e, access, value, dim):
            continue
        added.add(key)
        term = e.integer(value, access.scalars)
        if dim is not None:
            term = e.env[dim] if value == 1 else b.mul(e.env[dim], term)
        offset = term if offset is None else b.add(offset, term)
    if added:
        if offset is not None:
            address = advance(e, access, address, offset)
            address = inside_of_memory(e, access, address, added)
        e.env[access] = (address, done | added)
    return address


def inside_of_memory(e: Scope, access: Access, address: Value, added: set) -> Value:
    """The address, or that of the first element where a mask that is one for all lanes does not hold.

    A masked load of no lane is slow where its address is in no page of the process: processors suppress the fault in microcode, some
    hundred cycles. The rows of a concatenation lie there for half of the result.
    """
    mask = access.mask
    if mask is None or e.is_wide(mask) or mask not in e.env or not mask.dims & added:
        return address
    return e.index.emit(f"arith.select {e.env[mask]}, {address}, {base(e, access)} : !llvm.ptr", torch.int64)


def _is_known(e: Scope, access: Access, value, dim: str | None) -> bool:
    if dim is not None:
        return dim in e.bound
    for name in symbols.free_symbols(value):
        if _is_wide_name(e, access, name):
            return False
        if is_index(name):
            if not access.scalars[int(name[1:])].dims <= e.bound:
                return False
        elif is_dim(name) and name not in e.bound:
            return False
    return True


def unit_stride_pointer(e: Scope, access: Access) -> Value:
    address = pointer(e, access)
    return address if access.contiguous_lanes else advance(e, access, address, e.env[e.axis])


def lane_pointers(e: Scope, access: Access) -> Value:
    """The address of each lane's element."""
    b = e.builder(torch.int64, True)
    offset = None
    stride = access.address.strides.get(e.axis)
    if stride is not None:
        offset = b.mul(e.point(e.axis, True), e.splat(e.integer(stride)))
    for term in _wide_terms(e, access):
        value = e.integer(term, access.scalars, wide=True)
        offset = value if offset is None else b.add(offset, value)
    if offset is None:
        offset = b.constant(0)
    element = element_text(stored_dtype(access.dtype))
    return b.emit(
        f"llvm.getelementptr {pointer(e, access)}[{offset}] : (!llvm.ptr, vector<{e.lanes}xi64>) -> "
        f"vector<{e.lanes}x!llvm.ptr>, {element}",
        torch.int64,
    )


def store_text(e: Scope, flag: Value, value: Value, address: Value, align: int, type_: str) -> list[str]:
    """The store of a full vector, past the cache where `flag` holds."""
    return [
        f"scf.if {flag} {{",
        f"llvm.store {value}, {address} {{alignment = {e.lanes * align} : i64, nontemporal}} : {type_}, !llvm.ptr",
        "} else {",
        f"llvm.store {value}, {address} {{alignment = {align} : i64}} : {type_}, !llvm.ptr",
        "}",
    ]
