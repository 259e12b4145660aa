"""Calls of ATen that native code makes whatever their signature: eager's results, and none through Python."""

import gc
import itertools
import math
import warnings

import pytest
import torch

import mlirc
from mlirc.codegen.abi.composites import is_composite
from mlirc.codegen.aten import stored_numbers
from mlirc.codegen.aten.scalar_call import overload_of_tensors
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.frontend import statistics

aten = torch.ops.aten
OPTIONS = {"cache": False, "fallback": "error"}


def compare(function, *inputs, dynamic=None):
    """The compiled function gives what eager gives, bit by bit, and no call of it goes through Python."""
    torch.compiler.reset()
    statistics.reset()
    run = torch.compile(function, backend="mlirc", fullgraph=True, options=OPTIONS, dynamic=dynamic)
    with torch.no_grad():
        got, expected = run(*inputs), function(*inputs)
    for x, y in zip(*map(torch.utils._pytree.tree_leaves, (got, expected)), strict=True):
        assert (x.dtype, x.stride(), x.is_conj(), x.is_neg()) == (y.dtype, y.stride(), y.is_conj(), y.is_neg())
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)
    assert statistics.graphs and not [graph.through_python for graph in statistics.graphs if graph.through_python]


Z = torch.randn(4, 6, dtype=torch.complex64)

COMPLEX = {
    "slice_scatter": lambda z: torch.slice_scatter(z, z[:, 1:3], 1, 0, 2),
    "select_scatter": lambda z: torch.select_scatter(z, z[:, 1], 1, 0),
    "diagonal_scatter": lambda z: torch.diagonal_scatter(z, z[:, 0]),
    "slice_backward": lambda z: aten.slice_backward(z, [4, 9], 1, 2, 8, 1),
    "select_backward": lambda z: aten.select_backward(z, [4, 3, 6], 1, 2),
    "roll": lambda z: (torch.roll(z, 1), torch.roll(z, (1, 2), (0, 1))),
    "zeros": lambda z: torch.zeros(3, z.shape[0], dtype=z.dtype),
    "full": lambda z: (torch.full((3, 2), 1 + 2j), torch.full_like(z.t(), 2j), z.new_full((2, 0), 3.5)),
    "complex": lambda z: torch.complex(z.real, z.imag),
    "a number": lambda z: (z * (1 + 2j), 2.5 * z, z - 1j, z == 0.5),
    "masked_fill": lambda z: z.masked_fill(z.real > 0, 2 - 1j),
    "a difference": lambda z: (3j - z, torch.sub(z, z.t().reshape(4, 6), alpha=2), torch.rsub(z, 2 + 1j), z - 2),
    "a conjugate": lambda z: torch.linalg.lu_solve(*torch.linalg.lu_factor(z[:, :4]), z, adjoint=True),
    "index_fill": lambda z: z.index_fill(1, torch.tensor([0, 2]), 1 - 1j),
    "scatter": lambda z: z.scatter(1, torch.tensor([[0, 2]]), 1 - 1j),
}


@pytest.mark.thinned
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_results(name, dtype, dynamic):
    compare(COMPLEX[name], Z.to(dtype), dynamic=dynamic)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_numbers_of_16_bytes_are_aligned(count):
    """ATen reads a complex128 number with an instruction for 16 aligned bytes, each in a place of its own."""
    function = lambda z: (z + 1, z * 2j, (z - 3).sin() * 0.5, torch.where(z.real > 0, z, 1.0), z + (1 + 2j) * z)
    compare(function, torch.randn(count, dtype=torch.complex128))


def test_a_result_that_is_returned_may_be_written():
    torch.compiler.reset()
    made = torch.compile(lambda z: torch.roll(z, 1), backend="mlirc", options=OPTIONS)(Z)
    assert not made._is_view() and made.add_(1).dtype == torch.complex64


