"""Operators that read an operand's whole storage: its other elements, and where in it the operand begins, count."""

import pytest
import torch

from mlirc.frontend import statistics

pytestmark = pytest.mark.thinned

VIEWS = {
    "itself": lambda a: a,
    "slice": lambda a: a[2:],
    "transposed": lambda a: a.view(3, 4).t(),
    "a part transposed": lambda a: a.view(3, 4)[1:, 1:].t(),
    "select": lambda a: a.view(2, 6)[1],
    "chunk": lambda a: a.chunk(2)[1],
    "every other": lambda a: a[1::2],
    "expanded": lambda a: a[4:].expand(2, 8),
    "expanded, a part": lambda a: a.view(3, 4)[1:, None].expand(2, 2, 4)[1],
    "one element": lambda a: a[5],
    "bits of a part": lambda a: a[2:].view(torch.int32),
    "windows": lambda a: a[1:].unfold(0, 3, 2),
}
OPERATORS = {
    "as_strided": lambda v, s: v.as_strided((2, 2), (1, 3), 1) + 0,
    "as_strided, where it begins": lambda v, s: v.as_strided((2, 2), (1, 3)) + 0,
    "as_strided_copy": lambda v, s: torch.as_strided_copy(v, (2, 2), (1, 3), 1),
    "as_strided_copy, where it begins": lambda v, s: torch.as_strided_copy(v, (2, 2), (1, 3)),
    "as_strided_scatter": lambda v, s: torch.as_strided_scatter(v, s.to(v.dtype), (2, 2), (1, 3), 1),
    "as_strided_scatter, where it begins": lambda v, s: torch.as_strided_scatter(v, s.to(v.dtype), (2, 2), (1, 3)),
    "as_strided of it": lambda v, s: torch.as_strided_scatter(v, s.to(v.dtype), (2, 2), (1, 3), 1).as_strided(
        (12,), (1,), 0
    ),
    "as_strided of a part of it": lambda v, s: (
        torch.as_strided_scatter(v, s.to(v.dtype), (2, 2), (1, 3), 1)[1:].as_strided((2,), (3,), 1) + 0
    ),
    "of select_scatter": lambda v, s: torch.select_scatter(v, v.select(0, 0) * 2, 0, 0).as_strided((4,), (2,), 1) + 0,
    "of slice_scatter": lambda v, s: torch.slice_scatter(v, v[1:] * 2, 0, 1).as_strided((4,), (2,), 1) * 2,
    "copy of slice_scatter": lambda v, s: torch.as_strided_copy(torch.slice_scatter(v, v[-1:] * 2, 0, -1), (4,), (2,)),
    "scatter into a scatter": lambda v, s: torch.as_strided_scatter(
        torch.select_scatter(v, v.select(0, 1) * 2, 0, 1), s.to(v.dtype), (2, 2), (1, 3), 1
    ),
}
ROOTS = {"an input": lambda a: a, "computed": lambda a: a * 2, "a row": lambda a: torch.stack([a, a + 1])[1]}


def results(program, start):
    memory = torch.arange(40.0)
    made = program(memory[start : start + 12], -torch.ones(2, 2))
    return made.clone(), made.stride(), memory


def raises(program, *starts):
    try:
        [results(program, start) for start in starts]
    except Exception:
        return True
    return False


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_where_an_operand_begins(operator, root, name, dynamic):
    if name == "one element" and ("scatter" in operator or "of it" in operator):
        return  # PyTorch's fake tensors refuse it

    def program(a, s):
        return OPERATORS[operator](VIEWS[name](ROOTS[root](a)), s)

    if raises(program, 4, 8):
        return  # beyond the storage's end
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic)
    for start in (4, 8):
        made, expected = results(compiled, start), results(program, start)
        assert torch.equal(made[0], expected[0]) and made[1] == expected[1] and torch.equal(made[2], expected[2])


# ---- set_: the parameter of `p.data = y` keeps the memory of a computed tensor after the call


def initialised(p, x):
    p.data = torch.log(x.std(0, keepdim=True) + 1e-6).expand(4, 4).contiguous().data
    return (x * torch.exp(-p)).sum()


def several(p, x):
    p.data = (x + 1).sin()
    p.data = x.cos()
    return p * 2


