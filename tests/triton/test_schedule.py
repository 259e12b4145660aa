"""Which tiles the cost model chooses, and that the schedules it offers for measuring compute the same."""

import math

import pytest
import torch

from mlirc.lowering.gpu.triton import schedule as triton_schedule
from mlirc.lowering.gpu.triton.schedule import TritonSchedule, alternatives
from tests.kernel_runner import info
from tests.lowering.cpu.emitter.test_emitter import softmax
from tests.triton.runner import TritonKernel
from tests.triton.test_golden import KERNELS


def schedule_of(name: str) -> TritonSchedule:
    found = []
    TritonKernel(*KERNELS[name], shrink=lambda s: found.append(s) or s)
    return found[0]


@pytest.mark.parametrize(
    ("name", "tiles", "looped"),
    [
        ("bias_gelu", {"y": 16, "x": 256}, False),  # the bias is read once for sixteen rows
        ("softmax", {"x": 4, "r": 512}, False),  # several short rows
        ("cross_entropy", {"x": 1, "r": 4096}, True),  # more than registers hold
        ("column_sum", {"x": 16, "r": 128}, True),  # columns side by side
        ("transposed", {"y": 64, "x": 64}, False),  # read along one, written along the other
    ],
)
def test_tiles(name, tiles, looped):
    schedule = schedule_of(name)
    assert ({t.name: t.block for t in schedule.tiles}, schedule.looped) == (tiles, looped)


@pytest.mark.parametrize(("rows", "columns"), [(700, 12), (3, 20000)])
def test_alternatives_compute_the_same(rows, columns):
    found: list[TritonSchedule] = []
    arguments = [info(torch.float32, f"{rows}, {columns}")], str(rows), str(columns), softmax
    TritonKernel(*arguments, shrink=lambda s: found.extend(alternatives(s)) or s)
    assert len(set(found)) == len(found) >= 2
    for schedule in found:
        TritonKernel(*arguments, shrink=lambda _, schedule=schedule: schedule).check(torch.randn(rows, columns))


def test_rows_that_share_much_are_gone_through_in_turn(monkeypatch):
    """Rotary embedding: two numbers at each column for all rows, kept while a program goes through its rows."""
    for name, size in (("ROWS_IN_TURN", 4), ("ELEMENTS", 64), ("PROGRAMS", 1)):
        monkeypatch.setattr(triton_schedule, name, size)
    x, columns = info(torch.float32, "2, 8, 128"), info(torch.float32, "128")

    def build(b, x, cos, sin):
        head, row, column = b.dims
        other = b.read(x, (head, row, 127 - column))
        value = b.add(b.mul(b.read(x, b.dims), b.read(cos, (column,))), b.mul(other, b.read(sin, (column,))))
        return [(value, b.dims, info(torch.float32, "2, 8, 128"))]

    kernel = TritonKernel([x, columns, columns], "2, 8, 128", "", build)
    assert kernel.source.index("tl.load(p2") < kernel.source.index("for y in tl.range(first, first + 4")
    assert kernel.made.grid == [8, 1, 1]
    inputs = torch.randn(2, 8, 128), torch.randn(128), torch.randn(128)
    kernel.check(*inputs)
    found: list[TritonSchedule] = []
    arguments = [x, columns, columns], "2, 8, 128", "", build
    TritonKernel(*arguments, shrink=lambda s: found.extend(alternatives(s)) or s)
    assert {s.rows for s in found} == {2, 4, 8} and len({s.tiles[0].block for s in found}) == 1
    for schedule in found:
        TritonKernel(*arguments, shrink=lambda _, schedule=schedule: schedule).check(*inputs)


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_programs_that_share_columns_follow_one_another(chunk, monkeypatch):
    """Four blocks of columns by four groups of rows, each once, in an order of one's own."""
    for name, size in (("ROWS_IN_TURN", 4), ("ELEMENTS", 64), ("PROGRAMS", 1), ("CHUNK", chunk)):
        monkeypatch.setattr(triton_schedule, name, size)
    x, columns = info(torch.float32, "16, 256"), info(torch.float32, "256")

    def build(b, x, scale, shift):
        value = b.add(b.mul(b.read(x, b.dims), b.read(scale, b.dims[1:])), b.read(shift, b.dims[1:]))
        return [(value, b.dims, info(torch.float32, "16, 256"))]

    kernel = TritonKernel([x, columns, columns], "16, 256", "", build)
    assert kernel.made.grid == [16, 1, 1]
    line = next(line for line in kernel.source.splitlines() if line.startswith("    first = "))
    order = [eval(line.split("=")[1], {"program": p}) // 4 for p in range(16)]
    assert order == [p // math.gcd(chunk, 4) % 4 for p in range(16)]
    kernel.check(torch.randn(16, 256), torch.randn(256), torch.randn(256))
