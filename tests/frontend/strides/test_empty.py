"""Sizes that are symbols and whose value is 0 at the call that is traced: nothing is divided by them."""

import itertools

import pytest
import torch

from mlirc.frontend.strides.dimension_order import viewed_strides

FUNCTIONS = {
    "diagonal": lambda x: x.diagonal(2).ceil(),
    "slice": lambda x: (x[2:] * x[2:]).transpose(0, 1).abs(),
    "columns": lambda x: x[..., 2:].transpose(0, 3).cos(),
    "permuted": lambda x: x[:, 2:].permute(3, 1, 0, 2).relu(),
    "roll": lambda x: torch.roll(x[:, 2:], (1, 1), (0, 1)),
    "roll of a diagonal": lambda x: torch.roll(x.diagonal(2), 1, 2),
}
INPUTS = {
    "expanded": lambda: torch.randn(2, 1, 1, 2).expand(-1, 2, 1, -1),
    "dense": lambda: torch.randn(2, 2, 2, 2),
    "transposed": lambda: torch.randn(2, 2, 3, 2).transpose(1, 3),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_values(function):
    for x in [make() for make in INPUTS.values()]:
        torch._dynamo.reset()
        run = torch.compile(FUNCTIONS[function], backend="mlirc", dynamic=True, options={"fallback": "error"})
        torch.testing.assert_close(run(x), FUNCTIONS[function](x))


ITERATED = [
    *(lambda x: x + 1, lambda x: 1 - x, lambda x: x * 2.0, lambda x: x / 2, lambda x: x // 2, lambda x: x.fmod(2)),
    *(lambda x: x > 0, lambda x: x == x[:1], lambda x: x + x.new_zeros(x.shape[-1]), lambda x: x * x, lambda x: x**2),
    *(lambda x: torch.where(x > 0, x, 0.0), lambda x: torch.atan2(x, torch.tensor(2.0)), lambda x: x.clamp(0, 1)),
    *(torch.sin, torch.relu, lambda x: x.roll(1, 0), lambda x: x.double(), lambda x: x.lerp(x, 0.5)),
]
COPIED = [  # operators that are given an empty_like of their operand as the result
    *(
        torch.nn.functional.hardtanh,
        torch.nn.functional.relu6,
        torch.nan_to_num,
        torch.ones_like,
        torch.clone,
        lambda x: torch.empty_like(x).zero_(),
        torch.nn.functional.dropout,
    ),
    lambda x: x.flip(0),
]
EMPTY = {
    "as it is": lambda *shape: torch.empty(shape),
    "reversed": lambda *shape: torch.empty(shape[::-1]).permute(*reversed(range(len(shape)))),
    "every second": lambda *shape: torch.empty([2 * n + 2 for n in shape])[tuple(slice(0, 2 * n, 2) for n in shape)],
    "a part": lambda *shape: torch.empty([n + 2 for n in shape])[tuple(slice(n) for n in shape)],
}


@pytest.mark.thinned(7)
@pytest.mark.parametrize("shape", [(0, 1), (2, 0), (0, 0), (0, 1, 1), (1, 0, 1), (3, 0, 1), (0, 1, 3), (2, 1, 0, 1)])
@pytest.mark.parametrize("layout", EMPTY)
def test_strides_of_what_is_empty(shape, layout):
    """TensorIterator multiplies by a size of 0 where an operand broadcasts, and not where all operands are alike."""
    torch._dynamo.reset()
    x = EMPTY[layout](*shape)
    function = lambda x: [f(x) for f in ITERATED]
    found = torch.compile(function, backend="mlirc", options={"fallback": "error"})(x)
    assert [y.stride() for y in found] == [y.stride() for y in function(x)]


def reduced(x):
    for d in range(x.dim()):
        yield x.sum(d, keepdim=True), x.prod(d, keepdim=True), x.mean(d, keepdim=True), x.any(d, keepdim=True), x.sum(d)
        yield x.var(d, keepdim=True), *torch.var_mean(x, d, keepdim=True)
        if x.shape[d]:
            yield x.amax(d, keepdim=True), x.amin(d, keepdim=True), *torch.aminmax(x, dim=d, keepdim=True)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("shape", [(1, 0, 1), (3, 0, 2), (1, 1, 0)])
@pytest.mark.parametrize("layout", ["as it is", "reversed"])
def test_strides_of_empty_reductions(shape, layout):
    """Row-major, also along the dimensions that are kept."""
    torch._dynamo.reset()
    x = EMPTY[layout](*shape)
    function = lambda x: [y for some in reduced(x) for y in some]
    found = torch.compile(function, backend="mlirc", options={"fallback": "error"})(x)
    assert [(y.shape, y.stride()) for y in found] == [(y.shape, y.stride()) for y in function(x)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_copies_of_what_is_empty_lie_as_it_does(dynamic):
    torch._dynamo.reset()
    stepped = [torch.empty(shape)[..., ::2] for shape in ((0,), (0, 3, 2))]
    reversed_ones = [EMPTY["reversed"](*shape) for shape in ((1, 0, 1), (2, 3, 0))]
    given = [*stepped, *reversed_ones, EMPTY["a part"](0, 2), torch.empty(1, 0, 1).expand(2, 0, 3)]
    function = lambda *given: [f(x) for x in given for f in COPIED]
    found = torch.compile(function, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})(*given)
    assert [y.stride() for y in found] == [y.stride() for y in function(*given)]


SLICED = {
    "elementwise": lambda x, n: x[:, :n] + 1,
    "two operands": lambda x, n: x[:, :n] * x[:, 2 : 2 + n],
    "broadcast": lambda x, n: torch.zeros(3, n, 2) + x[:, :1, None],
    "of rank 4": lambda x, n: x.view(1, 3, 4, 2)[:, :, :n].sin(),
    "permuted": lambda x, n: x.view(3, 4, 2)[:, :n].permute(1, 0, 2) + 1,
    "transposed": lambda x, n: x[:, :n].t() * 2,
    "made": lambda x, n: torch.zeros(3, n, 2).relu(),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", SLICED)
def test_strides_of_a_size_that_is_computed(name):
    """One graph for all n, because no guard says that min(n, 4) is not 0."""
    function = SLICED[name]
    x = torch.randn(3, 8)
    run = torch.compile(
        lambda x, n: function(x, max(0, min(n, 4))), backend="mlirc", dynamic=True, options={"fallback": "error"}
    )
    for n in (3, 0, -1, 1, 2):
        expected, found = function(x, max(0, min(n, 4))), run(x, n)
        assert (found.shape, found.stride()) == (expected.shape, expected.stride())
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shape", [(0,), (0, 0), (2, 0), (1, 0, 3), (0, 4)])
def test_strides_of_a_view_of_what_is_empty(shape):
    """A view of it is row-major, as PyTorch's computeStride has it, unless it has the same sizes."""
    seen = set()
    for strides in itertools.product((0, 1, 3), repeat=len(shape)):
        x = torch.empty_strided(shape, strides)
        for viewed in {shape, *itertools.product((0, 1, 2), repeat=2), *itertools.product((0, 1, 2), repeat=3)}:
            if 0 in viewed:
                seen.add(viewed)
                assert viewed_strides(shape, strides, viewed) == x.view(viewed).stride()
    assert len(seen) > 20


@pytest.mark.parametrize("shape", [(1, 0, 0, 0), (2, 0)])
def test_an_empty_view_as_complex_numbers(shape):
    """PyTorch wants strides divisible by 2 of what is seen as complex numbers."""
    function = lambda x: (x.unflatten(-1, (-1, 2)) * 1, torch.view_as_complex(x.unflatten(-1, (-1, 2))))
    compiled = torch.compile(function, backend="mlirc", options={"fallback": "error"})
    x = torch.ones(shape)
    for found, expected in zip(compiled(x), function(x), strict=True):
        assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), expected.dtype)


VIEWED = {
    "above": lambda x: x.diagonal(5),
    "below": lambda x: x.diagonal(-2),
    "of a view": lambda x: x.mT[1:].diagonal(-4),
    "a view of it": lambda x: x.diagonal(4)[1:],
}


@pytest.mark.thinned
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("view", VIEWED)
def test_an_empty_diagonal_begins_where_its_operand_does(view, dynamic):
    """view_as_complex of it, behind a graph break, wants an even offset."""

    def f(x):
        y = x * 2
        return y, VIEWED[view](y)

    torch._dynamo.reset()
    run = torch.compile(f, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    for shape in ((3, 9), (3, 6), (3, 5), (3, 4), (2, 3), (2, 0), (9, 2)):
        x = torch.randn(shape)
        for found, expected in zip(run(x), f(x), strict=True):
            assert torch.equal(found, expected) and found.storage_offset() == expected.storage_offset(), shape
