"""An input that is seen through another dtype and written: what it then holds, and results that are views of it, are eager's."""

import itertools

import pytest
import torch
from torch.utils._pytree import tree_leaves

VIEWS = {
    "same": lambda v: v,
    "permuted": lambda v: v.permute(0, 2, 1),
    "part": lambda v: v[1:],
    "seen again": lambda v: v.view(torch.int32),
    "two": lambda v: (v, v.permute(2, 1, 0)),
    "read": lambda v: v.float() + 1,
    "cloned": lambda v: (v.clone(), v),
}
WRITES = {
    "nothing": lambda v: v.mul_(1),  # folds away: what is assigned is a view of the input itself
    "itself": lambda v: v.copy_(v),
    "zero": lambda v: v.zero_(),
    "more": lambda v: v.add_(3),
    "a part": lambda v: v[1].add_(1),
    "flipped": lambda v: v.copy_(v.flip(0)),
}
QUICK = list(itertools.product([torch.uint8], ["nothing", "more"], VIEWS, ["both"]))
ALL = itertools.product(
    [torch.uint8, torch.int32, torch.int64, torch.float32], WRITES, VIEWS, ["before", "after", "both"]
)
CASES = [*QUICK, *(pytest.param(*case, marks=pytest.mark.full) for case in ALL if case not in QUICK)]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("dtype", "write", "view", "when"), CASES)
def test_written_through_another_dtype(dtype, write, view, when):
    def program(x):
        seen = x.view(dtype)
        before = VIEWS[view](seen) if when != "after" else None
        WRITES[write](seen)
        return before, VIEWS[view](x.view(dtype)) if when != "before" else None

    bits = torch.randint(-1000, 1000, (4, 4, 4), dtype=torch.int32).view(torch.float32)
    x, given = bits.clone(), bits.clone()
    expected = tensors(program(x))
    torch._dynamo.reset()
    made = tensors(torch.compile(program, backend="mlirc", options={"fallback": "error"})(given))
    for ours, eager in zip([given, *made], [x, *expected], strict=True):
        assert (ours.shape, ours.stride(), ours.dtype) == (eager.shape, eager.stride(), eager.dtype)
        assert torch.equal(ours.contiguous().view(torch.uint8), eager.contiguous().view(torch.uint8))
    assert shared([given, *made]) == shared([x, *expected])


def tensors(result):
    return [x for x in tree_leaves(result) if x is not None]


def shared(tensors):
    addresses = [x.untyped_storage().data_ptr() for x in tensors]
    return [[a == b for b in addresses] for a in addresses]
