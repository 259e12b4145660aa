"""Every attention call that eager takes is compiled, by a kernel of ours or ATen's: dtypes, masks, heads and sizes combined."""

import itertools

import pytest
import torch

pytestmark = pytest.mark.thinned

sdpa = torch.nn.functional.scaled_dot_product_attention

ROWS, KEYS = 4, 6


def no_mask(like: torch.Tensor, rows: int, keys: int) -> None:
    return None


def lower_right(like: torch.Tensor, rows: int, keys: int) -> torch.Tensor:
    return torch.arange(keys) <= torch.arange(rows)[:, None] + (keys - rows)


def upper_left(like: torch.Tensor, rows: int, keys: int) -> torch.Tensor:
    return torch.arange(keys) <= torch.arange(rows)[:, None]


def everything(like: torch.Tensor, rows: int, keys: int) -> torch.Tensor:
    return torch.arange(keys) >= 0 * torch.arange(rows)[:, None]


def finite(like: torch.Tensor, rows: int, keys: int) -> torch.Tensor:
    return torch.zeros(rows, keys, dtype=like.dtype).masked_fill(
        ~lower_right(like, rows, keys), torch.finfo(like.dtype).min
    )


def of_data(like: torch.Tensor, rows: int, keys: int) -> torch.Tensor:
    return like.detach()[0, 0, :1, :1] < torch.arange(rows * keys).view(rows, keys)


def added(like: torch.Tensor, rows: int, keys: int) -> torch.Tensor:
    return like.detach()[0, 0, :1, :1] + torch.arange(rows * keys, dtype=like.dtype).view(rows, keys)


def added_float(like: torch.Tensor, rows: int, keys: int) -> torch.Tensor:
    """A mask in float32 is taken beside any dtype."""
    return added(like, rows, keys).float()


MASKS = [no_mask, lower_right, upper_left, everything, finite, of_data, added, added_float]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
HEADS = ["plain", "shared", "repeated"]


def program(mask, heads: str):
    def function(q, k, v):
        if heads == "repeated":
            k, v = (x.repeat_interleave(2, 1) for x in (k, v))
        return sdpa(q, k, v, attn_mask=mask(q, q.shape[2], k.shape[2]), enable_gqa=heads == "shared")

    return function


def results(function, operands, dout):
    out = function(*operands)
    return out, *(torch.autograd.grad(out, operands, dout) if out.requires_grad else ())


def check(dtype, mask, heads: str, head: int, value: int, dynamic: bool, training: bool) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    shared = 2 if heads == "plain" else 1
    shapes = [(1, 2, ROWS, head), (1, shared, KEYS, head), (1, shared, KEYS, value)]
    operands = [torch.randn(shape, dtype=dtype, requires_grad=training) for shape in shapes]
    dout = torch.randn(1, 2, ROWS, value, dtype=dtype)
    function = program(mask, heads)
    right = results(function, operands, dout)
    compiled = torch.compile(function, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    have = results(compiled, operands, dout)
    exact = results(function, [x.detach().double().requires_grad_(training) for x in operands], dout.double())
    for x, y, z in zip(have, right, exact, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        limit = 2 * (y.double() - z).abs().max() + 8 * torch.finfo(dtype).eps * z.abs().max()
        assert (x.double() - z).abs().max() <= limit


@pytest.mark.thinned(2)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_of_a_few_elements(dtype, mask):
    for k, heads in enumerate(HEADS):
        check(dtype, mask, heads, 3, 3, dynamic=k == 1, training=k != 1)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("mask", MASKS)
def test_heads_that_no_kernel_is_written_for(mask):
    check(torch.float32, mask, "plain", 320, 320, dynamic=False, training=False)
    check(torch.bfloat16, mask, "repeated", 4, 7, dynamic=False, training=False)


@pytest.mark.full
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_combinations(dtype, mask):
    for heads, sizes, dynamic, training in itertools.product(
        HEADS, [(3, 3), (320, 320), (4, 7)], [False, True], [False, True]
    ):
        check(dtype, mask, heads, *sizes, dynamic=dynamic, training=training)
