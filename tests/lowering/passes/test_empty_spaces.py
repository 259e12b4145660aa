"""Kernels without points: sizes of 0 are a factor of any product, so that no dimension is known by its number of points."""

import pytest
import torch

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


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_folds_over_nothing(shape, fold):
    for other, written in zip([(2, 0), (0,)], [len(shape) > 1, len(shape) == 1], strict=True):
        function = program(fold, written, other)
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="mlirc", dynamic=False, options={"fallback": "error"})
        wanted = function(torch.ones(shape), torch.ones(other))
        torch.testing.assert_close(compiled(torch.ones(shape), torch.ones(other)), wanted)
