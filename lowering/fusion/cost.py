"""The cost model of fusion: bytes moved, points evaluated, and whether an expression may be computed again."""

from collections.abc import Iterable
from functools import lru_cache

from mlirc.dialects.core import symbols
from mlirc.lowering.analysis.index_maps import Space
from mlirc.lowering.analysis.typical_sizes import typical
from mlirc.lowering.fusion.body import BodyNode, Tensor

TRIVIAL = 4  # cheap ops that are sooner computed again than stored and read


@lru_cache(maxsize=65536)
def points(space: Space) -> int:
    return typical(symbols.product(space))


def size_bytes(tensor: Tensor) -> int:
    return typical(tensor.info.numel) * tensor.info.dtype.itemsize


def total_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(map(size_bytes, tensors))


def work(nodes: list[BodyNode]) -> int:
    return sum(node.is_work for node in nodes)


def is_cheap(nodes: list[BodyNode]) -> bool:
    return all(node.is_cheap for node in nodes)


def is_trivial(nodes: list[BodyNode]) -> bool:
    """Whether it may be computed at many more points than before."""
    return is_cheap(nodes) and work(nodes) <= TRIVIAL
