"""Gemm tiles of attention, a few rows by a panel of columns, as functions in MLIR text.

    tile[rows, W] = rows[rows, n] @ panel[n, W]                     all of the tile in registers
    tile[rows, W] = tile * factor + rows[rows, n] @ panel[n, W]     factor: one number a column
    tile[rows, W] = tile + (rows[rows, n] @ panel[n, W])

W is two vectors, or one. Elements of the rows are read where they are, one at a time, and broadcast.
"""

from dataclasses import dataclass

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.target import CpuTarget

VECTORS = 2  # of a panel's row


def most_rows(target: CpuTarget) -> int:
    """Rows of a tile: as many as leave registers for a row of the panel and a broadcast element."""
    registers = 32 if target.vector_bytes == 64 or target.arch == "aarch64" else 16
    return (registers - VECTORS - 1) // VECTORS


def split_rows(count: int, most: int) -> tuple[int, list[int]]:
    """Rows of the full tiles and of the one that is left, if any, for a known number of rows."""
    tiles = max(1, -(-count // most))
    full = -(-count // tiles)
    return full, [count % full] if count % full else []


def even_rows(count: Int, most: int) -> int:
    """Rows of tiles that are all alike: not many past the last row."""
    if not isinstance(count, int):
        return most
    few = range(max(1, most * 3 // 4), most + 1)
    return max(1, min(count, min(few, key=lambda rows: (-(-count // rows) * rows, -rows))))


def powers_of_two_below(most: int) -> list[int]:
    """Rows of the tiles that any rest is made of, the largest first."""
    return [1 << k for k in reversed(range(most.bit_length())) if 1 << k < most]


@dataclass(frozen=True)
class AttentionTile:
    """A function's name and shape. Strides that are known are part of the code.

    row, step      strides of the rows' elements along the rows and along n, in elements
    start          "zero", "factor" or "tile": what the product is added to, as above
    panel, pitch   elements from one row of the panel, or of the tile, to the next
    vectors        of a row of the tile
    """

    name: str
    rows: int
    row: Int
    step: Int
    start: str
    lanes: int
    panel: int
    pitch: int
    vectors: int = VECTORS

    def call(self, a: str, row: str, step: str, n: str, panel: str, tile: str, factor: str = "") -> str:
        factors = f", {factor}" if factor else ""
        kinds = ", !llvm.ptr" if factor else ""
        return (
            f"llvm.call @{self.name}({a}, {row}, {step}, {n}, {panel}, {tile}{factors}) : "
            f"(!llvm.ptr, i64, i64, i64, !llvm.ptr, !llvm.ptr{kinds}) -> ()"
        )

    @property
    def text(self) -> str:
        vector, align = f"vector<{self.lanes}xf32>", f"{{alignment = {4 * self.lanes} : i64}}"
        cells = [(i, j) for i in range(self.rows) for j in range(self.vectors)]
        factor = ", %factor: !llvm.ptr" if self.start == "factor" else ""
        out = [
            f"llvm.func internal @{self.name}(%a: !llvm.ptr, %row: i64, %step: i64, %n: i64, %panel: !llvm.ptr, "
            f"%tile: !llvm.ptr{factor}) {{",
            f"%zero = arith.constant dense<0.0> : {vector}",
            "%k0 = arith.constant 0 : i64\n%one = arith.constant 1 : i64",
            f"%width = arith.constant {self.panel} : i64",
        ]
        step = "%step"
        if isinstance(self.step, int):
            out.append(f"%known = arith.constant {self.step} : i64")
            step = "%known"
        if not isinstance(self.row, int):
            for i in range(self.rows):
                out.append(f"%i{i} = arith.constant {i} : i64\n%o{i} = arith.muli %i{i}, %row : i64")
        for j in range(self.vectors if factor else 0):
            out.append(f"%fp{j} = llvm.getelementptr %factor[{j * self.lanes}] : (!llvm.ptr) -> !llvm.ptr, f32")
            out.append(f"%f{j} = llvm.load %fp{j} {align} : !llvm.ptr -> {vector}")
        for i, j in cells:
            place = i * self.pitch + j * self.lanes
            out.append(f"%p{i}_{j} = llvm.getelementptr %tile[{place}] : (!llvm.ptr) -> !llvm.ptr, f32")
            if factor:
                out.append(f"%q{i}_{j} = llvm.load %p{i}_{j} {align} : !llvm.ptr -> {vector}")
                out.append(f"%z{i}_{j} = arith.mulf %q{i}_{j}, %f{j} : {vector}")
        kinds = ", ".join([vector] * len(cells))
        starts = ", ".join(f"%c{i}_{j} = " + (f"%z{i}_{j}" if factor else "%zero") for i, j in cells)
        out.append(f"%sum:{len(cells)} = scf.for %k = %k0 to %n step %one iter_args({starts}) -> ({kinds}) : i64 {{")
        out.append(f"%bo = arith.muli %k, %width : i64\n%ko = arith.muli %k, {step} : i64")
        out.append("%bk = llvm.getelementptr %panel[%bo] : (!llvm.ptr, i64) -> !llvm.ptr, f32")
        out.append("%ak = llvm.getelementptr %a[%ko] : (!llvm.ptr, i64) -> !llvm.ptr, f32")
        for j in range(self.vectors):
            out.append(f"%bp{j} = llvm.getelementptr %bk[{j * self.lanes}] : (!llvm.ptr) -> !llvm.ptr, f32")
            out.append(f"%b{j} = llvm.load %bp{j} {align} : !llvm.ptr -> {vector}")
        for i in range(self.rows):
            if isinstance(self.row, int):
                out.append(f"%ap{i} = llvm.getelementptr %ak[{i * self.row}] : (!llvm.ptr) -> !llvm.ptr, f32")
            else:
                out.append(f"%ap{i} = llvm.getelementptr %ak[%o{i}] : (!llvm.ptr, i64) -> !llvm.ptr, f32")
            out.append(f"%as{i} = llvm.load %ap{i} {{alignment = 4 : i64}} : !llvm.ptr -> f32")
            out.append(f"%av{i} = vector.broadcast %as{i} : f32 to {vector}")
            for j in range(self.vectors):
                out.append(f"%n{i}_{j} = math.fma %av{i}, %b{j}, %c{i}_{j} : {vector}")
        out.append(f"scf.yield {', '.join(f'%n{i}_{j}' for i, j in cells)} : {kinds}\n}}")
        for number, (i, j) in enumerate(cells):
            done = f"%sum#{number}"
            if self.start == "tile":
                out.append(f"%q{i}_{j} = llvm.load %p{i}_{j} {align} : !llvm.ptr -> {vector}")
                out.append(f"%t{i}_{j} = arith.addf %q{i}_{j}, {done} : {vector}")
                done = f"%t{i}_{j}"
            out.append(f"llvm.store {done}, %p{i}_{j} {align} : {vector}, !llvm.ptr")
        return "\n".join([*out, "llvm.return\n}"])
