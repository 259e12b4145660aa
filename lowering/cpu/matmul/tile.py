"""The innermost function of a gemm: a tile of sums in registers, one pass over k.

    llvm.func internal @kernel_0_tile14x32(%a, %lda, %ka, %b, %c, %ldc, %all, %adds)      c[14, 32] = a[14, all] @ b[all, 32]

`a` is read element by element, each in every lane; a step of `b`, a panel, has `panel` elements side by side, of which the
tile takes `width`; rows of `c` are `ldc` float32 apart, and added to where `adds` holds. Strides, and steps along k, count what
`factors` multiplies at once.

Strides of `a` that are known are part of the code: every element then has an address without arithmetic, which on Intel's
processors would take turns with the products.

A tile that fetches has three more arguments, %next, %apart and %rate: see matmul/prefetch.py.
"""

from dataclasses import dataclass

BLOCK = 256  # products that are summed before they are added to the tile
ARGUMENTS = "%a: !llvm.ptr, %lda: i64, %ka: i64, %b: !llvm.ptr, %c: !llvm.ptr, %ldc: i64, %all: i64, %adds: i1"
TYPES = "(!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr, i64, i64, i1) -> ()"
FETCHING_ARGUMENTS = f"{ARGUMENTS}, %next: !llvm.ptr, %apart: i64, %rate: i64"
FETCHING_TYPES = TYPES.replace("i1)", "i1, !llvm.ptr, i64, i64)")


class Floats:
    """Factors of float32."""

    element, panel, block = "f32", "f32", BLOCK

    def load_columns(self, out: list[str], name: str, address: str, lanes: int) -> None:
        out.append(f"{name} = llvm.load {address} {{alignment = 4 : i64}} : !llvm.ptr -> vector<{lanes}xf32>")

    def load_element(self, out: list[str], name: str, address: str, lanes: int) -> None:
        """One element in every lane."""
        out.append(f"{name}s = llvm.load {address} {{alignment = 4 : i64}} : !llvm.ptr -> f32")
        out.append(f"{name} = vector.broadcast {name}s : f32 to vector<{lanes}xf32>")

    def multiply(self, out: list[str], name: str, a: str, b: str, c: str, lanes: int) -> None:
        out.append(f"{name} = math.fma {a}, {b}, {c} : vector<{lanes}xf32>")


class Widened(Floats):
    """Elements of `a` in float32; a panel's in bfloat16, widened here: few instructions beside the products of all rows."""

    panel = "i16"

    def load_columns(self, out: list[str], name: str, address: str, lanes: int) -> None:
        halves, words = f"vector<{lanes}xi16>", f"vector<{lanes}xi32>"
        out.append(f"{name}h = llvm.load {address} {{alignment = 2 : i64}} : !llvm.ptr -> {halves}")
        out.append(f"{name}w = arith.extui {name}h : {halves} to {words}")
        out.append(f"{name}n = arith.constant dense<16> : {words}")
        out.append(f"{name}u = arith.shli {name}w, {name}n : {words}")
        out.append(f"{name} = arith.bitcast {name}u : {words} to vector<{lanes}xf32>")


class Pairs:
    """Pairs of bfloat16 along k, 32 bits a step. The instruction takes subnormal factors for 0, as eager's does."""

    element, panel, block = "i32", "i32", BLOCK // 2

    def load_columns(self, out: list[str], name: str, address: str, lanes: int) -> None:
        out.append(f"{name} = llvm.load {address} {{alignment = 4 : i64}} : !llvm.ptr -> vector<{2 * lanes}xbf16>")

    def load_element(self, out: list[str], name: str, address: str, lanes: int) -> None:
        out.append(f"{name}s = llvm.load {address} {{alignment = 2 : i64}} : !llvm.ptr -> i32")
        out.append(f"{name}w = vector.broadcast {name}s : i32 to vector<{lanes}xi32>")
        out.append(f"{name} = llvm.bitcast {name}w : vector<{lanes}xi32> to vector<{2 * lanes}xbf16>")

    def multiply(self, out: list[str], name: str, a: str, b: str, c: str, lanes: int) -> None:
        pairs, sums = f"vector<{2 * lanes}xbf16>", f"vector<{lanes}xf32>"
        intrinsic = f"llvm.x86.avx512bf16.dpbf16ps.{lanes * 32}"
        out.append(f'{name} = llvm.call_intrinsic "{intrinsic}"({c}, {a}, {b}) : ({sums}, {pairs}, {pairs}) -> {sums}')


