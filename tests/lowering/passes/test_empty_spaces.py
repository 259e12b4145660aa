"""Kernels without points: sizes of 0 are a factor of any product, so that no dimension is known by its number of points."""

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.thinned

SHAPES = [(0,), (2, 0), (0, 2), (1, 0), (0, 0), (2, 0, 3)]
FOLDS = {
    "all": lambda x: x.sum(),
    "the first": lambda x: x.sum(0),
    "the last": lambda x: x.sum(-1, keepdim=True),
    "a product": lambda x: x.prod(),
    "a running sum": lambda x: x.cumsum(-1),
    "a softmax": lambda x: x.softmax(0),
    "a norm": lambda x: x / x.norm(dim=-1, keepdim=True),
    "any": lambda x: (x > 0).any(-1),
}


def program(fold: str, written: bool, other: tuple[int, ...]):
    """A fold of what is also written or returned, and what reads it in the same space and in another one."""

    def function(a, b):
        rounded = a.round() * 2
        if written:
            a.copy_(rounded)
        folded = FOLDS[fold](rounded)
        beside = b * 2 + folded.sum() if folded.dim() else torch.pow(b, folded)
        return folded, beside, rounded.view(other) + b, (rounded + 1) if not written else beside.exp()

    return function


@pytest.mark.thinned(2)
@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_folds_over_nothing(shape, fold):
    for other, written in zip([(2, 0), (0,)], [len(shape) > 1, len(shape) == 1], strict=True):
        function = program(fold, written, other)
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="mlirc", dynamic=False, options={"fallback": "error"})
        wanted = function(torch.ones(shape), torch.ones(other))
        torch.testing.assert_close(compiled(torch.ones(shape), torch.ones(other)), wanted)


REINDEXED = {
    "reversed": lambda x: x.flip(0, 1, 2)[:, :, 3:].clone(),
    "reflected": lambda x: F.pad(x, (-2, -1, 1, 1), mode="reflect"),
    "strided": lambda x: x.as_strided((0, 3, 2), (1, 0, 2))[:, 1:, 0] * 2,
    "strided the other way": lambda x: x.as_strided((3, 0, 2), (0, 1, 1)).cumsum(0),
    "gathered": lambda x: x[:, :, :0].gather(2, torch.zeros(3, 4, 0, dtype=torch.long)),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("name", REINDEXED)
def test_copies_of_nothing(name, dtype, dynamic):
    torch._dynamo.reset()
    function = REINDEXED[name]
    compiled = torch.compile(function, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    x = torch.ones(3, 4, 3).to(dtype)
    if name == "reflected" and not dtype.is_floating_point:
        x = x.float()
    found, wanted = compiled(x), function(x)
    assert wanted.numel() == 0 and (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
