"""A point in a Triton kernel's text: its tiles, their points and masks, and known values."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from mlirc.lowering.gpu.triton.builder import Lines, TritonValue
from mlirc.lowering.gpu.triton.indices import Indices
from mlirc.lowering.gpu.triton.rounded import writes_half
from mlirc.lowering.gpu.triton.schedule import TritonSchedule, TritonTile
from mlirc.lowering.kernel.nodes import Kernel, Node


class Tiles:
    """`env` holds the values known at this place, and by ("checked", node) whether an index is good; `functions` the texts
    of the functions that it calls, by name."""

    def __init__(self, kernel: Kernel, schedule: TritonSchedule, index_dtype: torch.dtype):
        self.kernel, self.schedule = kernel, schedule
        self.lines = Lines()
        self.indices = Indices(self.lines, schedule, index_dtype)
        self.blocks = [tile for tile in schedule.tiles if tile.block > 1]
        self.env: dict[Any, TritonValue] = {}
        self.masks: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.rounded = writes_half(kernel)
        self.within = {k: (j, n) for k, j, n in kernel.subviews}
        self.reported: set[Node] = set()
        self.inner = frozenset(a.name for tile in schedule.tiles for a in tile.axes if a.inner)

    # ---- tiles

    def block_name(self, tile: TritonTile) -> str:
        return f"{tile.name.upper()}BLOCK"

    def shape(self, dims: frozenset[str]) -> str:
        sizes = [self.block_name(t) if t.name in dims else "1" for t in self.blocks]
        return f"[{', '.join(sizes)}]"

    def bind(self, tile: TritonTile, first: str, whole: bool = False) -> None:
        """The points of a tile dimension from `first` on, and which of them are inside; `whole`: all of them."""
        text, dims = first, frozenset[str]()
        if tile in self.blocks:
            dims = frozenset((tile.name,))
            places = [":" if t is tile else "None" for t in self.blocks]
            spread = f"[{', '.join(places)}]" if len(places) > 1 else ""
            arange = f"tl.arange(0, {self.block_name(tile)}){spread}"
            if not self.indices.narrow:
                arange += ".to(tl.int64)"
            text = arange if first == "0" else f"{first} + {arange}"
        self.lines.add(f"{tile.name} = {text}")
        self.indices.known[tile.name,] = TritonValue(tile.name, self.indices.dtype, dims)
        if tile in self.blocks and not (tile.divides or whole):
            self.lines.add(f"{tile.name}_mask = {tile.name} < {self.indices.number(tile.size)}")
            self.masks[tile.name] = f"{tile.name}_mask"

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A context manager for a loop's body: values named inside are unknown after it."""
        env, known, masks = dict(self.env), dict(self.indices.known), dict(self.masks)
        self.lines.depth += 1
        yield
        self.lines.depth -= 1
        self.env, self.indices.known, self.masks = env, known, masks

    def mask(self, dims: frozenset[str], more: TritonValue | None = None) -> tuple[str, frozenset[str]]:
        """The mask of what has these tile dimensions, as text ("": none), and its dimensions."""
        parts = [text for name, text in self.masks.items() if name in dims]
        tile = frozenset(name for name in self.masks if name in dims)
        if more is not None:
            parts.append(str(more))
            tile |= more.tile
        return " & ".join(parts), tile

    def full(self, x: TritonValue, dims: frozenset[str]) -> str:
        """`x` with the whole shape of `dims`."""
        return str(x) if x.tile >= dims or not dims else f"tl.broadcast_to({x}, {self.shape(dims)})"

    def dims_of(self, names: frozenset[str]) -> frozenset[str]:
        """The tile dimensions of blocks that these axes are in."""
        return frozenset(t.name for t in self.blocks if any(a.name in names for a in t.axes))
