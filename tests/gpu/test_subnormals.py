"""Functions of subnormal numbers on a GPU, which eager's code keeps and a compiler's library may take for zero."""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

APART = ("jiterator", "_refs", "special.airy", "special.scaled_modified")
UNARY = [op for op in op_db if isinstance(op, UnaryUfuncInfo) and not op.name.startswith(APART)]
BINARY = [op for op in op_db if isinstance(op, BinaryUfuncInfo) and not op.name.startswith(APART)]


def numbers() -> torch.Tensor:
    """Subnormal numbers of float32 and of bfloat16 in it, and their neighbours, of both signs."""
    tiny = torch.finfo(torch.float32).tiny
    sizes = [
        2.0**-149,
        1e-45,
        1e-42,
        5e-40,
        tiny / 2,
        tiny * (1 - 2**-23),
        tiny,
        tiny * 2,
        1e-30,
        1e-3,
        0.5,
        1.0,
        3.0,
        88.0,
    ]
    return torch.tensor(sizes + [-x for x in sizes], dtype=torch.float64).float().cuda()


def compare(function, *given):
    """Holds a result to eager's, and where that is farther from float64's than ours (`special.ndtr`), to nothing more."""
    try:
        expected = function(*given)
    except (RuntimeError, TypeError, NotImplementedError):
        return
    torch._dynamo.reset()
    found = torch.compile(function, backend="mlirc")(*given)
    if isinstance(expected, torch.Tensor) and expected.is_floating_point():
        exact = function(*(x.double() for x in given))
        nearer = (found.double() - exact).abs() < (expected.double() - exact).abs()
        expected = torch.where(nearer, found, expected)
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=3e-45, equal_nan=True)


@pytest.mark.parametrize("op", UNARY, ids=lambda op: f"{op.name}{op.variant_test_name}")
def test_of_one(op):
    if torch.float32 in op.supported_dtypes("cuda"):
        compare(lambda x: op(x), numbers())


@pytest.mark.parametrize("op", BINARY, ids=lambda op: f"{op.name}{op.variant_test_name}")
def test_of_two(op):
    if torch.float32 in op.supported_dtypes("cuda"):
        x = numbers()
        compare(lambda x, y: op(x, y), x[:, None].expand(-1, len(x)).contiguous(), x.expand(len(x), -1).contiguous())


def test_reductions_and_rows():
    x = numbers().expand(4, -1).contiguous()
    for function in (
        lambda x: x.sum(1),
        lambda x: x.abs().log().sum(1),
        lambda x: x.log_softmax(1),
        lambda x: x.norm(dim=1),
    ):
        compare(function, x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_relu_of_a_negative_zero(dtype):
    """0.0 by eager's kernels for a GPU, where those for a CPU give -0.0."""
    x = torch.tensor([-0.0, 0.0, 1.0, -1.0, torch.nan], dtype=dtype, device="cuda")
    found = torch.compile(torch.relu, backend="mlirc")(x)
    assert torch.equal(found.signbit()[:4], x.relu().signbit()[:4]) and found[4].isnan()
