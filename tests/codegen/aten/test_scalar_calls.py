"""Operators that take a Scalar, as native calls of others: eager's results, of any tensors, and eager's errors."""

import random

import pytest
import torch

from mlirc.codegen.aten import scalar_call


def add_rows(x, dim, index, source):
    return x.index_add(dim, index, source)


def compiled(**options):
    torch.compiler.reset()
    return torch.compile(
        add_rows, backend="mlirc", fullgraph=True, options={"cache": False, "fallback": "error"}, **options
    )


def calls(monkeypatch) -> list:
    """The operators that were called natively in place of index_add, while programs are made."""
    made = []
    write = scalar_call.with_slots
    monkeypatch.setattr(
        scalar_call,
        "with_slots",
        lambda frame, function, *rest: made.append(function) or write(frame, function, *rest),
    )
    return made


@pytest.mark.parametrize("dynamic", [False, True])
def test_sums_are_eagers(dynamic, monkeypatch):
    made = calls(monkeypatch)
    draw = random.Random(0)
    run = compiled(dynamic=dynamic)
    for dtype, dim in [(torch.float32, 0), (torch.float32, 1), (torch.int8, 0)][: 1 if dynamic else 3]:
        for _ in range(3 if dynamic else 1):
            shape = [draw.randint(3, 9), draw.randint(3, 9)]
            x = (torch.randn(*shape) * 9).to(dtype)
            index = torch.randint(0, shape[dim], (draw.randint(2, 50),))
            shape[dim] = len(index)
            source = (torch.randn(*reversed(shape)) * 9).to(dtype).t()
            got, expected = run(x, dim, index, source), add_rows(x, dim, index, source)
            assert torch.equal(got, expected) and got.stride() == expected.stride()
    assert set(made) == {torch.ops.aten.scatter_add.default}


@pytest.mark.parametrize("rows", [3, 3000])
def test_a_bad_index_is_eagers_error(rows):
    x, index = torch.randn(8, 64), torch.randint(0, 8, (rows,))
    run = compiled()
    for bad in (8, -1):
        index[1] = bad
        with pytest.raises(RuntimeError) as expected:
            add_rows(x, 0, index, torch.ones(rows, 64))
        with pytest.raises(RuntimeError) as got:
            run(x, 0, index, torch.ones(rows, 64))
        assert str(got.value) == str(expected.value)


def test_of_nothing():
    """Of an empty tensor eager looks at no index, and scatter_add at some: then index_add itself is called."""
    run = compiled(dynamic=False)
    for shape, dim in (((4, 0), 0), ((0, 3), 0), ((0, 3), 1), ((2, 3), 0)):
        x = torch.randn(shape)
        index = torch.tensor([1, 7] if not x.numel() else [], dtype=torch.int64)
        source = torch.ones([len(index) if d == dim else n for d, n in enumerate(shape)])
        assert torch.equal(run(x, dim, index, source), add_rows(x, dim, index, source))


def test_an_index_of_int32_stays_index_add(monkeypatch):
    made = calls(monkeypatch)
    x, index, source = torch.randn(4, 2), torch.tensor([1, 2]).int(), torch.ones(2, 2)
    assert torch.equal(compiled()(x, 0, index, source), add_rows(x, 0, index, source))
    assert made == []


def test_scattered_values_are_eagers(monkeypatch):
    made = calls(monkeypatch)
    index = torch.tensor([[1, 0], [2, 2], [0, 1]])

    def scattered(x, index):
        return x.scatter(1, index, 1.75), x.scatter(0, index, True), x.index_fill(1, index[:, 0], -1)

    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool):
        x = (torch.randn(3, 4) * 9).to(dtype)
        torch.compiler.reset()
        run = torch.compile(scattered, backend="mlirc", fullgraph=True, options={"cache": False, "fallback": "error"})
        for got, expected in zip(run(x, index), scattered(x, index), strict=True):
            assert torch.equal(got, expected)
    assert set(made) == {torch.ops.aten.scatter.src, torch.ops.aten.index_fill.int_Tensor} and len(made) == 15
    with pytest.raises(RuntimeError, match="index 4 is out of bounds for dimension 1 with size 4"):
        run(x, index * 2)


@pytest.mark.parametrize("dynamic", [False, True])
def test_spaces_are_eagers(dynamic, monkeypatch):
    """The ends of linspace and logspace: ints, floats, sizes, and floats that are arguments."""
    made = calls(monkeypatch)

    def spaces(x, end):
        n = x.shape[0]
        return (
            torch.linspace(0, 1, n) + x,
            torch.linspace(-0.1, n - 1, n, dtype=torch.float64),
            torch.linspace(3, -7, 5, dtype=torch.int64),
            torch.linspace(float("-inf"), end, 4),
            torch.logspace(-2, end, n, 3.0),
        )

    torch.compiler.reset()
    run = torch.compile(
        spaces, backend="mlirc", fullgraph=True, dynamic=dynamic, options={"cache": False, "fallback": "error"}
    )
    for n, end in [(13, 0.7), (40, 1.3)][: 1 + dynamic]:
        x = torch.randn(n)
        for got, expected in zip(run(x, end), spaces(x, end), strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True, check_stride=True)
    aten = torch.ops.aten
    assert set(made) == {aten.linspace.Tensor_Tensor, aten.logspace.Tensor_Tensor}
