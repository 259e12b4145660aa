"""Random kernels, lowered, against the interpreter: any rank, order of dimensions, sizes known or not, dtypes, lanes."""

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import symbol
from mlirc.dialects.core.tensor_types import opmath
from tests.kernel_runner import NativeKernel, info, like

f32, f64, bf16, i64, i32, u8, bool_ = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


@st.composite
def spaces(draw):
    rank = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3, 7, 16, 17, 40]), min_size=rank, max_size=rank))
    return sizes, draw(st.integers(0, rank)), draw(st.permutations(range(rank))), draw(st.permutations(range(rank)))


KINDS = ("sum", "max", "argmin", "scan")


@settings(max_examples=20, deadline=None)
@given(spaces(), st.booleans(), st.sampled_from(KINDS), st.sampled_from([f32, i64, u8]), st.sampled_from([64, 32]))
def test_random_reductions_with_masks(space, symbolic, kind, dtype, vector_bytes):
    """Permuted masked reads, one of them by an index; max, argmin, or a scan; a permuted result and a bool."""
    sizes, parallel, reading, writing = space
    assume(sizes[0] > 0)  # an index into nothing is an error
    parallel = len(sizes) - 1 if kind == "scan" else parallel
    names = [f"s{d}" for d in range(len(sizes))] if symbolic else [str(n) for n in sizes]
    shape = ", ".join(names[d] for d in writing)

    def build(k, x, index):
        dims = k.dims
        inside = k.ne(k.read(index, [dims[0]]), k.size(dims[-1]))
        a = k.read(x, [dims[d] for d in reading], mask=inside)
        row = k.check_index(k.read(index, [dims[-1]]), symbols.parse(names[0]), True, "")
        b = k.read(x, [symbol("i0") if d == 0 else dims[d] for d in reading], [row])
        value = k.add(k.cast(a, opmath(dtype)), k.cast(b, opmath(dtype)))
        results = [(k.gt(value, k.cast(a, opmath(dtype))), [dims[d] for d in writing], info(bool_, shape))]
        if kind == "scan":
            return [(k.scan("max", value), [dims[d] for d in writing], info(dtype, shape)), *results]
        if k.inner:
            out = info(i64 if kind == "argmin" else dtype, ", ".join(names[: len(k.parallel)]))
            results.append((k.reduce(kind, value), k.parallel_dims, out))
        return results

    length = max(sizes[0], sizes[-1])
    tensor = torch.randint(0, 5, [sizes[d] for d in reading]).to(dtype)
    index = torch.randint(-sizes[0], sizes[0], (length,))
    parts = ", ".join(names[:parallel]), ", ".join(names[parallel:])
    shape_in = ", ".join(names[d] for d in reading)
    kernel = NativeKernel([info(dtype, shape_in), like(index)], *parts, build, vector_bytes)
    kernel.check(tensor, index, **(dict(zip(names, sizes, strict=True)) if symbolic else {}))


@settings(max_examples=20, deadline=None)
@given(
    spaces(), st.booleans(), st.integers(0, 3), st.sampled_from([f32, bf16, f64, i32]), st.sampled_from([64, 32, 16])
)
def test_random_layouts_and_reductions(space, symbolic, broadcast, dtype, vector_bytes):
    """x is read permuted, y broadcast; inner dimensions are summed; the difference to the mean is written permuted."""
    sizes, parallel, reading, writing = space
    names = [f"s{d}" for d in range(len(sizes))] if symbolic else [str(n) for n in sizes]
    shape = [names[d] for d in reading]
    flat = "" if broadcast >= len(sizes) else names[broadcast]

    def build(k, x, y):
        dims = k.dims
        a = k.read(x, [dims[d] for d in reading])
        b = k.read(y, [dims[broadcast]] if flat else [])
        value = k.add(k.mul(a, b), a)
        out = info(dtype, ", ".join(names[d] for d in writing))
        results = []
        if k.inner:
            total = k.reduce("sum", value)
            results.append((total, k.parallel_dims, info(dtype, ", ".join(names[: len(k.parallel)]))))
            value = k.sub(value, k.mul(total, total))
        return [*results, (value, [dims[d] for d in writing], out)]

    tensor = torch.randint(-3, 4, [sizes[d] for d in reading]).to(dtype)
    other = torch.randint(-3, 4, [sizes[broadcast]] if flat else []).to(dtype)
    parts = ", ".join(names[:parallel]), ", ".join(names[parallel:])
    kernel = NativeKernel([info(dtype, ", ".join(shape)), info(dtype, flat)], *parts, build, vector_bytes)
    kernel.check(tensor, other, **(dict(zip(names, sizes, strict=True)) if symbolic else {}))
