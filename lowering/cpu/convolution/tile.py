"""Gemm tiles of convolutions, a few rows by some vectors of columns, as functions in MLIR text.

    tile[r, :] += sum over i, j, ... of a[r * row + i * ai + j * aj + ...] * panel[i * bi + j * bj + ... :]

All sums of a tile stay in registers; elements of the rows are read where they are, one at a time, and broadcast.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mlirc.lowering.target import CpuTarget


def tile_shape(target: CpuTarget) -> tuple[int, int]:
    """Rows and vectors of a tile: as many as leave registers for a row of the panel and a broadcast element."""
    return (6, 4) if target.vector_bytes == 64 or target.arch == "aarch64" else (4, 3)


def column_tiles(columns: int, lanes: int, most: int) -> list[tuple[int, int, int]]:
    """(first column, number of tiles, vectors) of runs of equal tiles: all about as wide."""
    vectors = -(-columns // lanes)
    tiles = -(-vectors // most)
    narrow = -(-vectors // tiles) * tiles - vectors
    wide = -(-vectors // tiles)
    runs = [(0, tiles - narrow, wide), ((tiles - narrow) * wide * lanes, narrow, wide - 1)]
    return [run for run in runs if run[1] and run[2]]


@dataclass(frozen=True)
class ConvolutionTile:
    """A function's name and shape. What it is called with:

    row     elements from one row of `a` to the next; None where they are neighbours
    steps   of each loop, outermost first: elements from one iteration to the next, in `a` and in the panel
    pitch   elements from one row of the tile to the next
    counts  of each loop
    """

    name: str
    rows: int
    vectors: int
    lanes: int
    loops: int
    neighbours: bool

    def call(
        self,
        places: Sequence[str],
        row: str | None,
        steps: Sequence[tuple[str, str]],
        pitch: str,
        counts: Sequence[str],
    ) -> str:
        """`places`: of a, the panel and the tile."""
        numbers = [*([] if row is None else [row]), pitch, *(x for step in steps for x in step), *counts]
        types = ", ".join(["!llvm.ptr"] * 3 + ["i64"] * len(numbers))
        return f"llvm.call @{self.name}({', '.join([*places, *numbers])}) : ({types}) -> ()"

    @property
    def text(self) -> str:
        names = [*([] if self.neighbours else ["row"]), "pitch"]
        names += [f"{side}s{k}" for k in range(self.loops) for side in "ab"] + [f"n{k}" for k in range(self.loops)]
        numbers = ", ".join(f"%{name}: i64" for name in names)
        lines = [
            f"llvm.func internal @{self.name}(%a: !llvm.ptr, %panel: !llvm.ptr, %tile: !llvm.ptr, {numbers}) {{",
            f"%zero = arith.constant dense<0.0> : {self.vector}",
            "%none = arith.constant 0 : i64\n%one = arith.constant 1 : i64",
        ]
        for i in range(1, self.rows):
            lines.append(f"%number{i} = arith.constant {i} : i64\n%down{i} = arith.muli %pitch, %number{i} : i64")
            if not self.neighbours:
                lines.append(f"%row{i} = arith.muli %row, %number{i} : i64")
        sums = self.loop(lines, 0, "%a", "%panel", ["%zero"] * len(self.cells))
        for (i, j), total in zip(self.cells, sums, strict=True):
            if j == 0:
                self.advance(lines, f"tile{i}", "%tile", f"%down{i}" if i else "0")
            self.load(lines, f"q{i}_{j}", f"%tile{i}", j * self.lanes)
            lines.append(f"%t{i}_{j} = arith.addf %q{i}_{j}, {total} : {self.vector}")
            lines.append(f"llvm.store %t{i}_{j}, %q{i}_{j}p {{alignment = 4 : i64}} : {self.vector}, !llvm.ptr")
        return "\n".join([*lines, "llvm.return\n}"])

    @property
    def vector(self) -> str:
        return f"vector<{self.lanes}xf32>"

    @property
    def cells(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(self.rows) for j in range(self.vectors)]

    def loop(self, lines: list[str], k: int, a: str, panel: str, carried: list[str]) -> list[str]:
        if k == self.loops:
            return self.multiply(lines, a, panel, carried)
        kinds = ", ".join([self.vector] * len(carried))
        names = [f"%c{k}_{i}_{j}" for i, j in self.cells]
        starts = ", ".join(f"{name} = {x}" for name, x in zip(names, carried, strict=True))
        head = f"%s{k}:{len(carried)} = scf.for %i{k} = %none to %n{k} step %one iter_args({starts}) -> ({kinds})"
        lines.append(f"{head} : i64 {{")
        for side, base in (("a", a), ("b", panel)):
            lines.append(f"%{side}o{k} = arith.muli %i{k}, %{side}s{k} : i64")
            self.advance(lines, f"{side}{k}", base, f"%{side}o{k}")
        last = self.loop(lines, k + 1, f"%a{k}", f"%b{k}", names)
        lines.append(f"scf.yield {', '.join(last)} : {kinds}\n}}")
        return [f"%s{k}#{number}" for number in range(len(carried))]

    def multiply(self, lines: list[str], a: str, panel: str, carried: list[str]) -> list[str]:
        for j in range(self.vectors):
            self.load(lines, f"b_{j}", panel, j * self.lanes)
        sums = dict(zip(self.cells, carried, strict=True))
        for i in range(self.rows):
            self.advance(lines, f"ap{i}", a, str(i) if self.neighbours or not i else f"%row{i}")
            lines.append(f"%ae{i} = llvm.load %ap{i} {{alignment = 4 : i64}} : !llvm.ptr -> f32")
            lines.append(f"%av{i} = vector.broadcast %ae{i} : f32 to {self.vector}")
            for j in range(self.vectors):
                lines.append(f"%m{i}_{j} = math.fma %av{i}, %b_{j}, {sums[i, j]} : {self.vector}")
                sums[i, j] = f"%m{i}_{j}"
        return list(sums.values())

    def load(self, lines: list[str], name: str, base: str, place: int) -> None:
        self.advance(lines, f"{name}p", base, str(place))
        lines.append(f"%{name} = llvm.load %{name}p {{alignment = 4 : i64}} : !llvm.ptr -> {self.vector}")

    def advance(self, lines: list[str], name: str, base: str, place: str) -> None:
        """`place`: a number, or the name of one."""
        types = "!llvm.ptr, i64" if place.startswith("%") else "!llvm.ptr"
        lines.append(f"%{name} = llvm.getelementptr {base}[{place}] : ({types}) -> !llvm.ptr, f32")
