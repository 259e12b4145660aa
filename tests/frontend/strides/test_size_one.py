"""Strides of dimensions of size 1 are eager's too, of views as of new tensors.

Nobody walks along such a dimension, but TensorIterator orders by its stride: a view that differs there from eager's gives
an operator after it another order of memory.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.frontend.strides import layouts
from tests.frontend.strides.layouts import LAYOUTS, wrong
from tests.frontend.strides.test_eager_strides import OTHERS, arguments
from tests.frontend.strides.test_eager_strides import elementwise as elementwise_operators

aten = torch.ops.aten
SHAPES = ((1,), (1, 4), (4, 1), (4, 4), (1, 4, 1), (2, 1, 4), (4, 1, 1), (1, 2, 1, 2), (2, 3, 1, 4))
ZEROS, ONES = torch.tensor([0, 0]), torch.tensor([0])


def with_stride(stride: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Row-major but for the dimensions of size 1, which have a stride of their own."""

    def lay(x: torch.Tensor) -> torch.Tensor:
        strides = x.contiguous().stride()
        return x.as_strided(x.shape, [stride if n == 1 else s for n, s in zip(x.shape, strides, strict=True)])

    return lay


ALL = LAYOUTS | {f"stride {n} where the size is 1": with_stride(n) for n in (0, 1, 7)}


