"""Indices into tensors without elements: an index that is asked for raises where eager does, and nothing is read."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import symbol
from mlirc.dialects.core.tensor_types import TensorInfo
from tests.triton.runner import TritonKernel

pytestmark = pytest.mark.thinned

TABLE, INDEX = torch.zeros(0, 8), torch.tensor([0, 1])
CASES: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "embedding": (lambda i, t: F.embedding(i, t) + 1, TABLE),
    "embedding of half": (lambda i, t: F.embedding(i, t) + 1, TABLE.half()),
    "embedding of bool": (lambda i, t: ~F.embedding(i, t), TABLE.bool()),
    "embedding_bag": (lambda i, t: F.embedding_bag(i[None], t) + 1, TABLE),
    "embedding, summed": (lambda i, t: F.embedding(i, t).sum(0), TABLE),
    "index_select": (lambda i, t: t.index_select(0, i) + 1, TABLE),
    "index": (lambda i, t: t[i] + 1, TABLE),
    "index from the end": (lambda i, t: t[-i] + 1, TABLE),
    "index of columns": (lambda i, t: t[:, i] + 1, torch.zeros(3, 0)),
    "two indices": (lambda i, t: t[i, i] + 1, torch.zeros(0, 0)),
    "two indices, one into nothing": (lambda i, t: t[i, i] + 1, torch.zeros(3, 0)),
    "gather": (lambda i, t: t.gather(0, i[:, None]) + 1, TABLE),
    "take": (lambda i, t: t.take(i) + 1, TABLE),
    "take_along_dim": (lambda i, t: torch.take_along_dim(t, i[:, None], 0) + 1, TABLE),
    "scatter": (lambda i, t: (t + 1).scatter(0, i[:, None], 1.0), TABLE),
    "scatter_add": (lambda i, t: (t + 1).scatter_add(0, i[:, None], torch.ones(2, 8)), TABLE),
    "scatter_reduce": (lambda i, t: (t + 1).scatter_reduce(0, i[:, None], torch.ones(2, 8), "amax"), TABLE),
    "index_put": (lambda i, t: (t + 1).index_put((i,), torch.ones(2, 8)), TABLE),
    "index_put, added": (lambda i, t: (t + 1).index_put((i,), torch.ones(2, 8), accumulate=True), TABLE),
    "index_add": (lambda i, t: (t + 1).index_add(0, i, torch.ones(2, 8)), TABLE),
    "index_copy": (lambda i, t: (t + 1).index_copy(0, i, torch.ones(2, 8)), TABLE),
    "index_fill": (lambda i, t: (t + 1).index_fill(0, i, 2.0), TABLE),
    "cross_entropy": (lambda i, t: F.cross_entropy(t.t()[:2] + 1, i), torch.zeros(0, 2)),
    "nll_loss": (lambda i, t: F.nll_loss(t + 1, i), torch.zeros(2, 0)),
    "nll_loss, ignored": (lambda i, t: F.nll_loss(t + 1, i * 0 - 100, reduction="sum"), torch.zeros(2, 0)),
    "no index": (lambda i, t: F.embedding(i[:0], t) + 1, TABLE),
    "no column": (lambda i, t: t[i] + 1, torch.zeros(4, 0)),
}


def outcome(f: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """Values, or that it raised: PyTorch itself gives the error of an index two types."""
    try:
        return f(*inputs).tolist()
    except (IndexError, RuntimeError):
        return "raised"


@pytest.mark.thinned(6)
@pytest.mark.parametrize("dynamic", [False, True, "unbacked"])
@pytest.mark.parametrize("name", CASES)
def test_as_in_eager(name: str, dynamic: Any) -> None:
    f, table = CASES[name]
    table = table.clone()
    if dynamic == "unbacked":  # the size stays a symbol that may be 0
        if name.startswith(("two", "no column")) or "loss" in name or "entropy" in name:
            pytest.skip("PyTorch asks for the size")
        torch._dynamo.decorators.mark_unbacked(table, next(n for n, size in enumerate(table.shape) if not size))
    wanted = outcome(f, INDEX, TABLE.new_zeros(table.shape, dtype=table.dtype))
    compiled = torch.compile(f, backend="mlirc", dynamic=None if dynamic == "unbacked" else dynamic)
    assert outcome(compiled, INDEX, table) == wanted


@pytest.mark.parametrize("size", ["s0", "0"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bool])
def test_a_gpu_reads_nothing(size: str, dtype: torch.dtype) -> None:
    """What lies where the table would be shows in no result."""
    infos = [TensorInfo(dtype, tuple(symbols.parse_list(f"{size}, 8"))), TensorInfo(torch.int64, (4,))]

    def build(k, table, index):
        place = k.check_index(k.read(index, k.dims[:1]), symbols.parse(size), False, "{index} of {size}")
        return [(k.read(table, (symbol("i0"), k.dims[1]), [place]), k.dims, TensorInfo(dtype, (4, 8)))]

    kernel = TritonKernel(infos, "4, 8", "", build)
    there, out = torch.ones(64, dtype=dtype), torch.ones(4, 8, dtype=dtype)
    failure = kernel([there[:0].view(0, 8), torch.tensor([0, 1, 2, 0])], [out], s0=0)
    assert failure[0] == 1 and failure[2] == 0
    assert not out.any()
