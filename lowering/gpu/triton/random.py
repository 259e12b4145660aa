"""Random numbers in Triton kernels: four neighbours at once where a tile allows it, because Philox gives four numbers."""

from typing import Any

import torch

from mlirc.lowering.gpu.triton.builder import TritonValue
from mlirc.lowering.gpu.triton.tiles import Tiles
from mlirc.lowering.kernel.nodes import Node

NAME = "philox_quads"
QUADS = '''@triton.jit
def philox_quads(seed, counter, first, WIDTH: tl.constexpr, THREADS: tl.constexpr):
    """Uniform numbers for the elements first .. first + 3: dialects/ops/nn/random.py says which."""
    quad = first // 4
    PER: tl.constexpr = WIDTH // 4
    position = counter + (quad // (PER * THREADS) * PER + quad % PER)
    a, b = position.to(tl.uint32), (position >> 32).to(tl.uint32)
    c = (quad // PER % THREADS).to(tl.uint32)
    d = tl.zeros_like(a)
    key, other = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        p = a.to(tl.uint64) * 0xD2511F53  # both halves by one instruction
        q = c.to(tl.uint64) * 0xCD9E8D57
        a, b, c, d = (q >> 32).to(tl.uint32) ^ b ^ key, q.to(tl.uint32), (p >> 32).to(tl.uint32) ^ d ^ other, p.to(tl.uint32)
        key = tl.add(key, 0x9E3779B9, sanitize_overflow=False)
        other = tl.add(other, 0xBB67AE85, sanitize_overflow=False)
    words = tl.join(tl.join(a, c), tl.join(b, d)).to(tl.float32)
    return words * 2.3283064365386963e-10 + 1.1641532182693481e-10
'''


def quads(e: Tiles, node: Node, operands: list[TritonValue]) -> TritonValue | None:
    """The value of a `philox_uniform`, or None where neighbours in the tile are no neighbours in memory."""
    seed, counter, index = operands
    if not _in_fours(e, node.operands[2]):
        return None
    *outer, last = [e.block_name(t) if t.name in index.tile else "1" for t in e.blocks]
    shape = ", ".join([*outer, f"{last} // 4", "4"])
    e.functions[NAME] = QUADS
    narrow = f"{index}.to(tl.int32)" if e.indices.narrow else str(index)
    first = e.lines.name(f"tl.min(tl.reshape({narrow}, [{shape}]), {len(outer) + 1})", e.indices.dtype, index.tile)
    width, threads = (node.attributes[name] for name in ("width", "threads"))
    text = f"tl.reshape({NAME}({seed}, {counter}, {first}, {width}, {threads}), {e.shape(index.tile)})"
    return e.lines.name(text, torch.float32, index.tile)


def _in_fours(e: Tiles, index: Node) -> bool:
    """Whether each four points along the tile's last side, from a multiple of 4 on, are four elements from such a one on."""
    while index.kind == "cast":
        (index,) = index.operands
    if index.kind != "size" or not e.blocks:
        return False
    tile = e.blocks[-1]
    strides: dict[str, Any] = dict(index.size.strides)
    fast = tile.axes[-1]
    if tile.block % 4 or strides.pop(fast.name, 0) != 1 or not isinstance(fast.size, int) or fast.size % 4:
        return False
    rest = index.size.rest
    return all(isinstance(n, int) and n % 4 == 0 for n in (*strides.values(), rest))