def turned(p, x):
    p.data = (x * 2).t()
    return p.sum()


def part(p, x):
    p.data = torch.cat([x, x * 2])[2:6]
    return p.sum()


def by_the_library(p, x):
    p.data = x @ x
    return p.sum()


def result_too(p, x):
    y = x * 2
    p.data = y.detach()
    return y + 1, y


def input_itself(p, x):
    p.data = x
    return p * 2


GIVEN = [initialised, several, turned, part, by_the_library, result_too, input_itself]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("body", GIVEN, ids=lambda body: body.__name__)
def test_the_memory_outlives_the_call(body):
    x = torch.arange(16.0).reshape(4, 4).sin()
    expected, given = (torch.nn.Parameter(torch.zeros(4, 4)) for _ in range(2))
    wanted = body(expected, x)
    compiled = torch.compile(body, backend="mlirc", fullgraph=True, options={"fallback": "error"})
    torch.testing.assert_close(compiled(given, x), wanted)
    other = torch.compile(lambda x: (x.exp() + 1).sum(0).cumsum(0) @ x, backend="mlirc")
    kept = [other(x), *(torch.full((n,), 7.0) for n in (1, 4, 16, 16, 16, 32))]  # memory that was free
    torch.testing.assert_close(given.detach(), expected.detach())
    assert given.stride() == expected.stride() and len(kept) == 7


def test_a_result_and_the_parameter_share_it():
    x = torch.ones(4, 4)
    p = torch.nn.Parameter(torch.zeros(4, 4))
    with torch.no_grad():
        _, y = torch.compile(result_too, backend="mlirc", fullgraph=True)(p, x)
        y.fill_(5.0)
    assert p.eq(5).all()


# ---- a scatter that writes all of a storage: the gradient of a view by `as_strided`


@pytest.mark.parametrize("dynamic", [False, True])
def test_all_of_a_storage(dynamic):
    """A pool to one pixel of a channels-last image gives such a view."""

    def program(x, w):
        return torch.nn.functional.adaptive_avg_pool2d(x * 2, 1) * w

    torch._dynamo.reset()
    statistics.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"cache": False})
    for n in (2, 3):
        image = torch.randn(n, 8, 4, 4).to(memory_format=torch.channels_last)
        found, expected = image.clone().requires_grad_(), image.clone().requires_grad_()
        compiled(found, torch.arange(8.0).view(8, 1, 1)).square().sum().backward()
        program(expected, torch.arange(8.0).view(8, 1, 1)).square().sum().backward()
        torch.testing.assert_close(found.grad, expected.grad)
        assert found.grad.stride() == expected.grad.stride()
    assert len(statistics.graphs) >= 2 and not any(graph.aten for graph in statistics.graphs)


@pytest.mark.parametrize("order", [(2, 3, 4), (4, 3, 2)])
def test_a_scatter_in_another_order(order):
    def program(x, s):
        return torch.as_strided_scatter(x * 2, s.permute(2, 1, 0), order, (order[1] * order[2], order[2], 1), 0) + 1

    x, s = torch.randn(24), torch.randn(order[::-1])
    assert torch.equal(torch.compile(program, backend="mlirc", options={"cache": False})(x, s), program(x, s))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.uint16, torch.float8_e5m2, torch.bool])
def test_a_scatter_of_each_dtype(dtype):
    def program(x, s):
        return torch.as_strided_scatter(x.clone(), s, (3, 4), (4, 1), 0)

    x, s = torch.zeros(12).to(dtype), torch.arange(12.0).view(3, 4).to(dtype)
    options = {"cache": False, "fallback": "error"}
    assert torch.compile(program, backend="mlirc", options=options)(x, s).tolist() == program(x, s).tolist()


def test_what_is_written_is_an_input():
    """The result is another tensor."""

    def program(x, s):
        return torch.as_strided_scatter(x * 2, s, (3, 4), (4, 1), 0)

    x, s = torch.randn(12), torch.randn(3, 4)
    made = torch.compile(program, backend="mlirc", options={"cache": False})(x, s)
    assert torch.equal(made, program(x, s)) and made.data_ptr() != s.data_ptr() and not made._is_view()
