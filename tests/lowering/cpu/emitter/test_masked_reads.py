"""Masked reads of memory that the same kernel writes to are done before it is written.

LLVM 22 moves a masked load to the select that takes it with the same mask, behind stores to that memory.
"""

import pytest
import torch

JOINED = {
    "slice_scatter": lambda a, old, k: torch.slice_scatter(a, old[:, :k], -1, 0, k),
    "rows": lambda a, old, k: torch.slice_scatter(a, old[1:], 0, 1, None),
    "cat": lambda a, old, k: torch.cat([old[:, :k], a[:, k:]], 1),
    "select_scatter": lambda a, old, k: torch.select_scatter(a, old[:, k - 1], -1, k - 1),
    "where": lambda a, old, k: torch.where(torch.arange(a.shape[1]) < k, old, a),
}


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.int8], ids=str)
@pytest.mark.parametrize("name", JOINED)
def test_what_was_there_before_a_write_is_read(name, dtype):
    def program(a):
        old = a.clone()
        if dtype.is_floating_point:
            a.reciprocal_()
        else:
            a.mul_(a)
        return JOINED[name](a, old, a.shape[1] // 2 + 1)

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=False, options={"cache": False, "fallback": "error"})
    for columns in (2, 37):
        given = (torch.arange(3 * columns).reshape(3, columns) % 7 + 1).to(dtype)
        expected, found = given.clone(), given.clone()
        with torch.no_grad():
            assert torch.equal(compiled(found), program(expected))
        assert torch.equal(found, expected)
