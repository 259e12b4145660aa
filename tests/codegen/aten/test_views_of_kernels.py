"""A kernel's last step may be a view of memory of its own. What a compiled call returns is a view of nothing then, as in eager."""

import pytest
import torch
import torch.nn.functional as F

CALLS = {
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k), [(2, 4, 5, 8), (2, 4, 3, 8)]),
    "grouped": (lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), [(2, 4, 5, 8), (2, 2, 3, 8)]),
    "masked": (lambda q, k: F.scaled_dot_product_attention(q, k, k, k[:1, 0, :, 0] > 0), [(2, 4, 5, 8), (2, 4, 3, 8)]),
    "convolution": (lambda x, w: F.conv2d(x, w), [(2, 3, 5, 5), (4, 3, 3, 3)]),
    "solution": (torch.linalg.solve, [(3, 3), (3, 2)]),
    "distances": (torch.cdist, [(4, 3), (5, 3)]),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_result_may_be_written_where_gradients_are_recorded(call):
    function, shapes = CALLS[call]
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    result = torch.compile(function, backend="mlirc", options={"fallback": "error"})(*inputs)
    assert not result._is_view() and result._base is None
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)
    result[..., -1] += weight
    result.sum().backward()
    expected = function(*inputs)
    expected[..., -1] += 1
    torch.testing.assert_close(result, expected)
    assert weight.grad == result[..., -1].numel()
