"""Small programs that were compiled wrongly once, or not at all; random programs found most of them."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from tests.compare_stages import compare


def same_as_eager(program, *inputs: torch.Tensor, dynamic: bool = False) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    with torch.no_grad():
        compare(compiled(*inputs), program(*inputs), rtol=1e-4, atol=1e-4)


BYTES, MASK = torch.arange(40).to(torch.uint8), torch.arange(40) % 3 == 0


@pytest.mark.parametrize(
    "program",
    [lambda x, mask: [x.logical_and(mask)], lambda x, mask: [x.bool() ^ mask, x == 0, x.to(torch.int8) == 0]],
)
def test_unsigned_bytes_beside_signed_ones(program):
    """A boolean in memory is a signed byte: the zeros that both are compared with are not one constant."""
    same_as_eager(program, BYTES, MASK)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: [torch.zeros(x.shape).cummin(dim=1).values + y],
        lambda x, y: [x.logsumexp(0), y.sum(0)],
        lambda x, y: [x.amax(0), x.cumsum(0) + y],
    ],
)
def test_rows_that_are_equal_in_all_columns(program):
    """What is folded or scanned along rows is one number for all columns that a vector lies across."""
    same_as_eager(program, torch.randn(70, 1).expand(70, 90), torch.randn(70, 90), dynamic=True)


def test_a_fraction_times_integers():
    x = torch.arange(9)
    same_as_eager(lambda x: [torch.addcmul(x, x, x, value=0.5), torch.addcmul(x, x, x, value=2.7)], x)


def test_results_of_an_argument_that_views_another():
    """After a graph break a graph is given both; each result is memory of its own argument."""

    def program(x):
        row = x[1]
        torch._dynamo.graph_break()
        return [row * 2, x.t(), row.view(3, 1), x]

    x = torch.randn(3, 3)
    torch._dynamo.reset()
    found = torch.compile(program, backend="mlirc", options={"fallback": "error"})(x)
    compare(found, program(x))
    assert all(y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for y in found[1:])


PARTS = {
    "row": lambda x: x[0],
    "transposed": lambda x: x.t(),
    "all": lambda x: x.view(2, 4),
    "expanded": lambda x: x[:1].expand(3, 4),
    "part": lambda x: x[1:, 2:],
}
VIEWS = {  # by ATen's calls and by ours
    "bytes": lambda x: x.view(torch.int8),
    "ints": lambda x: x.view(torch.int32),
    "nothing of it": lambda x: torch.as_strided(x, (0, 0), (0, 0), 0),
    "pairs": lambda x: torch.view_as_complex(x.view(2, 2, 2)),
    "imaginary": lambda x: torch.view_as_complex(x.view(2, 2, 2)).imag,
    "bytes of a part": lambda x: x[1:].view(torch.uint8)[:, 1:],
    "columns": lambda x: x.t(),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_views_by_aten_of_one_of_two_arguments(part, dynamic):
    """Both are one storage; each result is a view of the argument that it was made of, whichever comes first."""

    def one(x, y):
        return [y.exp() + 1, *(view(x) for view in VIEWS.values()), y[1:]]

    def other(y, x):
        return [*(view(x) for view in VIEWS.values()), y.exp() + 1, y[1:]]

    torch._dynamo.reset()
    x = torch.randn(2, 4)
    y = PARTS[part](x)
    for program, inputs in ((one, (x, y)), (other, (y, x))):
        compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
        found, expected = compiled(*inputs), program(*inputs)
        compare([z for z in found if not z.is_complex()], [z for z in expected if not z.is_complex()])
        for a, b in zip(found, expected, strict=True):
            assert (a.shape, a.stride(), a.dtype, a.storage_offset()) == (
                b.shape,
                b.stride(),
                b.dtype,
                b.storage_offset(),
            )
            assert shared(a, x) == shared(b, x)


def shared(x, y) -> bool:
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def test_parts_of_a_copy_are_its_memory():
    x = torch.arange(8).view(4, 2)
    torch._dynamo.reset()
    program = torch.compile(
        lambda x: (lambda y: [y, *y.unbind(0)])(x.clone()), backend="mlirc", options={"fallback": "error"}
    )
    whole, *parts = program(x)
    whole.zero_()
    assert not any(part.any() for part in parts)
    assert x.sum() == 28


@pytest.mark.parametrize(
    "part",
    [
        lambda x, w: F.dropout(torch.tanh(F.dropout(x, 0.4) @ w), 0.2),
        lambda x, w: torch.rand_like(x) * torch.sin(x @ w),
    ],
)
def test_checkpointed_random_numbers(part):
    """The backward graph draws the numbers of the forward graph again, and leaves the generator as it was."""

    def program(x, w):
        return checkpoint(part, F.dropout(x, 0.1), w, use_reentrant=False) * 2

    def step(run):
        torch.manual_seed(0)
        inputs = [torch.randn(6, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)]
        steps = []
        for _ in range(2):
            result = run(*inputs)
            steps += [result, *torch.autograd.grad(result.sum(), inputs), torch.rand(3)]
        return steps

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", options={"fallback": "error"})
    compare(step(compiled), step(program), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("program", [lambda x, i: [x[i.flatten()[:7]] + 1], lambda x, i: [x[i.flatten()[:7]].sum()]])
def test_an_index_out_of_no_elements(program):
    """Of a tensor without elements nothing is read, not even before a loop that has no rounds."""
    same_as_eager(program, torch.randn(4), torch.empty(3, 5, 0, 4, dtype=torch.int64), dynamic=True)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "windows", [{"padding": "valid"}, {"stride": [2], "padding": [1]}, {"dilation": [2], "padding": "same"}]
)
def test_windows_of_a_convolution_that_one_number_says(windows, training):
    """ATen takes padding [0], stride [2] for height and width alike; "valid" leaves the one 0."""
    weight = torch.nn.Parameter(torch.randn(6, 4, 3, 3))

    def program(x):
        y = F.conv2d(x, weight, **windows).relu()
        return [y, *torch.autograd.grad(y.square().sum(), [x, weight])] if training else [y]

    torch._dynamo.reset()
    x = torch.randn(2, 4, 9, 11, requires_grad=training)
    compiled = torch.compile(
        lambda x: F.conv2d(x, weight, **windows).relu(), backend="mlirc", options={"fallback": "error"}
    )
    with torch.set_grad_enabled(training):
        made = [y := compiled(x)]
        made += torch.autograd.grad(y.square().sum(), [x, weight]) if training else []
        compare(made, program(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_sum_over_nothing_but_sizes_of_1(dynamic):
    """It goes over the rows of what it reads as one, and folds a dimension that the common space does not have."""

    def program(x, y):
        both = torch.where(x == 0, x, y) + x
        return [both, both.view(1, -1).sum(0)]

    same_as_eager(program, torch.randn(3, 1, 1, 1, 24), torch.randn(24), dynamic=dynamic)


def test_a_scan_that_is_gone_through_twice():
    """The last pass needs it again: what two scans have come to lies at two places of scratch memory."""
    same_as_eager(lambda x: [*x.cummax(1), x.cumsum(1), x.softmax(1)], torch.randn(7, 36))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_one_number_in_all_lanes(dtype):
    """A half computed once, and then stored in vectors: on machines without bfloat16 LLVM has no such scalars."""
    row = torch.randn(1, 1, dtype=dtype).expand(33, 1)
    same_as_eager(lambda x, y: [x * 2, x.clone(), torch.where(y, x, -x), x.expand(33, 40) + 1], row, torch.tensor(True))


@pytest.mark.parametrize("trains", [False, True])
def test_inputs_that_are_negated_or_conjugated_views(trains):
    """Kernels read memory, where the values are the opposite; PyTorch negates and conjugates lazily."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * 2 + 1, backend="mlirc")
    x = torch.view_as_complex(torch.randn(3, 2)).requires_grad_(trains)
    for y in (x.imag, x.conj().imag, x.conj(), x):
        torch.testing.assert_close(compiled(y), y * 2 + 1)
