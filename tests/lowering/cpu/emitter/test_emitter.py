"""Lowered kernels against the interpreter: shapes, strides, dtypes, reductions, scans, indices, masks, threads."""

import math

import pytest
import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import symbol
from mlirc.dialects.core.tensor_types import opmath
from tests.kernel_runner import NativeKernel, info, like

f32, f64, f16, bf16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
i64, i32, u8, bool_ = torch.int64, torch.int32, torch.uint8, torch.bool
SIZES = (0, 1, 2, 5, 16, 33, 100)


def softmax(k, x):
    a = k.read(x, k.dims)
    e = k.exp(k.sub(a, k.reduce("max", a)))
    return [(k.div(e, k.reduce("sum", e)), k.dims, info(f32, symbols.print_list(k.parallel + k.inner)))]


def layer_norm(k, x, weight, bias):
    a, count = k.read(x, k.dims), k.cast(k.size(k.inner[0]), f32)
    centred = k.sub(a, k.div(k.reduce("sum", a), count))
    variance = k.div(k.reduce("sum", k.mul(centred, centred)), count)
    scale = k.div(1.0, k.sqrt(k.add(variance, 1e-5)))
    y = k.add(k.mul(k.mul(centred, scale), k.read(weight, k.inner_dims)), k.read(bias, k.inner_dims))
    return [
        (y, k.dims, info(f32, symbols.print_list(k.parallel + k.inner))),
        (scale, k.parallel_dims, info(f32, str(k.parallel[0]))),
    ]


def test_contiguous_elementwise_is_one_loop():
    shape = info(f32, "2, 128, 48")
    kernel = NativeKernel(
        [shape, shape], "2, 128, 48", "", lambda k, x, y: [(k.add(k.read(x, k.dims), k.read(y, k.dims)), k.dims, shape)]
    )
    assert kernel.mlir.count("scf.for") == 1
    kernel.check(torch.randn(2, 128, 48), torch.randn(2, 128, 48))


def test_channels_last_elementwise_is_one_loop():
    shape = info(f32, "2, 3, 16, 16", "768, 1, 48, 3")
    kernel = NativeKernel([shape], "2, 3, 16, 16", "", lambda k, x: [(k.neg(k.read(x, k.dims)), k.dims, shape)])
    assert kernel.mlir.count("scf.for") == 1
    kernel.check(torch.randn(2, 3, 16, 16).to(memory_format=torch.channels_last))


@pytest.fixture(scope="module")
def symbolic_softmax():
    return NativeKernel([info(f32, "s0, s1")], "s0", "s1", softmax)


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("columns", SIZES)
@pytest.mark.thinned
def test_softmax_of_any_size(symbolic_softmax, rows, columns):
    symbolic_softmax.check(torch.randn(rows, columns), s0=rows, s1=columns)


@pytest.mark.parametrize("columns", [1, 3, 16, 77, 1000, 9000])
def test_softmax_of_known_size(columns):
    kernel = NativeKernel([info(f32, f"30, {columns}")], "30", str(columns), softmax)
    kernel.check(torch.randn(30, columns))


def test_layer_norm():
    rows, columns = 37, 203
    inputs = torch.randn(rows, columns) + 3, torch.randn(columns), torch.randn(columns)
    kernel = NativeKernel([like(x) for x in inputs], str(rows), str(columns), layer_norm)
    kernel.check(*inputs)


def test_sum_of_many_float32_is_as_accurate_as_eager():
    x = torch.rand(3_000_001)
    kernel = NativeKernel(
        [like(x)], "", str(len(x)), lambda k, x: [(k.reduce("sum", k.read(x, k.dims)), [], info(f32, ""))]
    )
    out = torch.zeros(())
    kernel([x], [out])
    exact = x.double().sum()
    assert abs(out - exact) <= abs(x.sum() - exact) + exact * 2**-23


