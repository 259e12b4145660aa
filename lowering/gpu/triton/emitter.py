"""Writes the values of a kernel's body as Triton statements: a value is computed where its first user is.

Names in the text: p0, p1, ... pointers, the launch's operands; s0, ... sizes; x, y, r the points of a tile dimension,
x_mask, ... whether they are inside; v0, v1, ... values.
"""

from collections.abc import Sequence

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.gpu.triton.builder import TL_DTYPE, TritonBuilder, TritonValue, literal
from mlirc.lowering.gpu.triton.folds import TritonFold, function_text
from mlirc.lowering.gpu.triton.random import quads
from mlirc.lowering.gpu.triton.rounded import TEXTS, ErfBesideOne, RoundedBuilder, is_beside_one
from mlirc.lowering.gpu.triton.tiles import Tiles
from mlirc.lowering.kernel.nodes import Access, Linear, Node, Output, computed_dtype

TRAP = "TRAP"  # the constant: whether a bad index ends the kernel; no interpreter has an instruction for that
FAILURE = "failure"  # the argument: three slots, [number of the check, bad index, its size]


class TritonEmitter(Tiles):
    """A place in the tiles where the values of nodes are computed."""

    # ---- values

    def builder(self, dtype: torch.dtype) -> TritonBuilder:
        return RoundedBuilder(self.lines, dtype, self.functions) if self.rounded else TritonBuilder(self.lines, dtype)

    def is_inner(self, node: Node) -> bool:
        return not self.inner.isdisjoint(node.dims)

    def value(self, node: Node) -> TritonValue:
        if node not in self.env:
            self.env[node] = self.compute(node)
        return self.env[node]

    def compute(self, node: Node) -> TritonValue:
        match node.kind:
            case "read":
                return self.load(node)
            case "constant":
                return self.builder(node.dtype).constant(node.attributes["value"], node.dtype)
            case "size":
                return self.size(node.size)
            case "check_index":
                return self.check_index(node)
            case "scan":
                return self.scan(node)
            case "reduce":
                raise KeyError(f"the reduction {node.attributes['kind']} is used before it is done")
        operands = [self.value(x) for x in node.operands]
        if node.kind in ("cast", "bitcast"):
            return getattr(self.builder(node.dtype), node.kind)(operands[0], node.dtype)
        if node.kind == "philox_uniform" and (numbers := quads(self, node, operands)) is not None:
            return numbers
        b = self.builder(computed_dtype(node))
        if isinstance(b, RoundedBuilder) and b.dtype == torch.float32 and f"{node.kind}_rounded" in TEXTS:
            return b.rounded(f"{node.kind}_rounded", *operands)
        if self.rounded and is_beside_one(self.kernel, node):
            b = ErfBesideOne(self.lines, b.dtype, self.functions)
        return node.cls.scalar(b, *operands, **node.attributes)

    def size(self, linear: Linear) -> TritonValue:
        """A size expression as an i64."""
        expr = expression(linear)
        if isinstance(expr, int):
            return self.builder(torch.int64).constant(expr)
        fits = self.indices.fits(expr)
        index = self.indices.linear(linear) if fits else self.indices.write(expr, wide=True)
        text = f"({index}).to(tl.int64)" if fits and self.indices.narrow else str(index)
        return self.lines.name(text, torch.int64, index.tile)

    # ---- memory

    def pointer(self, access: Access) -> TritonValue:
        scalars = []
        for node in access.scalars:  # checked where the address does not depend on it too
            x = self.value(node)
            scalars.append(self.narrowed(x) if self.indices.narrow else x)
        operand, first = self.within.get(access.operand, (access.operand, 0))
        linear = Linear(access.address.strides, access.address.rest + first) if first else access.address
        address = self.indices.linear(linear, scalars)
        place = str(address) if address.isidentifier() or address.isdigit() else f"({address})"
        text = f"p{operand}" if place == "0" else f"p{operand} + {place}"
        return TritonValue(text, access.dtype, address.tile)

    def narrowed(self, x: TritonValue) -> TritonValue:
        return self.lines.name(f"{x}.to(tl.int32)", torch.int32, x.tile)

    def load(self, node: Node) -> TritonValue:
        access = node.access
        pointer = self.pointer(access)
        given = self.given(access)
        dims = pointer.tile if given is None else pointer.tile | given.tile
        mask, _ = self.mask(dims, given)
        if given is not None and not dims <= pointer.tile:  # a pointer must have the whole shape
            pointer = TritonValue(f"tl.broadcast_to({pointer}, {self.shape(dims)})", access.dtype, dims)
        text = f"tl.load({pointer}{', ' + mask if mask else ''}{', other=0' if given is not None else ''})"
        return self.lines.name(text, node.dtype, dims)

    def given(self, access: Access) -> TritonValue | None:
        """The mask of a read: where the read's own mask holds, and no index into a tensor that may be empty."""
        given = None if access.mask is None else self.value(access.mask)
        for node in access.scalars:
            if node.kind == "check_index" and not symbols.known_positive(node.size.rest):
                self.value(node)
                good = self.env["checked", node]
                given = good if given is None else self.builder(torch.bool).and_(given, good)
        return given

    def store(self, output: Output) -> None:
        value = self.value(output.node)
        pointer = self.pointer(output.access)
        mask, _ = self.mask(pointer.tile)
        self.lines.add(f"tl.store({pointer}, {value}{', ' + mask if mask else ''})")

    # ---- indices that are data

    def check_index(self, node: Node) -> TritonValue:
        """The index, wrapped; one that is outside is reported, and reads as 0."""
        b = self.builder(torch.int64)
        x = self.value(node.operands[0])
        size = self.size(node.size)
        zero = b.constant(0)
        wrapped = b.select(b.lt(x, zero), b.add(x, size), x) if node.attributes["wraps"] else x
        good = b.and_(b.ge(wrapped, zero), b.lt(wrapped, size))
        if node not in self.reported:
            self.reported.add(node)
            self.report(node, x, size, b.not_(good))
        self.env["checked", node] = good
        return b.select(good, wrapped, zero)

    def report(self, node: Node, x: TritonValue, size: TritonValue, bad: TritonValue) -> None:
        """Leaves number, index and size of one bad index of all that are found, by any program."""
        mask, _ = self.mask(bad.tile)
        asked = [mask] if mask else []
        points = symbols.product(t.size for t in self.schedule.tiles if t.name == "r")
        if not (bad.tile and "r" in bad.tile) and not symbols.known_positive(points):
            asked.append(f"({self.indices.write(points)} > 0)")  # an index that no point asks for is no failure
        if asked:
            bad = self.lines.name(" & ".join([str(bad), *asked]), torch.bool, bad.tile)
        number = f"tl.full([], {node.check}, tl.int64)"
        lowest = literal(torch.iinfo(torch.int64).min)
        add = self.lines.add
        if not bad.tile:
            add(f"if {bad}:")
            add(f"    if tl.atomic_cas({FAILURE}, tl.full([], 0, tl.int64), {number}) == 0:")
            add(f"        tl.store({FAILURE} + 1, {x})")
            add(f"        tl.store({FAILURE} + 2, {size})")
            self.stop(number)
            return
        add(f"if tl.max({bad}.to(tl.int32)) > 0:")
        add(f"    if tl.atomic_cas({FAILURE}, tl.full([], 0, tl.int64), {number}) == 0:")
        add(f"        worst = tl.max(tl.where({bad}, {x}, {lowest}))")
        add(f"        tl.store({FAILURE} + 1, worst)")
        at_worst = f"tl.where({bad} & ({x} == worst), {size}, {lowest})"
        add(f"        tl.store({FAILURE} + 2, {f'tl.max({at_worst})' if size.number is None else size})")
        self.stop(number)

    def stop(self, number: str) -> None:
        """Ends the kernel, once the host can read the slots: its stream's synchronization raises, as in eager."""
        self.lines.add(f"        if {TRAP}:")
        self.lines.add("            tl.debug_barrier()")
        assembly = '"membar.sys; trap; mov.b64 $0, $1;", "=l,l"'
        call = f"tl.inline_asm_elementwise({assembly}, [{number}], tl.int64, False, 1)"
        self.lines.add(f"            {call}")

    # ---- folds

    def axis(self) -> int:
        return next(k for k, tile in enumerate(self.blocks) if tile.name == "r")

    def folded(self, node: Node) -> tuple[TritonFold, TritonValue]:
        """What a fold folds: its operand with the identity outside of the row, of the row's whole shape."""
        fold = TritonFold(node)
        self.functions[fold.function] = fold.function_text
        x = fold.widened(self.builder(fold.dtype), self.value(node.operands[0]))
        dims = x.tile | {"r"} if self.has_block else x.tile
        if "r" in self.masks:
            text = f"tl.where({self.masks['r']}, {x}, {literal(fold.identity)})"
            if x.number is not None:
                text = f"tl.where({self.masks['r']}, {x}, tl.full([], {literal(fold.identity)}, {TL_DTYPE[x.dtype]}))"
            return fold, self.lines.name(text, fold.dtype, dims)
        text = self.full(x, dims)
        return fold, x if text == str(x) else self.lines.name(text, fold.dtype, dims)

    @property
    def has_block(self) -> bool:
        """Whether the row is a block: of an axis of one point, it is a number."""
        return any(tile.name == "r" for tile in self.blocks)

    def lanes_of(self, node: Node) -> frozenset[str]:
        """The dimensions of what a loop folds `node` into; beside a scan all of the block's, because what is scanned has them."""
        scans = any(other.kind == "scan" for other in self.kernel.nodes)
        return (frozenset(tile.name for tile in self.blocks) if scans else self.dims_of(node.dims)) | {"r"}

    def reduced(self, fold: TritonFold, parts: Sequence[TritonValue]) -> TritonValue:
        """Blocks folded along the row, in the fold's dtype: for an arg reduction, the position."""
        if not self.has_block:
            return parts[-1] if fold.gives_position else parts[0]
        dims = parts[0].tile - {"r"}
        keep = ", keep_dims=True" if len(self.blocks) > 1 else ""
        arguments = f"{self.axis()}, fold_{fold.function}{keep}"
        if not fold.positional:
            text = f"tl.reduce({parts[0]}, {arguments})"
            return self.lines.name(text if "r" in self.masks else self.from_zero(fold, text), fold.dtype, dims)
        pair = self.lines.name(f"tl.reduce(({parts[0]}, {parts[1]}), {arguments})", fold.dtype, dims)
        if fold.gives_position:
            return self.lines.name(f"{pair}[1]", self.indices.dtype, dims)
        return self.lines.name(f"{pair}[0]", fold.dtype, dims)

    def reduced_by(self, function: str, blocks: Sequence[TritonValue]) -> list[TritonValue]:
        """Blocks of one shape, folded together along the row by `fold_function`."""
        if not self.has_block:
            return list(blocks)
        keep = ", keep_dims=True" if len(self.blocks) > 1 else ""
        dims, dtype = blocks[0].tile - {"r"}, blocks[0].dtype
        text = f"tl.reduce(({', '.join(blocks)}), {self.axis()}, fold_{function}{keep})"
        folded = self.lines.name(text, dtype, dims)
        return [self.lines.name(f"{folded}[{k}]", dtype, dims) for k in range(len(blocks))]

    def is_number(self, dims: frozenset[str]) -> bool:
        """Whether what has these dimensions, folded along the row, is no block."""
        return not dims and len(self.blocks) <= 1

    def from_zero(self, fold: TritonFold, text: str) -> str:
        """A fold of one block as one that begins with 0.0: eager's sum of -0.0 alone is 0.0. Of many blocks it does begin so."""
        sums = fold.function == "sum" and fold.dtype.is_floating_point
        return f"{text} + 0.0" if sums and not self.schedule.looped else text

    def result(self, fold: TritonFold, x: TritonValue) -> TritonValue:
        """What was folded, as the node's dtype."""
        return fold.narrowed(self.builder(x.dtype), x)

    def place(self, dims: frozenset[str]) -> TritonValue:
        """The position in the row, of the shape of `dims`."""
        r = self.indices.known["r",]
        text = self.full(r, dims)
        return r if text == str(r) else self.lines.name(text, r.dtype, dims)

    def scan(self, node: Node) -> TritonValue:
        """The block has all dimensions of the kernel's: of a row that several threads hold, Triton 3.6 takes the wrong thread's end."""
        fold, x = self.folded(node)
        result = x
        if self.has_block:
            whole = frozenset(tile.name for tile in self.blocks)
            if x.tile != whole:
                x = self.lines.name(self.full(x, whole), fold.dtype, whole)
            text = f"tl.associative_scan({x}, {self.axis()}, fold_{fold.function})"
            result = self.lines.name(self.from_zero(fold, text), fold.dtype, whole)
        if self.schedule.looped:
            carry = self.carry(node)
            result = self.lines.name(f"fold_{fold.function}({carry}, {result})", fold.dtype, result.tile)
            following = self.last_of_block(result) if fold.keeps_last else None
            self.lines.add(f"{carry} = {following or f'fold_{fold.function}({carry}, {self.reduced(fold, [x])})'}")
        return self.result(fold, result)

    def last_of_block(self, x: TritonValue) -> TritonValue:
        """A block's last element along the row. A reduction folds in any order: the position decides."""
        if not self.has_block:
            return x
        self.functions["latest"] = function_text("latest")
        keep = ", keep_dims=True" if len(self.blocks) > 1 else ""
        pair = f"tl.reduce(({x}, {self.place(x.tile)}), {self.axis()}, fold_latest{keep})"
        return self.lines.name(f"{pair}[0]", x.dtype, x.tile - {"r"})

    def carry(self, node: Node) -> str:
        """The variable that takes a scan from one block of the row to the next."""
        return f"carry{[n for n in self.kernel.nodes if n.kind == 'scan'].index(node)}"


def expression(linear: Linear) -> Int:
    total = linear.rest
    for name, stride in linear.strides.items():
        total = total + symbols.symbol(name) * stride
    return total
