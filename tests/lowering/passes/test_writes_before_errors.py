"""A call that raises leaves an input as eager or aot_eager leaves it: nothing that comes after the error is written."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

pytestmark = pytest.mark.thinned

WRITES: dict[str, Callable[[torch.Tensor, Any], object]] = {
    "add_": lambda b, v: b.add_(1),
    "of what fails": lambda b, v: b.add_(v.float().sum()),
    "slice": lambda b, v: b[1:3].mul_(2),
    "column": lambda b, v: b[:, 1].copy_(b[:, 0] + 1),
    "index_put_": lambda b, v: b.index_put_((torch.tensor([0, 2]),), b[:2] + 1),
    "index_copy_": lambda b, v: b.index_copy_(0, torch.tensor([0, 2]), b[1:3] * 2),
    "running statistics": lambda b, v: F.batch_norm(b.detach().exp(), b[0], b[1], training=True),
}
FAILS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "gather of rows": lambda x, i: x[i],
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: F.embedding(i, x),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(1, 4)),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:1], i),
    "dtypes of a product": lambda x, i: x @ x.bfloat16(),
    "factorization": lambda x, i: torch.linalg.cholesky(-x),
    "bincount": lambda x, i: torch.bincount(-i),
}


def left(fail: Callable, write: Callable, backend: str | None, before: bool) -> torch.Tensor:
    """What an input holds after a call that raised."""

    def program(x: torch.Tensor, i: torch.Tensor, b: torch.Tensor):
        total = b.mean()
        if before:
            write(b, x)
        v = fail(x + total, i)
        if not before:
            write(b, v)
        return v, b.sum()

    torch._dynamo.reset()
    b = torch.arange(16.0).reshape(4, 4)
    run = program if backend is None else torch.compile(program, backend=backend)
    with torch.no_grad(), pytest.raises((RuntimeError, IndexError)):
        run(torch.eye(4), torch.tensor([7]), b)
    return b


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("fail", "write"), list(itertools.product(FAILS, WRITES)))
def test_a_write_after_an_error(fail, write):
    found = left(FAILS[fail], WRITES[write], "mlirc", before=False)
    torch.testing.assert_close(found, left(FAILS[fail], WRITES[write], None, before=False))


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("fail", "write"), list(itertools.product(FAILS, [w for w in WRITES if w != "of what fails"])))
def test_a_write_before_an_error(fail, write):
    """aot_eager writes at the end of a graph, eager at once: both will do."""
    found = left(FAILS[fail], WRITES[write], "mlirc", before=True)
    allowed = [left(FAILS[fail], WRITES[write], backend, before=True) for backend in (None, "aot_eager")]
    assert any(torch.allclose(found, x) for x in allowed)