POLYNOMIALS = ["chebyshev_polynomial_t", "hermite_polynomial_h", "laguerre_polynomial_l", "legendre_polynomial_p"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("shape", [(), (5,)])
def test_elementwise_operators_of_numbers(dtype, shape):
    x = torch.arange(2, 7).to(dtype)[: max(1, *shape, 0)].reshape(shape) if shape else torch.tensor(3).to(dtype)
    compare(lambda x: (torch.special.zeta(x, 2.5), torch.special.zeta(3, x)), x)
    for name in POLYNOMIALS:
        op = getattr(torch.special, name)
        compare(lambda x, op=op: (op(x, 3), op(0.5, x)), x)


@pytest.mark.parametrize("reduce", ["add", "multiply"])
def test_scatter_of_a_number_with_a_reduction(reduce):
    index = torch.tensor([[0, 1, 1], [2, 2, 2]])
    with warnings.catch_warnings(action="error"):
        for x in (torch.randn(3, 4), torch.arange(12).reshape(3, 4)):
            compare(lambda x: x.scatter(1, index, 3, reduce=reduce), x)


@pytest.mark.parametrize("value", [0, 2.5, -1, float("inf")])
def test_pads_of_symbols(value):
    def function(x, y):
        return torch.nn.functional.pad(x, (y.shape[0] - 3, 3 - y.shape[1]), value=value)

    compare(function, torch.randn(3, 6), torch.randn(2, 5), dynamic=True)
    if value != float("inf"):
        compare(function, torch.arange(9), torch.randn(4, 2), dynamic=True)


def test_an_integer_where_a_routine_takes_a_double():
    lengths = torch.tensor([2, 3])
    compare(lambda x: torch.segment_reduce(x, "sum", lengths=lengths, initial=3), torch.randn(5))


def test_readers_of_storage():
    x = torch.randn(6, 8)
    compare(lambda x: torch.as_strided_scatter(x, torch.zeros(2, 2), (2, 2), (1, 2), 3), x)
    compare(lambda x: torch.as_strided_copy(x, (2, 2), (1, 2), 5), x[1:, 1:])
    compare(lambda x: torch.slice_scatter(x, x[:, 1:3], 1, 0, 2), torch.randn(6, 8, dtype=torch.complex64)[:, 2:].t())


def test_lists_of_results():
    x = torch.randn(5, 6)
    compare(lambda x: aten.split_with_sizes_copy(x * 2, [1, 4]), x)
    compare(lambda x: [y + 1 for y in aten.unbind_copy(x, 1)], x)
    compare(lambda x: aten.split_copy(x, 3), x)


def test_a_list_is_freed():
    """Neither it nor its tensors stay after the program."""
    torch.compiler.reset()
    run = torch.compile(lambda x: aten.unbind_copy(x * 2), backend="mlirc", options=OPTIONS)
    x = torch.randn(4, 500_000)
    run(x)
    gc.collect()
    before = resident()
    for _ in range(20):
        run(x)
    assert resident() < before + 100e6


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("value", [True, 3, 2.5, 1 + 2j])
def test_a_number_beside_a_tensor_promotes_as_in_eager(value, rank, dtype):
    made = stored_numbers.beside(value, [TensorInfo(dtype, (2,) * rank)])
    like = torch.empty((2,) * rank, dtype=dtype)
    assert torch.result_type(like, torch.empty((), dtype=made.dtype)) == torch.result_type(like, value)


def test_explain_tells_none():
    data = mlirc.explain(lambda z: torch.roll(z * (1 + 2j), 1))(Z).data["graphs"][0]
    assert data["aten"] and not data["through_python"]


def test_a_decomposition_in_python_makes_no_operator_composite():
    assert is_composite(aten.reshape.default) and is_composite(aten.upsample_nearest2d.vec)
    assert not is_composite(aten.upsample_nearest2d.default) and not is_composite(aten.native_batch_norm.default)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float64, torch.int64])
def test_index_add(dtype):
    x, source = torch.arange(12).reshape(3, 4).to(dtype), torch.arange(8).reshape(2, 4).to(dtype)
    compare(lambda x, source: x.index_add(0, torch.tensor([2, 2]), source), x, source)


def test_a_conjugate_is_brought_into_memory():
    z = torch.randn(4, 4, dtype=torch.complex64)
    factors = torch.linalg.lu_factor(z)
    function = lambda x, pivots, z: aten.linalg_lu_solve(x, pivots, z, left=False)
    torch.compiler.reset()
    made = torch.compile(function, backend="mlirc", options=OPTIONS)(*factors, z)
    assert torch.equal(made, function(*factors, z)) and not made.is_conj()


# without NaN, of which eager's polynomials give numbers that it has not computed
NUMBERS = (0, 1, -1, 2, -2, 3, 64, -64, 0.0, 0.5, -0.5, 1.5, math.inf, -math.inf, True, False, 1 + 2j)


@pytest.mark.parametrize("shape", [(4,), ()], ids=str)
def test_overloads_of_tensors_take_numbers_as_eager_does(shape):
    """Every elementwise operator that is called with a tensor in place of its number gives the same, bit by bit, or the same error."""
    overloads = [getattr(packet, name) for packet in packets() for name in packet.overloads()]
    pairs = [(f, g) for f in overloads if (g := overload_of_tensors(f)) is not None and not f._schema.is_mutable]
    assert len(pairs) > 30
    wrong = set()
    for (f, g), dtype in itertools.product(
        pairs, (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.complex64)
    ):
        x, info = (
            torch.tensor([3, 1, 0, 2]).to(dtype)[: len(shape) * 4 or 1].view(shape),
            TensorInfo(dtype, shape, (1,) * len(shape)),
        )
        needed = [str(a.real_type) for a in f._schema.arguments if not a.has_default_value()]
        for value in NUMBERS if set(needed) == {"Tensor", "number"} else ():
            try:
                number = torch.full((), value, dtype=stored_numbers.beside(value, [info]).dtype)
            except ValueError:
                continue
            found = [
                outcome(o, [x if kind == "Tensor" else y for kind in needed]) for o, y in ((f, value), (g, number))
            ]
            if found[0] != found[1]:
                wrong.add((str(f), dtype, value))
    assert not wrong, sorted(map(str, wrong))[:8]


def packets():
    names = {
        name.removeprefix("aten::").partition(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
    }
    return [packet for name in sorted(names) if (packet := getattr(torch.ops.aten, name, None)) is not None]


def outcome(function, args):
    """A result as text, or the type of an error."""
    try:
        x = function(*args)
    except Exception as error:
        return type(error)
    return x.dtype, str(x.tolist())
