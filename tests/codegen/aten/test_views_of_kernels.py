"""A kernel's last step may be a view of memory of its own. What a compiled call returns is a view of nothing then, as in eager."""

import pytest
import torch
import torch.nn.functional as F

import mlirc

CALLS = {
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k), [(2, 4, 5, 8), (2, 4, 3, 8)]),
    "grouped": (lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), [(2, 4, 5, 8), (2, 2, 3, 8)]),
    "masked": (lambda q, k: F.scaled_dot_product_attention(q, k, k, k[:1, 0, :, 0] > 0), [(2, 4, 5, 8), (2, 4, 3, 8)]),
    "convolution": (lambda x, w: F.conv2d(x, w), [(2, 3, 5, 5), (4, 3, 3, 3)]),
    "solution": (torch.linalg.solve, [(3, 3), (3, 2)]),
    "distances": (torch.cdist, [(4, 3), (5, 3)]),
}


@pytest.mark.thinned(3)
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


def hidden(x):
    """Views of memory that nothing else shows."""
    expanded = (x.sum(1, keepdim=True) * 2).expand_as(x)
    views = [
        x.sum().expand(2, 2),
        (x + 1).mean(0, keepdim=True).expand(4, -1),
        expanded[1:, ::2],
        torch.arange(4).expand(2, 4),
    ]
    views += [torch.full((1, 3), 2.0).expand(4, 3), torch.ones(3).expand(4, 3), torch.tensor([1.0, 2.0]).expand(4, 2)]
    views += [
        (x + 2).unfold(1, 2, 1),
        (x + 3).as_strided((2, 2), (0, 1)),
        (x[:1] + 1).expand(1, 6),
        (x + 4).t(),
        (x + 5)[1],
    ]
    views += [(x - 1).view(-1), *torch.meshgrid(x[0] * 2, x[1] * 2, indexing="ij"), (x.cos() @ x.t()).unfold(0, 2, 1)]
    return [*views, torch.broadcast_tensors(x.prod(1, keepdim=True), x)[0]]


@pytest.mark.parametrize("gradients", [False, True])
def test_a_view_of_hidden_memory_lies_as_eagers(gradients):
    """Such a result has eager's strides and memory, and refuses writes where eager's does. That it is a view of something is not shown."""
    x = torch.randn(4, 6, requires_grad=gradients)
    got = torch.compile(hidden, backend="mlirc", options={"fallback": "error"})(x)
    for k, (a, b) in enumerate(zip(got, hidden(x), strict=True)):
        torch.testing.assert_close(a, b)
        assert described(a) == described(b), k


def described(x):
    told = [x.stride(), x.storage_offset(), x.untyped_storage().nbytes(), x.requires_grad, x.is_leaf]
    with torch.no_grad():
        try:
            x.add_(1)
        except RuntimeError as error:
            told.append(str(error))
    return told


def test_pairs_and_complex_numbers_are_one_memory():
    """Of an argument, of a part of one, of an operator's result and of a kernel's; none through Python, and no result is a view."""

    def fn(z, x):
        pairs = torch.view_as_real(torch.fft.fft(z[1:]))
        moved = torch.view_as_real(z[:, 1:]).flip(0)
        whole = torch.fft.ifft(torch.view_as_complex(x * 2))
        return pairs * 2, moved, whole, torch.view_as_complex(x + 1), torch.view_as_complex(x[1:]).sum()

    z, x = torch.randn(3, 4, dtype=torch.complex64), torch.randn(3, 4, 2)
    options = {"fallback": "error"}
    made = torch.compile(fn, backend="mlirc", options=options)(z, x)
    torch.testing.assert_close(made, fn(z, x))
    assert not any(one._is_view() for one in made)
    made[3].add_(1)
    torch._dynamo.reset()
    (graph,) = mlirc.explain(fn)(z, x).data["graphs"]
    assert graph["aten"].keys() >= {"aten.view_as_real.default", "aten.view_as_complex.default"}
    assert not graph["through_python"]
