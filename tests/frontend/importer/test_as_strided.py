"""`as_strided`: an offset counts from the storage's start, wherever the input begins in it at this call, and nothing beyond its end is read."""

import pytest
import torch

from mlirc.frontend import statistics

pytestmark = pytest.mark.thinned

VIEWS = {
    "itself": lambda a: a,
    "slice": lambda a: a[1:],
    "select": lambda a: a.view(2, -1)[1],
    "chunk": lambda a: a.chunk(2)[1],
    "split": lambda a: torch.split(a, [1, 5])[1],
    "unbind": lambda a: a.view(2, 3).unbind()[1],
    "unsafe split": lambda a: torch.unsafe_split(a, 2)[1],
    "a part of a part": lambda a: a.chunk(2)[1].split(2)[0],
    "bits": lambda a: a.view(torch.int32),
    "bits of a part": lambda a: a.chunk(2)[1].view(torch.int32),
    "complex": lambda a: torch.view_as_complex(a.view(-1, 2)),
    "parts of complex": lambda a: torch.view_as_real(torch.view_as_complex(a.view(-1, 2))),
    "detached": lambda a: a.detach().unflatten(0, (2, 3)),
    "expanded": lambda a: a.expand(2, 6),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_an_input_may_begin_anywhere(name, dynamic):
    def program(a):
        return VIEWS[name](a).as_strided((2,), (1,), 0) + 1

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic)
    for start in (4, 8, 6):
        a = torch.arange(20.0)[start : start + 6]
        torch.testing.assert_close(compiled(a), program(a))


OF_ONE_ELEMENT = {
    "select": lambda a: (a * 2)[0].as_strided((2,), (1,), 0),
    "unbind": lambda a: (a * 2).unbind(0)[1].as_strided((2,), (1,)),
    "an input's": lambda a: a[2].as_strided((2,), (1,)),
    "an input's, from the start": lambda a: a[2].as_strided((2,), (1,), 1),
    "through views of one": lambda a: (a * 2)[2].view(1)[0].as_strided((3,), (1,), 1),
    "rows": lambda a: (a * 2).view(2, 3)[1][2].as_strided((2, 2), (3, 1), 1),
    "bits": lambda a: (a * 2)[2].view(torch.int32).as_strided((3,), (1,), 1),
    "repeated": lambda a: a.sum().as_strided((3,), (0,)),
    "one": lambda a: (a * 2)[2].as_strided((), (), 3),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", OF_ONE_ELEMENT)
def test_memory_beside_one_element(name, dynamic):
    def program(a):
        return OF_ONE_ELEMENT[name](a) + 1

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic)
    torch.testing.assert_close(compiled(torch.arange(6.0)), program(torch.arange(6.0)))


def test_memory_beside_an_input_of_one_element():
    for function in (lambda a: a.as_strided((3,), (1,)) * 2, lambda a: a.as_strided((3,), (1,), 1) * 2):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="mlirc")
        for k in (2, 4):
            torch.testing.assert_close(compiled(torch.arange(8.0)[k]), function(torch.arange(8.0)[k]))


OPERANDS = {
    "itself": lambda a: a,
    "a slice": lambda a: a[2:],
    "computed": lambda a: a * 2,
    "a slice of what is computed": lambda a: (a * 2)[3:],
    "a transposed part": lambda a: (a * 2).view(2, 4)[1:].t(),
    "a scatter": lambda a: torch.slice_scatter(a * 2, a[:2], 0, 1, 3),
    "a sorted part": lambda a: a.sort()[0][1:],
}
READS = {
    "size": lambda v, n: v.as_strided((n,), (1,)) + 1,
    "stride": lambda v, n: v.as_strided((2,), (n,)) + 1,
    "offset": lambda v, n: v.as_strided((2,), (1,), n) + 1,
    "all": lambda v, n: v.as_strided((2, n), (n, 1), n) + 1,
    "copy": lambda v, n: torch.as_strided_copy(v, (n,), (1,)),
    "copy from an offset": lambda v, n: torch.as_strided_copy(v, (2,), (n,), n),
    "written": lambda v, n: (v.as_strided((2,), (n,)).add_(1), v + 0)[1],
    "the result": lambda v, n: v.as_strided((n,), (1,)),
}


def outcome(program, start, count, n):
    """What comes of a call: the result, its strides and the input's memory; or the error's type."""
    memory = torch.arange(float(count))
    try:
        made = program(memory[start : start + 8], n)
        return made.tolist(), made.stride(), memory.tolist()
    except Exception as error:
        return type(error)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("read", READS)
def test_memory_that_ends_before(read, operand, dynamic):
    """In range at the first call, and beyond the storage's end, or backwards, at a later one: eager's error, and no other's memory."""

    def program(a, n):
        return READS[read](OPERANDS[operand](a), n)

    torch._dynamo.reset()
    statistics.reset()
    compiled, judge = (torch.compile(program, backend=b, dynamic=dynamic) for b in ("mlirc", "aot_eager"))
    for start, count, n in (
        (4, 40, 3),
        (0, 8, 3),
        (4, 40, 9),
        (0, 8, 9),
        (32, 40, 4),
        (0, 8, 7),
        (0, 8, 0),
        (0, 8, -3),
    ):
        expected, found = outcome(program, start, count, n), outcome(compiled, start, count, n)
        assert found in (expected, outcome(judge, start, count, n)), (start, count, n, expected)


def test_what_is_proved_is_no_call():
    """Where the sizes say that a view stays within memory, kernels read it."""

    def program(a):
        x = a * 2
        return x.as_strided((2,), (1,), 1) + x.t().as_strided(x.shape, x.stride())[0, :2] + a.as_strided((2,), (1,))

    for dynamic in (False, True):
        torch._dynamo.reset()
        statistics.reset()
        compiled = torch.compile(program, backend="mlirc", dynamic=dynamic)
        for rows in (3, 5):
            torch.testing.assert_close(compiled(torch.ones(rows, 4)), program(torch.ones(rows, 4)))
        assert not any(graph.aten for graph in statistics.graphs) and not statistics.fallbacks


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_of_a_number_that_is_computed_by_parts(dtype):
    """Behind it lie its real and imaginary parts, of another dtype."""

    def f(x):
        x.addcmul_(x, x)
        return x.as_strided((1, 1), (0, 3), 0) / 2.0

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="mlirc", options={"fallback": "error"})
    torch.testing.assert_close(compiled(torch.tensor(1 + 2j, dtype=dtype)), f(torch.tensor(1 + 2j, dtype=dtype)))
