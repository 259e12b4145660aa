"""The cost model of fusion: bytes moved, points evaluated, and whether an expression may be computed again."""

from collections.abc import Iterable
from functools import lru_cache

from mlirc.dialects.core import symbols
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.lowering.analysis.index_maps import Space
from mlirc.lowering.analysis.work import bytes_of
from mlirc.lowering.fusion.body import FOLDS, Body, BodyNode, Tensor
from mlirc.lowering.kernel.typical_sizes import typical

# nominal rates for estimates, the same on every machine: bytes and scalar ops per nanosecond, nanoseconds of a launch
NOMINAL = {"cpu": (10.0, 16.0, 300.0), "cuda": (3000.0, 10000.0, 3000.0)}
TRIVIAL = 4  # an expression of at most this many cheap ops is recomputed sooner than stored and read


@lru_cache(maxsize=65536)
def points(space: Space) -> int:
    return typical(symbols.product(space))


def size_bytes(tensor: Tensor) -> int:
    return typical(tensor.info.numel) * tensor.info.dtype.itemsize


def total_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(map(size_bytes, tensors))


def work(nodes: list[BodyNode]) -> int:
    return sum([node.kind.is_work for node in nodes])


def is_cheap(nodes: list[BodyNode]) -> bool:
    return all(node.kind.is_cheap for node in nodes)


def is_trivial(nodes: list[BodyNode]) -> bool:
    """Whether it may be computed at many more points than before."""
    return is_cheap(nodes) and work(nodes) <= TRIVIAL


def moved(body: Body) -> int:
    """Bytes that a kernel reads and writes, each operand once, as `mlirc opt --stats` counts them."""
    return read_bytes(body) + sum([distinct_bytes(tensor.info) for tensor in body.outputs])


def read_bytes(body: Body) -> int:
    return sum([distinct_bytes(tensor.info) for tensor in body.tensors])


@lru_cache(maxsize=65536)
def distinct_bytes(info: TensorInfo) -> int:
    """Bytes of a tensor's distinct elements: those along an expanded dimension (stride 0) count once."""
    return typical(bytes_of(info))


def evaluations(body: Body) -> int:
    """Scalar ops that a kernel computes: an inner value at each of its points, an outer one once for each parallel point."""
    outer, every = points(body.parallel), points(body.space)
    inner = body.inner_dims
    return sum(
        every if node.dims & inner or node.name in FOLDS else outer
        for node in body.nodes
        if node.is_work or node.name in FOLDS
    )


def shared_bytes(first: Body, second: Body) -> int:
    """An upper bound of the bytes that merging two kernels saves: a tensor that both read is read once, and a result of the
    first that only the second reads is neither written nor read."""
    read = {id(tensor.root) for tensor in second.tensors}
    twice = {id(tensor.root): tensor.root for tensor in first.tensors if id(tensor.root) in read}
    between = [tensor for tensor in first.outputs if id(tensor) in read]
    alone = [tensor for tensor in between if len(tensor.readers) == 1]
    return sum([distinct_bytes(tensor.info) for tensor in (*twice.values(), *between, *alone)])


def estimated_gain(saved: int, recomputed: int, launch: bool, device: str) -> float:
    """Nanoseconds that a merge saves at nominal rates: for `saved` bytes and maybe a launch, less `recomputed` scalar ops."""
    bytes_rate, ops_rate, each = NOMINAL[device.partition(":")[0]]
    return saved / bytes_rate - recomputed / ops_rate + launch * each
