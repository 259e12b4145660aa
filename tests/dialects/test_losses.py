"""Losses and their gradients, at every level of the dialect, against eager."""

import pytest
import torch

from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.interpreter import run
from tests.compare_stages import check, prepare

pytestmark = pytest.mark.thinned

aten = torch.ops.aten
DYNAMIC = pytest.mark.parametrize("dynamic", [False, True])
REDUCTION = pytest.mark.parametrize("reduction", [0, 1, 2])
DTYPE = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


def tolerance(dtype):
    return {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}


@DYNAMIC
@REDUCTION
@DTYPE
def test_regression(dtype, reduction, dynamic):
    x, y = torch.randn(4, 5, dtype=dtype), torch.randn(4, 5, dtype=dtype)
    grad = torch.randn((4, 5) if reduction == 0 else (), dtype=dtype)
    options = {"dynamic": dynamic, **tolerance(dtype)}
    check(lambda x, y: aten.mse_loss.default(x, y, reduction), x, y, **options)
    check(lambda grad, x, y: aten.mse_loss_backward.default(grad, x, y, reduction), grad, x, y, **options)
    for limit in (1.0, 0.3):
        check(lambda x, y: aten.smooth_l1_loss.default(x, y, reduction, limit), x, y, **options)  # noqa: B023
        check(lambda x, y: aten.huber_loss.default(x, y, reduction, limit), x, y, **options)  # noqa: B023
        for op in (aten.smooth_l1_loss_backward.default, aten.huber_loss_backward.default):
            check(lambda grad, x, y: op(grad, x, y, reduction, limit), grad, x, y, **options)  # noqa: B023
    check(lambda x, y: aten.smooth_l1_loss.default(x, y, reduction, 0.0), x, y, **options)


@DYNAMIC
@REDUCTION
def test_binary_cross_entropy(reduction, dynamic):
    x, y, weight, positive = torch.randn(4, 5) * 50, torch.rand(4, 5), torch.rand(4, 5), torch.rand(5)
    op = aten.binary_cross_entropy_with_logits.default
    check(lambda x, y: op(x, y, None, None, reduction), x, y, dynamic=dynamic)
    check(lambda x, y, w, p: op(x, y, w, p, reduction), x, y, weight, positive, dynamic=dynamic)


@DYNAMIC
@REDUCTION
@DTYPE
def test_soft_margin(dtype, reduction, dynamic):
    """The last element's exp is infinite."""
    x, y = torch.randn(4, 5, dtype=dtype), torch.randn(5, dtype=dtype).sign()
    x[-1, -1] = -200 * y[-1]
    grad = torch.randn((4, 5) if reduction == 0 else (), dtype=dtype)
    options = {"dynamic": dynamic, **tolerance(dtype)}
    check(lambda x, y: aten.soft_margin_loss.default(x, y, reduction), x, y, **options)
    check(lambda grad, x, y: aten.soft_margin_loss_backward.default(grad, x, y, reduction), grad, x, y, **options)


@DYNAMIC
@REDUCTION
@DTYPE
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(6, 4), (2, 4, 3, 5)])
def test_classes(shape, weighted, dtype, reduction, dynamic):
    """The class -100 is ignored."""
    x = torch.log_softmax(torch.randn(shape, dtype=dtype), 1)
    target = torch.randint(0, 4, (shape[0], *shape[2:]))
    target.view(-1)[1] = -100
    weight = (torch.rand(4, dtype=dtype),) if weighted else ()
    if len(shape) == 2:
        forward, backward = aten.nll_loss_forward.default, aten.nll_loss_backward.default
    else:
        forward, backward = aten.nll_loss2d_forward.default, aten.nll_loss2d_backward.default
    grad = torch.randn(target.shape if reduction == 0 else (), dtype=dtype)

    def function(x, target, grad, weight=None):
        loss, total = forward(x, target, weight, reduction, -100)
        return loss, total, backward(grad, x, target, weight, reduction, -100, total)

    check(function, x, target, grad, *weight, dynamic=dynamic, **tolerance(dtype))


def test_every_class_ignored_is_nan_and_a_wrong_one_raises():
    function = lambda x, target: aten.nll_loss_forward.default(x, target, None, 1, -100)
    x = torch.randn(3, 4)
    check(function, x, torch.full((3,), -100))
    wrong = torch.tensor([0, 4, 1])
    with pytest.raises(IndexError, match="Target 4 is out of bounds"):
        function(x, wrong)
    with context():
        top, _ = prepare(function, x, wrong)
        with pytest.raises(IndexError, match="Target 4 is out of bounds"):
            run(top, [x, wrong])


@pytest.mark.parametrize(
    "loss", [torch.nn.functional.huber_loss, torch.nn.functional.smooth_l1_loss, torch.nn.functional.mse_loss]
)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.filterwarnings("ignore")
def test_a_loss_of_two_dtypes_has_eagers(loss, reduction):
    """PyTorch promises float64 of huber_loss, whose kernel gives float32 beside a tensor without dimensions."""
    x, y = torch.randn(3), torch.tensor(1.0, dtype=torch.float64)
    f = lambda x, y: loss(x, y, reduction=reduction)
    torch._dynamo.reset()
    found = torch.compile(f, backend="mlirc")(x, y)
    assert found.dtype == f(x, y).dtype
    torch.testing.assert_close(found, f(x, y))


def test_a_gradient_that_eager_refuses_is_eagers():
    """Eager's kernel for the gradient of a loss of images wants it contiguous."""
    x = torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    loss = lambda x, target: torch.nn.functional.nll_loss(x, target)
    target = torch.zeros(2, 3, 3, dtype=torch.int64)
    for function in (loss, torch.compile(loss, backend="mlirc")):
        with pytest.raises(RuntimeError, match="grad_input must be contiguous"):
            function(x, target).backward()