class PairsOfElements(Pairs):
    """Pairs where strides of `a` count elements."""

    element = "i16"


@dataclass(frozen=True)
class GemmTile:
    """rows x width sums, `lanes` to a vector. lda, ka: the strides of `a`, if known; run: bytes of the runs of memory that
    it fetches, 0 where it fetches none."""

    rows: int
    width: int
    panel: int
    lanes: int
    factors: Floats | Pairs
    lda: int | None = None
    ka: int | None = None
    run: int = 0

    def name(self, kernel: str) -> str:
        strides = "".join(f"_{n}" for n in (self.lda, self.ka) if n is not None)
        return f"{kernel}_tile{self.rows}x{self.width}{strides}{f'_fetching{self.run}' * bool(self.run)}"

    @property
    def types(self) -> str:
        """The type of its function."""
        return FETCHING_TYPES if self.run else TYPES

    @property
    def vectors(self) -> int:
        return self.width // self.lanes

    def text(self, kernel: str) -> str:
        """SHORT SUMS: a block of k is summed in registers, then added to the tile, so that rounding errors do not grow
        with K. Few sums take several k side by side."""
        vector, short = f"vector<{self.lanes}xf32>", self.rows * self.vectors
        unroll = max(1, min(8 // short, 4))
        first = [(0, i, j) for i in range(self.rows) for j in range(self.vectors)]
        cells = [(u, i, j) for u in range(unroll) for _, i, j in first]
        out = [
            f"llvm.func internal @{self.name(kernel)}({FETCHING_ARGUMENTS if self.run else ARGUMENTS}) {{",
            f"%zero = arith.constant dense<0.0> : {vector}",
            "%k0 = arith.constant 0 : i64\n%one = arith.constant 1 : i64",
            f"%step = arith.constant {unroll} : i64\n%block = arith.constant {self.factors.block} : i64",
            f"%width = arith.constant {self.panel} : i64",
        ]
        for name in ("lda", "ka"):
            if getattr(self, name) is not None:
                out.append(f"%known_{name} = arith.constant {getattr(self, name)} : i64")
        for i in range(self.rows):
            out.append(f"%i{i} = arith.constant {i} : i64\n%ao{i} = arith.muli %i{i}, {self.stride('lda')} : i64")
            out.append(f"%a{i} = llvm.getelementptr %a[%ao{i}] : (!llvm.ptr, i64) -> !llvm.ptr, {self.factors.element}")
            out.append(f"%co{i} = arith.muli %i{i}, %ldc : i64")
            out.append(f"%c{i} = llvm.getelementptr %c[%co{i}] : (!llvm.ptr, i64) -> !llvm.ptr, f32")
        for _, i, j in first:
            out.append(f"%p{i}_{j} = llvm.getelementptr %c{i}[{j * self.lanes}] : (!llvm.ptr) -> !llvm.ptr, f32")
        out.append("%once = arith.maxsi %all, %one : i64\nscf.for %kb = %k0 to %once step %block : i64 {")
        out.append("%far = arith.addi %kb, %block : i64\n%end = arith.minsi %far, %all : i64")
        main = "%end"
        if unroll > 1:
            out.append("%len = arith.subi %end, %kb : i64\n%over = arith.remui %len, %step : i64")
            out.append("%main = arith.subi %end, %over : i64")
            main = "%main"
        totals = self.sums(out, "sum", cells, ["%zero"] * len(cells), ("%k", "%kb", main, "%step"))
        for u, i, j in cells[len(first) :]:
            out.append(f"%t{u}_{i}_{j} = arith.addf {totals[0, i, j]}, {totals[u, i, j]} : {vector}")
            totals[0, i, j] = f"%t{u}_{i}_{j}"
        if unroll > 1:
            totals = self.sums(out, "rest", first, [totals[c] for c in first], ("%kr", "%main", "%end", "%one"))
        out.append("%later = arith.cmpi ne, %kb, %k0 : i64\n%old = arith.ori %adds, %later : i1\nscf.if %old {")
        for _, i, j in first:
            out.append(f"%q{i}_{j} = llvm.load %p{i}_{j} {{alignment = 4 : i64}} : !llvm.ptr -> {vector}")
            out.append(f"%s{i}_{j} = arith.addf %q{i}_{j}, {totals[0, i, j]} : {vector}")
            out.append(f"llvm.store %s{i}_{j}, %p{i}_{j} {{alignment = 4 : i64}} : {vector}, !llvm.ptr")
        out.append("} else {")
        for cell in first:
            out.append(
                f"llvm.store {totals[cell]}, %p{cell[1]}_{cell[2]} {{alignment = 4 : i64}} : {vector}, !llvm.ptr"
            )
        return "\n".join([*out, "}\n}", "llvm.return\n}"])

    def stride(self, name: str) -> str:
        return f"%{name}" if getattr(self, name) is None else f"%known_{name}"

    def sums(self, out: list[str], name: str, cells: list[tuple], starts: list[str], loop: tuple) -> dict[tuple, str]:
        """A loop along k that adds to `cells`, copy u of which takes step k + u; what they are after it."""
        k, lo, hi, step = loop
        types = ", ".join([f"vector<{self.lanes}xf32>"] * len(cells))
        names = {(u, i, j): f"%{name}c{u}_{i}_{j}" for u, i, j in cells}
        carried = ", ".join(f"{names[c]} = {start}" for c, start in zip(cells, starts, strict=True))
        head = f"%{name}:{len(cells)} = scf.for {k} = {lo} to {hi} step {step} iter_args({carried}) -> ({types})"
        out.append(f"{head} : i64 {{")
        for u in range(1 + max(c[0] for c in cells)):
            self.rank_one(out, u, names, k, f"{name}{u}_")
        out.append(f"scf.yield {', '.join(names[c] for c in cells)} : {types}\n}}")
        return {c: f"%{name}#{n}" for n, c in enumerate(cells)}

    def rank_one(self, out: list[str], u: int, names: dict, k: str, tag: str) -> None:
        """Every cell of copy `u` plus a[:, k + u] times step k + u of the panel; `names` then holds the new values."""
        factors, at = self.factors, k
        if u:
            out.append(f"%{tag}u = arith.constant {u} : i64\n%{tag}k = arith.addi {k}, %{tag}u : i64")
            at = f"%{tag}k"
        out.append(f"%{tag}bo = arith.muli {at}, %width : i64\n%{tag}ko = arith.muli {at}, {self.stride('ka')} : i64")
        out.append(f"%{tag}bk = llvm.getelementptr %b[%{tag}bo] : (!llvm.ptr, i64) -> !llvm.ptr, {factors.panel}")
        for j in range(self.vectors):
            place = f"%{tag}bk[{j * self.lanes}]"
            out.append(f"%{tag}bp{j} = llvm.getelementptr {place} : (!llvm.ptr) -> !llvm.ptr, {factors.panel}")
            factors.load_columns(out, f"%{tag}b{j}", f"%{tag}bp{j}", self.lanes)
        if self.run and not u:
            self.fetch(out, k, tag)
        for i in range(self.rows):
            place = f"%a{i}[%{tag}ko] : (!llvm.ptr, i64) -> !llvm.ptr, {factors.element}"
            out.append(f"%{tag}ap{i} = llvm.getelementptr {place}")
            factors.load_element(out, f"%{tag}av{i}", f"%{tag}ap{i}", self.lanes)
            for j in range(self.vectors):
                factors.multiply(out, f"%{tag}n{i}_{j}", f"%{tag}av{i}", f"%{tag}b{j}", names[u, i, j], self.lanes)
                names[u, i, j] = f"%{tag}n{i}_{j}"

    def fetch(self, out: list[str], k: str, tag: str) -> None:
        """Asks for the line of step `k`."""
        out.append(f"%{tag}shift = arith.constant {self.run.bit_length() - 1} : i64")
        out.append(f"%{tag}mask = arith.constant {self.run - 1} : i64\n%{tag}pos = arith.muli {k}, %rate : i64")
        out.append(f"%{tag}which = arith.shrui %{tag}pos, %{tag}shift : i64")
        out.append(f"%{tag}inside = arith.andi %{tag}pos, %{tag}mask : i64")
        out.append(
            f"%{tag}far = arith.muli %{tag}which, %apart : i64\n%{tag}off = arith.addi %{tag}far, %{tag}inside : i64"
        )
        out.append(f"%{tag}line = llvm.getelementptr %next[%{tag}off] : (!llvm.ptr, i64) -> !llvm.ptr, i8")
        hint = "<{cache = 1 : i32, hint = 2 : i32, rw = 0 : i32}>"
        out.append(f'"llvm.intr.prefetch"(%{tag}line) {hint} : (!llvm.ptr) -> ()')