@pytest.mark.parametrize("dtype", [f32, f64, f16, bf16, i64, i32, torch.int16, torch.int8, u8, bool_])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.thinned
def test_reductions(dtype, kind, dim):
    x = torch.randint(0, 3, (19, 70)).to(dtype)
    if dtype == bool_ and kind not in ("any", "all"):
        pytest.skip("booleans have any and all only")

    def build(k, x):
        value = k.read(x, (k.dims[0], k.dims[1]) if dim == 1 else (k.dims[1], k.dims[0]))
        if kind in ("any", "all"):
            value = k.cast(value, bool_)
        result = k.reduce(kind, value)
        out = i64 if kind.startswith("arg") else bool_ if kind in ("any", "all") else dtype
        return [(result, k.parallel_dims, info(out, str(k.parallel[0])))]

    sizes = x.shape if dim == 1 else x.shape[::-1]
    kernel = NativeKernel([like(x)], str(sizes[0]), str(sizes[1]), build)
    kernel.check(x)


@pytest.mark.parametrize("kind", ["max", "min", "argmax", "argmin", "sum"])
def test_reductions_with_nan_and_infinity(kind):
    x = torch.randn(8, 50)
    x[0, 17] = x[0, 30] = math.nan
    x[1] = -math.inf
    x[2] = math.inf
    x[3, 3], x[3, 40] = math.inf, -math.inf
    x[4, 49] = math.nan
    x[5] = 0.0
    x[5, 7] = -0.0
    x[6, 5:20] = 9.0
    out = i64 if kind.startswith("arg") else f32
    kernel = NativeKernel(
        [like(x)], "8", "50", lambda k, x: [(k.reduce(kind, k.read(x, k.dims)), k.parallel_dims, info(out, "8"))]
    )
    kernel.check(x)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("columns", [True, False])
def test_scans(kind, columns):
    x = torch.randn(21, 34)
    x[3, 5] = math.nan

    def build(k, x):
        dims = k.dims if not columns else k.dims[::-1]
        return [(k.add(k.scan(kind, k.read(x, dims)), 1.0), dims, info(f32, "21, 34"))]

    kernel = NativeKernel([like(x)], "34" if columns else "21", "21" if columns else "34", build)
    kernel.check(x)


def test_sums_over_two_separate_dimensions():
    x = torch.randn(5, 7, 6, 9)

    def build(k, x):
        a, b, c, d = k.dims
        return [(k.reduce("sum", k.read(x, (c, a, d, b))), (a, b), info(f32, "7, 9"))]

    kernel = NativeKernel([like(x)], "7, 9", "5, 6", build)
    kernel.check(x)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0)])
def test_argmax_over_two_dimensions_counts_row_major(order):
    sizes = (6, 20, 40)
    x = torch.randint(0, 4, [sizes[d] for d in order]).float()

    def build(k, x):
        return [(k.reduce("argmax", k.read(x, [k.dims[d] for d in order])), k.parallel_dims, info(i64, "6"))]

    NativeKernel([like(x)], "6", "20, 40", build).check(x)


def test_reduction_of_what_does_not_depend_on_the_inner_dimension():
    x = torch.randn(12)
    kernel = NativeKernel(
        [like(x)],
        "12",
        "35",
        lambda k, x: [(k.reduce("sum", k.read(x, k.parallel_dims)), k.parallel_dims, info(f32, "12"))],
    )
    kernel.check(x)


@pytest.mark.parametrize(("rows", "columns"), [(33, 65), (64, 64), (3, 200), (200, 3)])
def test_transpose(rows, columns):
    x = torch.randn(columns, rows)

    def build(k, x):
        i, j = k.dims
        return [(k.add(k.read(x, (j, i)), 1.0), k.dims, info(f32, f"{rows}, {columns}"))]

    NativeKernel([like(x)], f"{rows}, {columns}", "", build).check(x)