def shapes_of(count: int, rank: int) -> Iterator[tuple[int, ...]]:
    if rank == 0:
        yield from [()] if count == 1 else []
        return
    for n in (n for n in range(1, count + 1) if count % n == 0):
        yield from ((n, *rest) for rest in shapes_of(count // n, rank - 1))


def views(x: torch.Tensor) -> Iterator[Callable[[Any], Any]]:
    rank = x.dim()
    for sizes in itertools.chain.from_iterable(shapes_of(x.numel(), n) for n in range(1, 5)):
        yield lambda x, sizes=sizes: aten.view.default(x, sizes)
        yield lambda x, sizes=sizes: aten.reshape.default(x, sizes)
    for d in range(rank):
        yield lambda x, d=d: aten.unsqueeze.default(x, d)
        yield lambda x, d=d: aten.squeeze.dim(x, d)
        yield lambda x, d=d: aten.select.int(x, d, 0)
        yield lambda x, d=d: aten.slice.Tensor(x, d, 0, 9, 2)
        yield lambda x, d=d: aten.split.Tensor(x, 1, d)
        yield lambda x, d=d: aten.unfold.default(x, d, 1, 1)
        yield lambda x, d=d: aten.transpose.int(x, d, 0)
    yield lambda x: aten.expand.default(x, [2, *x.shape])
    for lead in ([1], [1, 2], [2, 1], [1, 1, 3]):
        yield lambda x, lead=lead: aten.expand.default(x, [*lead, *x.shape])
        yield lambda x, lead=lead: aten.expand.default(x, [*lead, *(2 if n == 1 else n for n in x.shape)])
        yield lambda x, lead=lead: aten.expand.default(aten.sum.default(x), [*lead, 1])
    yield lambda x: aten.expand.default(x, [3 if n == 1 else n for n in x.shape])
    yield lambda x: aten.permute.default(x, range(x.dim() - 1, -1, -1))
    yield lambda x: aten.view.dtype(x, torch.int16)


def lists(rank: int) -> Iterator[Callable[[torch.Tensor], list[torch.Tensor]]]:
    """One tensor, it beside a row-major copy, and its first and last slices."""
    yield lambda x: [x]
    yield lambda x: [x, x.contiguous(), x]
    for d in range(rank):
        yield lambda x, d=d: [x.narrow(d, 0, 1), x.narrow(d, x.shape[d] - 1, 1)]


def new(x: torch.Tensor) -> Iterator[Callable[[Any], Any]]:
    yield lambda x: aten.flip.default(x, [0])
    yield lambda x: aten._to_copy.default(x, dtype=torch.float64)
    for layout in (None, torch.contiguous_format, torch.channels_last):
        yield lambda x, layout=layout: aten.clone.default(x, memory_format=layout)
        yield lambda x, layout=layout: aten.zeros_like.default(x, memory_format=layout)
        yield lambda x, layout=layout: aten.empty_like.default(x, memory_format=layout)
        yield lambda x, layout=layout: aten.full_like.default(x, 2.0, memory_format=layout)
    for d in range(x.dim()):
        yield lambda x, d=d: aten.sum.dim_IntList(x, [d], True)
        yield lambda x, d=d: aten.max.dim(x, d, False)
        yield lambda x, d=d: aten._softmax.default(x, d, False)
        yield lambda x, d=d: aten.cumsum.default(x, d)
        yield lambda x, d=d: aten.sort.default(x, d)
        for parts in lists(x.dim()):
            yield lambda x, d=d, parts=parts: aten.cat.default(parts(x), d)
            yield lambda x, d=d, parts=parts: aten.stack.default(parts(x), d)
        yield lambda x, d=d: aten.gather.default(x, d, torch.zeros(x.shape, dtype=torch.int64))
        yield lambda x, d=d: aten.index.Tensor(x, [None] * d + [ZEROS])
        yield lambda x, d=d: aten.index.Tensor(x, [ONES, *[None] * d, ZEROS])
        yield lambda x, d=d: aten.index_copy.default(x, d, torch.arange(x.shape[d]), x)
        yield lambda x, d=d: aten.slice_scatter.default(x, aten.slice.Tensor(x, d, 0, 1), d, 0, 1)
        yield lambda x, d=d: aten.roll.default(x, [1], [d])
    yield lambda x: aten.index_put.default(x, [ONES], torch.tensor(1.0))
    yield lambda x: aten.masked_fill.Scalar(x, aten.gt.Scalar(x, 0), 1)
    yield lambda x: aten.where.self(aten.gt.Scalar(x, 0), x, 1 - x)
    yield lambda x: aten.where.self(aten.gt.Scalar(x, 0), x.double().sum(0), x.sum(-1))
    yield lambda x: aten.triu.default(x)
    yield lambda x: aten.repeat.default(x, [1] * x.dim())
    yield lambda x: aten.neg.default(x)
    yield lambda x: aten.add.Tensor(x, 2)
    yield lambda x: aten.add.Tensor(x, x.mT.contiguous().mT)
    yield lambda x: aten.add.Tensor(x, x.new_ones(x.shape[0]).unsqueeze(-1).expand(x.shape[0], x.shape[-1]))
    yield lambda x: aten.glu.default(x, -1)
    yield lambda x: aten.diag_embed.default(x)
    yield lambda x: aten.native_dropout.default(x, 0.0, False)
    if x.dim() == 4:
        yield lambda x: aten._scaled_dot_product_flash_attention_for_cpu.default(x, x, x)


Case = Callable[[], tuple[str, Any, tuple, dict[str, Any]]]
"""Makes a name, an operator and its arguments. There are many cases, and a test takes few of them."""


def calls() -> Iterator[Case]:
    """Views and new tensors of each layout."""
    for shape, (name, lay) in itertools.product(SHAPES, ALL.items()):
        if name in ("transposed", "sliced, transposed", "channels-last") and len(shape) == 1:
            continue
        x = lay(torch.rand(shape))
        for call in (*views(x), *new(x)):
            yield lambda name=name, call=call, x=x: (name, call, (x,), {})


def elementwise() -> Iterator[Case]:
    """Elementwise operators, of tensors that lie alike and not."""
    dtypes = torch.float32, torch.complex64, torch.int64, torch.bool
    operators = sorted({*elementwise_operators(), *OTHERS}, key=str)
    cases = itertools.product(operators, dtypes, ((2, 2, 1), (1, 3), (3, 1, 2, 1)), ALL.items(), (True, False))
    for op, dtype, shape, (name, lay), alike in cases:
        if "dropout" not in str(op) or dtype.is_floating_point:
            yield lambda case=(op, dtype, shape, name, lay, alike): elementwise_case(*case)


def elementwise_case(op: Any, dtype: Any, shape: Any, name: str, lay: Any, alike: bool) -> tuple[str, Any, tuple, dict]:
    x = lay(torch.ones(shape).to(dtype))
    other = x if alike else torch.ones_like(x, memory_format=torch.contiguous_format)
    return name, op, *arguments(op, [x, other, x])


def differences(cases: Iterator[Case], part: int, of: int, dynamic: bool = False) -> tuple[list[str], int]:
    """What differs from eager in every `of`-th case from `part` on, and about how many cases there are."""
    found, compared = [], 0
    for case in itertools.islice(cases, part, None, of):
        name, op, args, kwargs = case()
        wrongs = wrong(op, args, kwargs, dynamic)
        compared += wrongs is not None
        found += [f"{name}: {text}" for text in wrongs or ()]
    return found, of * compared


@pytest.fixture
def all_strides(monkeypatch):
    """Compares strides of dimensions of size 1, too."""

    def strides(x: Any) -> tuple | None:
        numbers = [[n if isinstance(n, int) else n.node.hint for n in part] for part in (x.shape, x.stride())]
        return None if 0 in numbers[0] else tuple(numbers[1])

    monkeypatch.setattr(layouts, "walked", strides)


@pytest.mark.parametrize(("part", "of"), [(3, 61), pytest.param(0, 1, marks=pytest.mark.full)])
@pytest.mark.parametrize(("cases", "fewest"), [(calls, 8000), (elementwise, 30000)])
def test_calls(all_strides, cases, fewest, part, of):
    found, compared = differences(cases(), part, of)
    assert not found, "\n".join(found[:40])
    assert compared > fewest


def stacks() -> Iterator[Case]:
    """Parts of channels-last images, joined along each dimension."""
    for shape in ((1, 3, 4, 5), (2, 1, 1, 4), (2, 3, 1, 4), (1, 2, 3, 1, 4)):
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        x = torch.rand(shape).contiguous(memory_format=formats[len(shape)])
        for part, d, op in itertools.product(
            lists(len(shape)), range(len(shape)), (aten.stack.default, aten.cat.default)
        ):
            yield lambda x=x, part=part, d=d, op=op: (f"{op} {d}", lambda x: op(part(x), d), (x,), {})


@pytest.mark.parametrize("dynamic", [False, True])
def test_stacks(all_strides, dynamic):
    found, compared = differences(stacks(), 0, 1, dynamic)
    assert not found, "\n".join(found[:40])
    assert compared > 200


@pytest.mark.full
def test_calls_of_symbols():
    found, compared = differences(calls(), part=0, of=11, dynamic=True)
    assert not found, "\n".join(found[:40])
    assert compared > 4000


def test_what_follows_a_view_is_laid_out_as_in_eager():
    def product(a):
        row = a.t()
        return torch.where(a, row.prod(1, dtype=torch.float64), a.min(-1)[1]) + row.unflatten(0, (1, -1))

    def transposed(x):
        return torch.hstack([x, x]) + torch.from_numpy(x.detach().numpy().transpose()).cosh()

    for function, x in ((product, torch.ones(16, 1).bool()), (transposed, torch.randn(1, 1, 1, 2))):
        torch._dynamo.reset()
        found = torch.compile(function, backend="mlirc", options={"fallback": "error"})(x)
        expected = function(x)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()


def convolutions() -> Iterator[tuple]:
    """Gradients of convolutions whose weights are row-major and channels-last at once, or not, by oneDNN and by ATen's own kernels."""
    formats = torch.contiguous_format, torch.channels_last
    for (dtype, batch), inputs, taps, transposed, of_x, of_weight in itertools.product(
        ((torch.float32, 2), (torch.float64, 1)), (1, 4), (1, 3), (False, True), formats, formats
    ):
        x = torch.rand(batch, inputs, 5, 5, dtype=dtype).to(memory_format=of_x)
        for groups in {1, inputs}:
            sizes = (inputs, 4) if transposed else (4 * groups, inputs // groups)
            weight = torch.rand(*sizes, taps, taps, dtype=dtype).to(memory_format=of_weight)
            settings = [1, 1], [taps // 2] * 2, [1, 1], transposed, [0, 0], groups
            given = torch.rand_like(aten.convolution.default(x, weight, None, *settings))
            yield given, x, weight, [given.shape[1]], *settings, [False, True, True]


def test_gradients_of_weights(all_strides):
    refused, found = 0, []
    for args in convolutions():
        wrongs = wrong(aten.convolution_backward.default, args, {}, False)
        refused += wrongs is None
        found += wrongs or ()
    assert not refused and not found, "\n".join(found[:40])


HEADS = {
    "B, H, L, E": lambda b, h, n, e: torch.rand(b, h, n, e),
    "B, L, H, E": lambda b, h, n, e: torch.rand(b, n, h, e).transpose(1, 2),
    "L, B, H, E": lambda b, h, n, e: torch.rand(n, b, h, e).permute(1, 2, 0, 3),
    "B, H, E, L": lambda b, h, n, e: torch.rand(b, h, e, n).transpose(2, 3),
    "B, L, 3, H, E": lambda b, h, n, e: torch.rand(b, n, 3, h, e)[:, :, 1].transpose(1, 2),
}


@pytest.mark.parametrize("layout", HEADS)
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.thinned(2)
def test_attention_of_one_query(layout, gradients):
    """One query, key, head, batch or feature, or none of them."""
    sizes = [(2, 3, 1, 4), (1, 3, 1, 4), (1, 1, 1, 4), (2, 3, 5, 1), (2, 0, 1, 4), (2, 3, 1, 0)]
    inputs = [[HEADS[layout](b, h, keys, e) for keys in (n, 5, 5)] for b, h, n, e in sizes]

    def program(inputs):
        return [torch.nn.functional.scaled_dot_product_attention(*x) for x in inputs]

    def found(f):
        given = [[x.detach().requires_grad_(gradients) for x in xs] for xs in inputs]
        results = f(given)
        if gradients:
            flat = [x for xs in given for x in xs]
            results += torch.autograd.grad(results, flat, [torch.ones_like(y) for y in results])
        return results

    torch._dynamo.reset()
    got, eager = found(torch.compile(program, backend="mlirc", options={"fallback": "error"})), found(program)
    torch.testing.assert_close(got, eager)
    assert [x.stride() for x in got] == [x.stride() for x in eager]


def test_heads_without_elements_are_atens():
    """In PyTorch 2.11 they are the fused operator's."""
    q = torch.rand(2, 3, 4, 0)
    compiled = torch.compile(
        aten._scaled_dot_product_flash_attention_for_cpu, backend="mlirc", options={"fallback": "error"}
    )
    torch.testing.assert_close(compiled(q, q, q), aten._scaled_dot_product_flash_attention_for_cpu(q, q, q))
