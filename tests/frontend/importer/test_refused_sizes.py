"""Sizes, and floats of several dtypes, that eager's kernels refuse and meta functions take: what raises in eager raises compiled."""

import itertools

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.thinned

aten = torch.ops.aten


def outcome(function, *operands):
    try:
        found = function(*operands)
        leaves = [x for x in operands if x.requires_grad]
        if leaves:
            torch.autograd.grad(found.float().sum(), leaves, allow_unused=True)
    except Exception as error:
        error = getattr(error, "inner_exception", None) or error
        return {"TorchRuntimeError": "RuntimeError"}.get(type(error).__name__, type(error).__name__)
    return None


def check(function, *operands) -> bool:
    """Whether eager raises, which the compiled function does too."""
    wanted = outcome(function, *operands)
    torch._dynamo.reset()
    found = outcome(torch.compile(function, backend="mlirc", dynamic=False), *operands)
    if found != wanted:  # what PyTorch itself does otherwise while a graph is captured
        torch._dynamo.reset()
        assert found == outcome(torch.compile(function, backend="aot_eager", dynamic=False), *operands)
    return wanted is not None


def shapes_near(shape):
    """The shape, and others with one size more, one less, one of 1, a dimension more and one less."""
    yield shape
    for d, n in enumerate(shape):
        yield from ((*shape[:d], m, *shape[d + 1 :]) for m in {n - 1, n + 1, 1} - {n})
    yield (1, *shape)
    yield shape[1:]


SIZES = {
    "nll_loss2d": (lambda x, t: aten.nll_loss2d_forward(x, t.long(), None, 1, -100)[0], (2, 3, 4, 5), (2, 4, 5)),
    "nll_loss": (lambda x, t: aten.nll_loss_forward(x, t.long(), None, 1, -100)[0], (4, 3), (4,)),
    "weights": (lambda x, w: F.nll_loss(x, torch.zeros(4).long(), w), (4, 3), (3,)),
    "softmax_backward": (lambda y, grad: aten._softmax_backward_data(grad, y, 0, torch.float32), (3, 4), (3, 4)),
    "log_softmax_backward": (
        lambda y, grad: aten._log_softmax_backward_data(grad, y, 0, torch.float32),
        (3, 4),
        (3, 4),
    ),
    "group_norm": (lambda x, w: aten.native_group_norm(x, w, None, 2, 4, 6, 2, 1e-5)[0], (2, 4, 6), (4,)),
    "batch_norm": (lambda x, m: F.batch_norm(x, m, m.abs() + 1), (2, 4, 6), (4,)),
    "select_scatter": (lambda x, src: torch.select_scatter(x, src, 0, 1), (3, 4), (4,)),
    "slice_scatter": (lambda x, src: torch.slice_scatter(x, src, 0, 1, 3), (4, 3), (2, 3)),
    "slice_scatter by 2": (lambda x, src: torch.slice_scatter(x, src, 0, -4, None, 2), (5, 3), (2, 3)),
    "diagonal_scatter": (lambda x, src: torch.diagonal_scatter(x, src), (3, 4), (3,)),
    "index_put": (lambda x, v: torch.index_put(x, (torch.tensor([0, 1]),), v), (4, 3), (2, 3)),
    "index_add": (lambda x, v: torch.index_add(x, 0, torch.tensor([0, 1]), v), (4, 3), (2, 3)),
    "mv": (torch.mv, (4, 3), (3,)),
    "linear": (lambda x, b: F.linear(x, torch.ones(5, 3), b), (4, 3), (5,)),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    function, first, second = SIZES[name]
    with torch.no_grad():
        assert not check(function, torch.zeros(first), torch.zeros(second))
        for shape in shapes_near(second):
            check(function, torch.zeros(first), torch.zeros(shape))


DTYPES = {
    "huber_loss": F.huber_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    "with logits": F.binary_cross_entropy_with_logits,
    "nll_loss": lambda x, w: F.nll_loss(x, torch.zeros(3).long(), w),
    "heaviside": torch.heaviside,
    "softmax_backward": lambda y, grad: aten._softmax_backward_data(grad, y, 0, y.dtype),
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
    "addcmul": lambda x, y: torch.addcmul(x, y, y),
    "layer_norm": lambda x, w: F.layer_norm(x, (3,), w[0]),
    "linear": F.linear,
    "prelu": lambda x, w: F.prelu(x, w[0, :1]),
    "cat": lambda x, y: torch.cat([x, y]),
    "index_put": lambda x, y: torch.index_put(x, (torch.tensor([0, 1, 2]),), y),
    "hypot": torch.hypot,
    "where": lambda x, y: torch.where(x > 0, x, y),
}


SOME = ("index_put", "addcmul", "layer_norm", "linear", "nll_loss", "prelu", "lerp")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", [x if x in SOME else pytest.param(x, marks=pytest.mark.full) for x in DTYPES])
def test_floats_of_several_dtypes(name):
    for first, second in itertools.permutations((torch.float32, torch.bfloat16, torch.float64), 2):
        for gradients in (False, True):
            if gradients and "backward" in name:
                continue
            x = torch.ones(3, 3, dtype=first).requires_grad_(gradients)
            check(DTYPES[name], x, torch.full((3, 3), 0.5, dtype=second))


def test_classes_of_several_dtypes():
    for dtype in (torch.int32, torch.uint8, torch.int64, torch.int16):
        assert check(F.nll_loss, torch.ones(3, 3), torch.zeros(3, dtype=dtype)) == (dtype in (torch.int32, torch.int16))


@pytest.mark.parametrize("shape", [(4,), (3, 4), (4, 3), (2, 3, 4)])
def test_the_error_of_a_bad_index_to_select(shape):
    for dim in range(len(shape)):
        assert check(lambda x, d=dim: torch.index_select(x, d, torch.tensor([0, 9])), torch.ones(shape))


INDEXED = {
    "index_select": lambda x, i: aten.index_select(x, -1, i) * 2,
    "index_add": lambda x, i: aten.index_add(x, 0, i, x),
    "gather": lambda x, i: aten.gather(x, 0, i),
    "embedding": lambda x, i: aten.embedding(x, i),
    "take": lambda x, i: aten.take(x, i),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", INDEXED)
def test_ranks_of_indices(name):
    """Of which eager takes one, two or all: the others raise its error, and no error of ours."""
    function, x = INDEXED[name], torch.randn(2, 2)
    for rank in range(4):
        index = torch.zeros((2,) * rank, dtype=torch.int64)
        torch._dynamo.reset()
        found = outcome(torch.compile(function, backend="mlirc", options={"fallback": "error"}), x, index)
        torch._dynamo.reset()
        assert found in (outcome(function, x, index), outcome(torch.compile(function, backend="aot_eager"), x, index))