def test_strided_and_broadcast_reads():
    x = torch.randn(8, 4, 50)[:, ::2, ::3]
    y, z = torch.randn(8, 1, 1), torch.tensor(3.0)

    def build(k, x, y, z):
        a, b, c = k.dims
        return [
            (k.mul(k.add(k.read(x, (a, b, c)), k.read(y, (a, 0, 0))), k.read(z, ())), k.dims, info(f32, "8, 2, 17"))
        ]

    NativeKernel([like(x), like(y), like(z)], "8, 2, 17", "", build).check(x, y, z)


@pytest.mark.parametrize("stride", [2, 3, 4, 5, -1])
@pytest.mark.parametrize("dtype", [f32, f64, bf16, u8])
@pytest.mark.thinned
def test_every_second_element(stride, dtype):
    """The last element read is the operand's last: nothing after it may be touched."""
    count = 53
    x = torch.randint(0, 100, (3, (count - 1) * abs(stride) + 1)).to(dtype)

    def build(k, x):
        a, b = k.dims
        return [(k.read(x, (a, b * stride + (count - 1 if stride < 0 else 0))), k.dims, info(dtype, f"3, {count}"))]

    NativeKernel([like(x)], f"3, {count}", "", build).check(x)


@pytest.mark.parametrize("stride", [2, 3, -1])
def test_every_second_element_under_a_mask(stride):
    """A pooling window over padding: what lies outside of the tensor must not be read."""
    x = torch.randn(4, 61)

    def build(k, x):
        a, b = k.dims
        index = b * stride + (61 if stride < 0 else -1)
        inside = k.logical_and(k.ge(k.size(index), k.size(0)), k.lt(k.size(index), k.size(61)))
        return [(k.read(x, (a, index), mask=inside), k.dims, info(f32, f"4, {63 // abs(stride)}"))]

    NativeKernel([like(x)], f"4, {63 // abs(stride)}", "", build).check(x)


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("symbolic", [False, True])
def test_divided_dimensions_are_read_in_steps(reduced, symbolic):
    """The gradient of q, k and v side by side: heads merged, three reads under masks."""
    x = torch.randn(3, 4, 6, 16)  # which, batch, head, element of 24 rows
    rows = "s0" if symbolic else "4"

    def build(k, x):
        column, row = k.dims if reduced else k.dims[::-1]
        total = None
        for which in range(3):
            at = k.size(column)
            mask = k.logical_and(k.ge(at, k.size(which * 96)), k.lt(at, k.size(which * 96 + 96)))
            inside = column - which * 96
            value = k.read(x, (which, row, inside // 16, inside % 16), mask=mask)
            total = value if total is None else k.add(total, value)
        if reduced:
            return [(k.reduce("sum", total), k.parallel_dims, info(f32, "288"))]
        return [(total, (row, column), info(f32, f"{rows}, 288"))]

    spaces = ("288", rows) if reduced else (f"{rows}, 288", "")
    kernel = NativeKernel([info(f32, f"3, {rows}, 6, 16")], *spaces, build)
    assert "masked.gather" not in kernel.mlir
    kernel.check(x, **({"s0": 4} if symbolic else {}))


def test_flip_and_remainder_maps():
    x = torch.randn(10, 12)

    def build(k, x):
        (d,) = k.dims
        return [(k.read(x, ((d * -1 + 119) // 12, (d * -1 + 119) % 12)), k.dims, info(f32, "120"))]

    NativeKernel([like(x)], "120", "", build).check(x)


def test_gather():
    table, index = torch.randn(11, 40), torch.randint(-11, 11, (6, 9))

    def build(k, table, index):
        a, b, c = k.dims
        row = k.check_index(k.read(index, (a, b)), 11, True, "index {index} of {size}")
        return [(k.read(table, (symbol("i0"), c), [row]), k.dims, info(f32, "6, 9, 40"))]

    NativeKernel([like(table), like(index)], "6, 9, 40", "", build).check(table, index)


def test_gather_along_the_vector():
    x, index = torch.randn(7, 30), torch.randint(0, 30, (7, 50))

    def build(k, x, index):
        a, b = k.dims
        column = k.check_index(k.read(index, (a, b)), 30, False, "")
        return [(k.read(x, (a, symbol("i0")), [column]), k.dims, info(f32, "7, 50"))]

    NativeKernel([like(x), like(index)], "7, 50", "", build).check(x, index)


@pytest.mark.parametrize("along", [True, False])
def test_bad_index(along):
    x, index = torch.randn(30, 30), torch.arange(20)
    index[7] = 31

    def build(k, x, index):
        a, b = k.dims
        row = k.check_index(k.read(index, (b if along else a,)), 30, True, "index {index} of {size}")
        return [(k.read(x, (symbol("i0"), 0), [row]), k.dims, info(f32, "20, 20"))]

    kernel = NativeKernel([like(x), like(index)], "20, 20", "", build)
    out = torch.zeros(20, 20)
    assert kernel([x, index], [out]) == (1, 31, 30)
    wanted = x[index.clamp(max=29), 0].expand(20, 20) if along else x[index.clamp(max=29), 0][:, None].expand(20, 20)
    good = index < 30
    torch.testing.assert_close(out[:, good] if along else out[good], wanted[:, good] if along else wanted[good])
    index[7] = -30
    assert kernel([x, index], [out])[0] == 0


def test_index_into_nothing():
    x, index = torch.randn(0, 5), torch.zeros(3, dtype=i64)

    def build(k, x, index):
        a, b = k.dims
        row = k.check_index(k.read(index, (a,)), symbol("s0"), True, "")
        return [(k.read(x, (symbol("i0"), b), [row]), k.dims, info(f32, "3, 5"))]

    kernel = NativeKernel([info(f32, "s0, 5"), like(index)], "3, 5", "", build)
    assert kernel([x, index], [torch.zeros(3, 5)], s0=0) == (1, 0, 0)


def test_no_point_asks_for_the_bad_index():
    x, index = torch.randn(4, 5), torch.full((3,), 9)

    def build(k, x, index):
        a, b = k.dims
        row = k.check_index(k.read(index, (a,)), 4, True, "")
        return [(k.read(x, (symbol("i0"), b), [row]), k.dims, info(f32, "3, s0"))]

    kernel = NativeKernel([info(f32, "4, 5"), like(index)], "3, s0", "", build)
    assert kernel([x, index], [torch.zeros(3, 0)], s0=0)[0] == 0
    assert kernel([x, index], [torch.zeros(3, 1)], s0=1)[0] == 1


@pytest.mark.parametrize("size", [5, 16, 45])
def test_pad(size):
    x = torch.randn(9, size)
    out = info(f32, f"9, {size + 5}")

    def build(k, x):
        a, b = k.dims
        place = k.size(b - 2)
        inside = k.logical_and(k.ge(place, k.size(0)), k.lt(place, k.size(size)))
        return [(k.read(x, (a, b - 2), mask=inside), k.dims, out)]

    NativeKernel([like(x)], f"9, {size + 5}", "", build).check(x)


def test_iota():
    def build(k):
        a, b = k.dims
        return [(k.cast(k.size(a * 7 + b + symbol("s0")), f32), k.dims, info(f32, "13, 7"))]

    NativeKernel([], "13, 7", "", build).check(s0=5)


@pytest.mark.parametrize("dtype", [f16, bf16, u8, bool_, i64, f64])
def test_dtypes(dtype):
    x = torch.randint(0, 2, (70,)).to(dtype) if dtype in (bool_, u8, i64) else torch.randn(70).to(dtype)

    def build(k, x):
        value = k.read(x, k.dims)
        out = k.logical_not(value) if dtype == bool_ else k.add(value, value)
        return [(out, k.dims, info(dtype, "70"))]

    NativeKernel([like(x)], "70", "", build).check(x)


def test_bool_bytes_other_than_one_are_true():
    raw = torch.tensor([0, 1, 2, 255, 128] * 7, dtype=u8)
    x = raw.view(bool_)
    kernel = NativeKernel([like(x)], "35", "", lambda k, x: [(k.read(x, k.dims), k.dims, info(bool_, "35"))])
    out = torch.empty(35, dtype=bool_)
    kernel([x], [out])
    assert torch.equal(out.view(u8), (raw != 0).to(u8))


def test_in_place_softmax():
    kernel = NativeKernel([info(f32, "9, 300")], "9", "300", softmax)
    x = torch.randn(9, 300)
    wanted = x.softmax(1)
    kernel([x], [x])
    torch.testing.assert_close(x, wanted)


@pytest.mark.parametrize("columns", [300, 9000])
def test_in_place_with_a_sum_beside_the_norm(columns):
    """y = h + r is a result of its own and may be r's memory, while a later pass needs it again."""

    def build(k, h, r):
        y = k.add(k.read(h, k.dims), k.read(r, k.dims))
        norm = k.mul(y, k.rsqrt(k.reduce("sum", k.mul(y, y))))
        out = info(f32, f"5, {columns}")
        return [(y, k.dims, out), (norm, k.dims, out)]

    x = info(f32, f"5, {columns}")
    kernel = NativeKernel([x, x], "5", str(columns), build)
    h, r = torch.randn(5, columns), torch.randn(5, columns)
    kernel.check(h, r)
    sums, norms = torch.empty(5, columns), torch.empty(5, columns)
    kernel.interpret([h, r], [sums, norms])
    for first, second in ((0, None), (1, None), (None, 0), (None, 1), (0, 1), (1, 0)):
        mine = [h.clone(), r.clone()]
        outs = [mine[k] if k is not None else torch.empty(5, columns) for k in (first, second)]
        kernel(mine, outs)
        torch.testing.assert_close(outs[0], sums)
        torch.testing.assert_close(outs[1], norms)


def test_scalars_only():
    x = torch.tensor(2.0)
    kernel = NativeKernel([like(x)], "", "", lambda k, x: [(k.exp(k.read(x, ())), [], info(f32, ""))])
    kernel.check(x)


def test_equal_launches_share_a_function():
    from mlirc.dialects.core.bindings import ir
    from mlirc.dialects.core.context import context
    from mlirc.lowering.module.target_attribute import ensure_target
    from mlirc.lowering.passes.lower.lower_kernels import LowerKernels
    from mlirc.lowering.pipeline.ledger import Ledger
    from tests.kernel_runner import launch_module

    with context():
        module, _, _ = launch_module([info(f32, "4, 8")], "4", "8", softmax)
        text = str(module)
        start, end = text.index('    "mlircx.launch"'), text.index("    return")
        other = text[start:end].replace("test", "other")
        twice = ir.Module.parse(text[:end] + other + other.replace("max", "min") + text[end:])
        ledger = Ledger()
        ensure_target(twice)
        LowerKernels().run(twice.body.operations[0], ledger)
        twice.operation.verify()
        names = [op.attributes["sym_name"].value for op in twice.body.operations if op.operation.name == "func.func"]
    assert names == ["graph", "kernel_0", "kernel_1"]
    assert [e.rule for e in ledger.entries] == ["SAME STRUCTURE"]


@pytest.mark.parametrize("width", ["32", "16"])
@pytest.mark.parametrize("dtype", [f16, bf16, bool_])
def test_processors_without_avx512(width, dtype, monkeypatch):
    monkeypatch.setenv("MLIRC_VECTOR_BYTES", width)
    x = (torch.randn(19, 70) * 3).to(dtype)

    def build(k, x):
        value = k.cast(k.read(x, k.dims), f32)
        return [(k.cast(k.reduce("max", value), opmath(dtype)), k.parallel_dims, info(dtype, "19"))]

    NativeKernel([like(x)], "19", "70", build).check(x)
