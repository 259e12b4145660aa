"""Pads whose amounts are symbols: each form is verified, the values are eager's, and a pad that is too large raises as in eager."""

import pytest
import torch
import torch.nn.functional as F


@pytest.mark.thinned(3)
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
@pytest.mark.parametrize("sides", [lambda k: (2, k), lambda k: (k, 1), lambda k: (k, k)], ids=["end", "start", "both"])
def test_amounts(mode, sides):
    def function(x, k):
        return F.pad(x, sides(k), mode=mode)

    x = torch.arange(12.0).view(3, 4)
    run = torch.compile(function, backend="mlirc", options={"fallback": "error"}, dynamic=True)
    for k in (1, 2, 0, -1, 3):
        torch.testing.assert_close(run(x, k), function(x, k))
    if mode == "reflect":
        with pytest.raises(RuntimeError):
            run(x, 4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_more_cut_off_than_there_is(dynamic):
    """Eager raises, also where the other side puts elements back."""
    x = torch.arange(12.0).view(3, 4)
    for sides in ((-5, 1), (1, -5), (-5, 5), (0, 0, 2, -4), (-3, -2)):
        torch._dynamo.reset()
        run = torch.compile(lambda x, sides: F.pad(x, sides), backend="mlirc", dynamic=dynamic)
        if dynamic:
            run(x, [2] * len(sides))
        for raised in (F.pad, run):
            with pytest.raises(RuntimeError):
                raised(x, sides)
