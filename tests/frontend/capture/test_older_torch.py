"""What is put right of older versions of PyTorch, on any version."""

import operator

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from mlirc.dialects.core.bindings import context
from mlirc.frontend.importer.importer import import_graph
from mlirc.frontend.torch_compat.older_torch import FLASH, FLASH_BACKWARD, of_dtype


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
