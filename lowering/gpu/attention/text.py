"""What the texts of attention's kernels share: positions, loads of rows, loops over a block mask's lists.

y, x     queries and keys of the tile; y_line, x_line: the same as vectors; d0, d1: batch and head
p0, ...  the call's operands
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.gpu.attention.emitter import NarrowEmitter
from mlirc.lowering.gpu.attention.tiling import FlexTiling, width
from mlirc.lowering.gpu.triton.builder import HALF, TL_DTYPE, TritonValue
from mlirc.lowering.gpu.triton.indices import LARGEST
from mlirc.lowering.gpu.triton.rounded import EXP2, PTX
from mlirc.lowering.gpu.triton.schedule import TritonSchedule, TritonTile
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.flex_attention import FlexProblem
from mlirc.lowering.kernel.nodes import Node

LOG2E = 1.4426950408889634
LISTED = "number == found"  # whether there is the block that a list names


@dataclass(eq=False)
class FlexText:
    """Writes one kernel. `tiles` are in the order of a tile's dimensions: y, x, or x, y."""

    e: NarrowEmitter
    problem: FlexProblem
    tiling: FlexTiling

    @property
    def queries(self) -> TritonTile:
        return next(t for t in self.e.schedule.tiles if t.name == "y")

    @property
    def keys(self) -> TritonTile:
        return next(t for t in self.e.schedule.tiles if t.name == "x")

    @property
    def is_exact(self) -> bool:
        """Whether results are float32."""
        return self.problem.info("q").dtype not in HALF

    def add(self, line: str) -> None:
        self.e.lines.add(line)

    def number(self, n: Int) -> str:
        return self.e.indices.number(n)

    # ---- programs and positions

    def bind_programs(self, tile: TritonTile, heads: Int, head: str, batch: str, last_first: bool) -> None:
        """Blocks of `tile` are counted first, so that programs side by side read the same keys."""
        blocks = blocks_of(tile.size, tile.block)
        self.add("program = tl.program_id(0)" + ("" if self.e.indices.narrow else ".to(tl.int64)"))
        block = f"program % {self.number(blocks)}"
        self.add(f"block = {self.number(blocks)} - 1 - {block}" if last_first else f"block = {block}")
        self.add(f"rest = program // {self.number(blocks)}")
        self.add(f"{head} = rest % {self.number(heads)}")
        self.add(f"{batch} = rest // {self.number(heads)}")
        self.add(f"first = block * {self.e.block_name(tile)}")
        self.bind(tile, "first")

    def bind(self, tile: TritonTile, first: str) -> None:
        """The positions of a tile from `first` on, and which of them are inside."""
        e, name = self.e, tile.name
        wide = "" if e.indices.narrow else ".to(tl.int64)"
        place = ", ".join(":" if t is tile else "None" for t in e.blocks)
        self.add(f"{name}_line = {first} + tl.arange(0, {e.block_name(tile)}){wide}")
        self.add(f"{name} = {name}_line[{place}]")
        e.indices.known[name,] = TritonValue(name, e.indices.dtype, frozenset((name,)))
        if not tile.divides:
            self.add(f"{name}_inside = {name}_line < {self.number(tile.size)}")
            self.add(f"{name}_mask = {name}_inside[{place}]")
            e.masks[name] = f"{name}_mask"

    def bind_place(self, batch: str, head: str) -> None:
        """The batch and head of the query."""
        for axis, text in (("d0", batch), ("d1", head)):
            if text != axis:
                self.add(f"{axis} = {text}")
            self.e.indices.known[axis,] = TritonValue(axis, self.e.indices.dtype)

    def shared_head(self) -> tuple[str, str]:
        """Batch and head of the keys."""
        group = self.problem.group
        return "d0", "d1" if group == 1 else f"(d1 // {self.number(group)})"

    # ---- memory

    def base(self, name: str, batch: str, head: str) -> str:
        """Writes the address of a batch's and head's part of a tensor; its name."""
        info = self.problem.info(name)
        text = f"p{self.problem.place[name]}"
        for place, size, stride in ((batch, info.shape[0], info.stride[0]), (head, info.shape[1], info.stride[1])):
            if size != 1 and stride != 0:
                text += f" + {place}.to(tl.int64) * {self.number(stride)}"
        self.add(f"{name}_at = {text}")
        return f"{name}_at"

    def rows(self, name: str, tile: TritonTile) -> str:
        """A tile of rows of a tensor [B, H, rows, head], once `base` is written; 0 where there are none."""
        pointer, mask = self.pointer(name, tile)
        return f"tl.load({pointer}{f', mask={mask}, other=0.0' if mask else ''})"

    def pointer(self, name: str, tile: TritonTile) -> tuple[str, str]:
        info, wide = self.problem.info(name), width(self.problem, name if name in ("q", "k") else head_of(name))
        head = info.shape[3]
        line = f"{tile.name}_line[:, None]"
        across = f"tl.arange(0, {wide})[None, :]"
        step = info.stride[3]
        pointer = f"{name}_at + {line} * {self.number(info.stride[2])} + {across}"
        pointer += "" if step == 1 else f" * {self.number(step)}"
        inside = [f"{tile.name}_inside[:, None]"] if tile.name in self.e.masks else []
        inside += [f"({across} < {head})"] if head != wide else []
        return pointer, " & ".join(inside)

    def line(self, name: str, tile: TritonTile, other: str) -> str:
        """The numbers of a tensor [B, H, rows] for the rows of a tile."""
        pointer = self.line_pointer(name, tile)
        mask = f", mask={tile.name}_inside, other={other}" if tile.name in self.e.masks else ""
        return f"tl.load({pointer}{mask})"

    def line_pointer(self, name: str, tile: TritonTile) -> str:
        return f"{name}_at + {tile.name}_line * {self.number(self.problem.info(name).stride[2])}"

    def store_rows(self, name: str, tile: TritonTile, value: str) -> None:
        pointer, mask = self.pointer(name, tile)
        dtype = TL_DTYPE[self.problem.info(name).dtype]
        self.add(f"tl.store({pointer}, {value}.to({dtype}){f', mask={mask}' if mask else ''})")

    def store_line(self, name: str, tile: TritonTile, value: str) -> None:
        mask = f", mask={tile.name}_inside" if tile.name in self.e.masks else ""
        self.add(f"tl.store({self.line_pointer(name, tile)}, {value}{mask})")

    # ---- products

    def dot(self, x: str, y: str, total: str = "") -> str:
        more = (f", {total}" if total else "") + (', input_precision="ieee"' if self.is_exact else "")
        return f"tl.dot({x}, {y}{more})"

    def narrowed(self, x: str) -> str:
        """Weights or slopes in the dtype of what they are multiplied by."""
        return x if self.is_exact else f"{x}.to({TL_DTYPE[self.problem.info('q').dtype]})"

    def weights(self, scores: str, factor: float, base: str) -> str:
        """2^(scores * factor - base): those of a softmax, before they are divided by their sum."""
        exponent = f"tl.fma({scores}, {factor!r}, -{base})"
        if self.is_exact:
            return f"tl.exp2({exponent})"
        self.e.functions["exp2_flushed"] = EXP2
        return f"exp2_flushed({exponent}, {PTX})"

    # ---- the body

    def outer_values(self, tile: TritonTile) -> None:
        """Computes what the loop over this tile's blocks does not change."""
        axis = {a.name for a in tile.axes}
        virtual = {id(x) for k in (0, 1) for x in self.problem.reads(k)}
        changing: set[int] = set()
        for node in self.problem.body.nodes:
            if id(node) in virtual or node.dims & axis or any(id(x) in changing for x in node.operands):
                changing.add(id(node))
            elif node.kind != "constant":
                self.e.value(node)

    def known(self, nodes: list[Node], name: str) -> None:
        """These reads have the variable's value."""
        whole = frozenset(("x", "y"))
        for node in nodes:
            self.e.env[node] = TritonValue(name, torch.float32, whole)

    def full(self, x: TritonValue) -> str:
        """The value at each place of the tile."""
        return self.e.full(x, frozenset(("x", "y")))

    def changed(self, scores: str) -> tuple[str, float]:
        """The scores after score_mod, and by what they are to be multiplied for a softmax in base 2. `scores`: before the scale."""
        problem = self.problem
        if problem.is_plain and problem.scale > 0:
            self.add(f"s = {scores}")
            return "s", problem.scale * LOG2E
        self.add(f"s = {scores} * {problem.scale!r}")
        self.known(problem.reads(0), "s")
        made = self.full(self.e.value(problem.changed))
        return made, LOG2E

    def seen(self, partial: bool, tile: TritonTile) -> str:
        """What says which scores count: mask_mod in partial blocks, and the end of what is looped over. Empty where all do."""
        parts = [self.e.masks[tile.name]] if tile.name in self.e.masks else []
        if partial:
            seen = self.e.value(self.problem.seen)
            parts += [] if seen.number else [f"({seen})" if " " in seen else str(seen)]
        return " & ".join(parts)

    def where(self, seen: str, x: str, other: str) -> str:
        """x at the places that count."""
        return f"tl.where({seen}, {x}, {other})" if seen else x

    def hide(self, indices: str, along: TritonTile, values: dict[str, str]) -> None:
        """Gives these variables other values where there is no such block as the list names. This branch costs less than to ask at each score."""
        if along.divides and not self.lists_one(indices):
            self.add(f"if not ({LISTED}):")
            with self.e.scope():
                for name, value in values.items():
                    self.add(f"{name} = {value}")

    # ---- loops

    def lists_one(self, indices: str) -> bool:
        """Whether a list has one block at most, as that of a mask that hides nothing."""
        return self.problem.info(indices).shape[3] == 1

    @contextmanager
    def loop(
        self, counts: str, indices: str, across: TritonTile, along: TritonTile, block: int, step: int
    ) -> Iterator[None]:
        """A loop over the blocks that a list of the mask has for the program's block of `across`; `block` is that one's size in the mask, `step` the
        size of those that are listed."""
        e, problem = self.e, self.problem
        count, index = problem.info(counts), problem.info(indices)
        row = f"tl.minimum(first // {block}, {self.number(count.shape[2] - 1)})"
        places = [("d0", 0), ("d1", 1), (row, 2)]
        at = {name: f"p{problem.place[name]}" for name in (counts, indices)}
        for name, info in ((counts, count), (indices, index)):
            for place, d in places:
                if info.shape[d] != 1 and info.stride[d] != 0:
                    at[name] += f" + {place} * {self.number(info.stride[d])}"
        kind = f".to({TL_DTYPE[e.indices.dtype]})"
        listed = symbols.minimum(step // along.block, blocks_of(along.size, along.block))
        each = "" if listed == 1 else f" * {self.number(listed)}"
        last = self.number(blocks_of(along.size, step) - 1)
        clamped = f"number = tl.maximum(tl.minimum(found, {last}), 0)"
        self.add(f"listed = {at[indices]}")
        self.add(f"count = tl.minimum(tl.load({at[counts]}){kind}, {self.number(index.shape[3])}){each}")
        one = self.lists_one(indices)
        if one:
            self.add(f"found = tl.load(listed){kind}")
            self.add(clamped)
            self.add(f"count = tl.where({LISTED}, count, 0)")
        reported = set(e.reported)
        self.add("for step in range(0, count):")
        with e.scope():
            if not one:
                number = "step" if listed == 1 else f"step // {self.number(listed)}"
                stride = index.stride[3]
                far = number if stride == 1 else f"({number}) * {self.number(stride)}"
                self.add(f"found = tl.load(listed + {far}){kind}")
                self.add(clamped)
            begin = f"number * {step}" if step <= LARGEST else "number"
            within = "step" if one else f"step % {self.number(listed)}"
            begin += "" if listed == 1 else f" + {within} * {e.block_name(along)}"
            # a mask that was cut lists blocks that there are not: none of their positions is inside
            self.add(
                f"start = {begin}"
                if along.divides or one
                else f"start = tl.where({LISTED}, {begin}, {self.number(along.size)})"
            )
            self.bind(along, "start")
            yield
        e.reported = reported


def head_of(name: str) -> str:
    """Whose head a tensor's rows have."""
    return {"dq": "q", "dk": "k"}.get(name, "v")


def blocks_of(size: Int, block: int) -> Int:
    return symbols.floordiv(size + block - 1, block)


def flex_text(problem: FlexProblem, tiling: FlexTiling, order: str) -> FlexText:
    """A text to be written. `order`: of a tile's dimensions, "yx" or "xy"."""
    batch, heads, rows, columns = problem.space
    tiles = {
        "y": TritonTile("y", (Axis("d2", rows, False),), tiling.queries),
        "x": TritonTile("x", (Axis("d3", columns, False),), tiling.keys),
    }
    programs = (Axis("d0", batch, False), Axis("d1", heads, False))
    schedule = TritonSchedule(tuple(tiles[name] for name in order), programs, False, tiling.num_warps)
    sizes = [info.extent for info in problem.operands] + [tile.size + tile.block for tile in tiles.values()]
    sizes.append(batch * heads * blocks_of(rows, 1))
    narrow = all(isinstance(n, int) and n <= LARGEST for n in sizes)
    dtype = torch.int32 if narrow else torch.int64
    e = NarrowEmitter(problem.body, schedule, dtype, positions_fit=narrow)
    e.rounded = problem.info("q").dtype in HALF
    return FlexText(e, problem, tiling)
