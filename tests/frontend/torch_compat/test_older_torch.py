"""What is put right of older versions of PyTorch, on any version."""

import math
import operator

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from mlirc.dialects.core.context import context
from mlirc.frontend.importer.importer import import_graph
from mlirc.frontend.torch_compat.older_torch import FLASH, FLASH_BACKWARD, of_dtype

pytestmark = pytest.mark.thinned


def forward(q):
    return FLASH(q, q, q)


def backward(dout, q, out, lse):
    return FLASH_BACKWARD(dout, q, q, q, out, lse, 0.0, False)


@pytest.mark.parametrize("function", [forward, backward])
def test_the_sums_of_attention_in_float64_are_float64(function):
    """Torch 2.11 promises float32, and gives float64."""
    x, lse = torch.randn(2, 3, 8, 4, dtype=torch.float64), torch.randn(2, 3, 8, dtype=torch.float64)
    inputs = (x,) if function is forward else (x, x, x, lse)
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    if function is forward:
        (call,) = gm.graph.find_nodes(op="call_function", target=FLASH)
        out, sums = call.meta["val"]
        call.meta["val"] = out, of_dtype(sums, torch.float32)
        for item in gm.graph.find_nodes(op="call_function", target=operator.getitem):
            item.meta["val"] = call.meta["val"][item.args[1]]
    else:
        sums = list(gm.graph.find_nodes(op="placeholder"))[3]
        sums.meta["val"] = of_dtype(sums.meta["val"], torch.float32)
    with context():
        text = str(import_graph(gm).module)
    assert "f32" not in text and "2x3x8xf64" in text


@pytest.mark.parametrize("training", [False, True])
def test_what_a_factorization_finds_wrong_is_raised(training):
    def solve(x):
        return torch.linalg.cholesky(x) + 1

    call = torch.compile(solve, backend="mlirc", options={"fallback": "error"})
    with torch.set_grad_enabled(training):
        torch.testing.assert_close(call(torch.eye(3, requires_grad=training)), solve(torch.eye(3)))
        with pytest.raises(RuntimeError, match="not positive-definite"):
            call(-torch.eye(3, requires_grad=training))


def test_a_graph_with_effects_gives_a_size_last():
    """AOTAutograd of 2.11 takes the size for a tensor that is saved."""

    def program(x, m):
        return x.roll(1), torch.linalg.lu_factor(m), x.shape[0] * 2

    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    x = torch.randn(3, 4, requires_grad=True)
    found, expected = compiled(x, torch.eye(3)), program(x, torch.eye(3))
    assert found[-1] == 6
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(y[0].sum(), x) for y in (found, expected)))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("sizes", [(9, 4), (4, 9), (4, 4)])
@pytest.mark.filterwarnings("ignore:.*runs in eager.*")
def test_an_index_that_a_dimension_has_not_raises(sizes, grad):
    """Torch 2.11 and 2.12 promise a result, and make no guard of it."""
    compiled = torch.compile(lambda x: torch.sinh(x).select(0, 5), backend="mlirc", dynamic=True)
    for n in sizes:
        x = torch.randn(n, 2, requires_grad=grad)
        if n > 5:
            torch.testing.assert_close(compiled(x), torch.sinh(x)[5])
        else:
            with pytest.raises(IndexError, match="out of range"):
                compiled(x)


FILLS = {
    "zero": lambda x: x.zero_(),
    "number": lambda x: x.fill_(2),
    "tensor": lambda x: x.fill_(torch.tensor(3.0)),
    "copy": lambda x: x.copy_(x.flip(0)),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("fill", FILLS)
def test_what_is_filled_keeps_its_strides(fill, grad):
    """Torch 2.11 and 2.12 promise zeros that are contiguous."""
    x = torch.randn(4, 7, 5).transpose(0, 1).requires_grad_(grad)
    check_in_eager(lambda x: FILLS[fill](x + 1), x)
    check_in_eager(lambda x: FILLS[fill](x + 1) + x[:, :, :1], x)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("order", [0, 0.5, 1, 2, 3, float("inf")])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (3, 1), (1, 3)])
def test_the_norm_of_one_element_has_eagers_sizes(order, shape):
    """Torch 2.11 and 2.12 promise that a dimension stays."""
    x = torch.randn(shape)
    check_in_eager(lambda x: torch.linalg.vector_norm(x, order, -1), x)
    check_in_eager(lambda x: torch.linalg.vector_norm(x, order, -1, keepdim=True), x)
    check_in_eager(lambda x: torch.linalg.vector_norm(x, order), x)
    check_in_eager(lambda x: torch.linalg.vector_norm(x[None], order, (0, -1)), x)


@pytest.mark.parametrize(
    "limits", [{"min": math.nan}, {"max": math.nan}, {"min": 0, "max": math.nan}, {"min": math.nan, "max": 0}]
)
def test_a_limit_that_is_nan_is_eagers(limits):
    """Torch 2.11 takes one that stands alone for none."""
    check_in_eager(lambda x: torch.clamp(x, **limits), torch.randn(19))


def check_in_eager(function, x):
    torch._dynamo.reset()
    expected, found = function(x), torch.compile(function, backend="mlirc")(x)
    assert found.stride() == expected.stride() and found.shape == expected.shape
    torch.testing.assert_close(found, expected, equal_nan=True)
