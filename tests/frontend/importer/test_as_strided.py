"""`as_strided`: an offset counts from the storage's start, wherever the input begins in it at this call."""

import pytest
import torch

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
