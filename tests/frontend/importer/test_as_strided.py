"""`as_strided`: an offset counts from the storage's start, wherever the input begins in it at this call."""

import pytest
import torch

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
