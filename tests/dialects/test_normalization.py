"""Layer, group, batch and RMS norms and their gradients, at every level of the dialect, against eager."""

import pytest
import torch

from tests.compare_stages import check

pytestmark = pytest.mark.thinned

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def tolerance(dtype):
    """Half types: eager rounds in between where we do not."""
    return {"rtol": 2e-2, "atol": 2e-2} if dtype in (torch.bfloat16, torch.float16) else {}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(16,), (5, 16), (2, 5, 16)])
def test_layer_norm(shape, dtype, affine, dynamic):
    x, grad = torch.randn(2, 5, 16, dtype=dtype), torch.randn(2, 5, 16, dtype=dtype)
    parameters = (torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)) if affine else ()

    def function(x, grad, weight=None, bias=None):
        y, mean, rstd = aten.native_layer_norm.default(x, shape, weight, bias, 1e-5)
        mask = [True, affine, affine]
        back = aten.native_layer_norm_backward.default(grad, x, shape, mean, rstd, weight, bias, mask)
        return [y, mean, rstd, *(v for v in back if v is not None)]

    check(function, x, grad, *parameters, dynamic=dynamic, **tolerance(dtype))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [False, (0, 2, 3)])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 8), (3, 8, 5), (3, 8, 4, 5)])
def test_group_norm(shape, dtype, affine, dynamic):
    x, grad = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    parameters = (torch.randn(8, dtype=dtype), torch.randn(8, dtype=dtype)) if affine else ()

    def function(x, grad, weight=None, bias=None):
        sizes = (x.shape[0], x.shape[1], x.numel() // (x.shape[0] * x.shape[1]), 2)
        y, mean, rstd = aten.native_group_norm.default(x, weight, bias, *sizes, 1e-5)
        mask = [True, affine, affine]
        back = aten.native_group_norm_backward.default(grad, x, mean, rstd, weight, *sizes, mask)
        return [y, mean, rstd, *(v for v in back if v is not None)]

    check(function, x, grad, *parameters, dynamic=dynamic, **tolerance(dtype))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5, 2)])
def test_batch_norm(shape, dtype, affine, dynamic):
    x, grad = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    running = torch.randn(3, dtype=dtype), torch.rand(3, dtype=dtype) + 0.1
    parameters = (torch.randn(3, dtype=dtype), torch.randn(3, dtype=dtype)) if affine else ()

    def training(x, grad, mean, var, weight=None, bias=None):
        made = aten._native_batch_norm_legit_functional.default(x, weight, bias, mean, var, True, 0.1, 1e-5)
        mask = [True, affine, affine]
        back = aten.native_batch_norm_backward.default(grad, x, weight, mean, var, *made[1:3], True, 1e-5, mask)
        alone = aten._native_batch_norm_legit.no_stats(x, weight, bias, True, 0.1, 1e-5)
        return [*made, *(v for v in back if v is not None), *alone]

    def inference(x, grad, mean, var, weight=None, bias=None):
        made = aten._native_batch_norm_legit_no_training.default(x, weight, bias, mean, var, 0.1, 1e-5)
        mask = [True, affine, affine]
        back = aten.native_batch_norm_backward.default(grad, x, weight, mean, var, *made[1:3], False, 1e-5, mask)
        return [*made, *(v for v in back if v is not None)]

    check(training, x, grad, *running, *parameters, dynamic=dynamic)
    check(inference, x, grad, *running, *parameters, dynamic=dynamic)


def test_group_norm_of_symbolic_channels_goes_to_aten():
    check(
        lambda x: aten.native_group_norm.default(x, None, None, 3, x.shape[1], 5, 2, 1e-5),
        torch.randn(3, 8, 5),
        dynamic=(1,),
        aten=True,
    )


def test_batch_norm_keeps_channels_last():
    x = torch.randn(2, 8, 4, 5).to(memory_format=torch.channels_last)
    function = lambda x, mean, var: aten._native_batch_norm_legit_no_training.default(
        x, None, None, mean, var, 0.1, 1e-5
    )[0]
    check(function, x, torch.randn(8), torch.rand(8) + 0.1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [0, 2])
def test_weight_norm(dim, dtype, dynamic):
    v = torch.randn(6, 5, 7, dtype=dtype)
    length = torch.randn([n if d == dim else 1 for d, n in enumerate(v.shape)], dtype=dtype)
    v.select(dim, 0).zero_()  # of no length

    def function(v, length):
        return list(aten._weight_norm_interface.default(v, length, dim))

    check(function, v, length, dynamic=dynamic)
    _, norm = aten._weight_norm_interface.default(v, length, dim)

    def gradients(grad, v, length, norm):
        return list(aten._weight_norm_interface_backward.default(grad, v, length, norm, dim))

    check(gradients, torch.randn_like(v), v, length, norm, dynamic=dynamic)


def test_rows_of_one_element_and_of_equal_ones():
    check(lambda x: aten.native_layer_norm.default(x, (1,), None, None, 1e-5), torch.randn(4, 1))
    check(lambda x: aten.native_layer_norm.default(x, (8,), None, None, 1e-5), torch.full((4, 8), 3.0))


@pytest.mark.parametrize("norm", [torch.nn.BatchNorm2d, torch.nn.InstanceNorm2d])
@pytest.mark.parametrize("shape", [(8, 32, 14, 14), (16, 16, 28, 27)])
def test_statistics_are_as_exact_as_eager(shape, norm):
    """Which adds up in double: with a mean of many deviations, what the sums lose is what the results lose."""
    torch.manual_seed(1)
    x, grad, module = torch.randn(shape) + 30, torch.randn(shape), norm(shape[1], affine=True)
    torch.nn.init.normal_(module.weight)

    def results(call, dtype):
        module.to(dtype).zero_grad(set_to_none=True)
        given = x.to(dtype, copy=True).requires_grad_()
        out = call(given)
        out.backward(grad.to(dtype))
        return [out.detach(), given.grad, *(p.grad.clone() for p in module.parameters())]

    wanted, eager = results(module, torch.float64), results(module, torch.float32)
    made = results(torch.compile(module, backend="mlirc", options={"fallback": "error"}), torch.float32)
    for a, b, c in zip(wanted, eager, made, strict=True):
        assert (c - a).norm() <= 1.5 * (b - a).norm()
