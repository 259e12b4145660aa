"""Writes to a part of a view whose elements share memory, which is not written twice itself, are as eager leaves them."""

import itertools

import pytest
import torch

from tests.sampling import some

pytestmark = pytest.mark.thinned

VIEWS = {
    "windows": lambda a: a.as_strided((2, 2), (1, 1), 0),
    "three": lambda a: a.as_strided((2, 2, 2), (1, 2, 1), 1),
    "hankel": lambda a: a.as_strided((5, 3), (1, 1), 0),
}
PARTS = {
    "column": lambda v: v[:, 0],
    "last column": lambda v: v[..., -1],
    "row": lambda v: v[1],
    "slice": lambda v: v[1:, :1],
    "diagonal": lambda v: v.diagonal(),
}
WRITES = {
    "add_": lambda p: p.add_(4),
    "copy_": lambda p: p.copy_(torch.arange(p.numel()).view(p.shape) * 10.0),
    "fill": lambda p: p.fill_(7),
    "mul_": lambda p: p.mul_(p + 1),
}
CASES = list(itertools.product(VIEWS, PARTS, WRITES))


def run(case: tuple[str, str, str], backend: str | None, dynamic: bool = False) -> tuple[torch.Tensor, ...]:
    view, part, write = (table[name] for table, name in zip((VIEWS, PARTS, WRITES), case, strict=True))

    def program(a: torch.Tensor) -> torch.Tensor:
        v = view(a)
        write(part(v))
        return v * 1

    torch._dynamo.reset()
    a = torch.arange(8.0)
    made = program if backend is None else torch.compile(program, backend=backend, dynamic=dynamic)
    return made(a), a


@pytest.mark.parametrize("dynamic", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_part_of_elements_that_share_memory(dynamic):
    wrong, judged, cases = [], 0, some(CASES, 12)
    for case in cases:
        eager = run(case, None)
        if not all(map(torch.equal, run(case, "aot_eager", dynamic), eager)):
            continue  # PyTorch's functional form of the program writes the old elements over the new ones
        judged += 1
        if not all(map(torch.equal, run(case, "mlirc", dynamic), eager)):
            wrong.append(case)
    assert wrong == [] and judged > len(cases) / 2
