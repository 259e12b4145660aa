"""Traces of graphs whose factorizations are checked: kept, though AOTAutograd orders the checks by tokens; those with other effects are not."""

import pytest
import torch

from tests.frontend.cache.test_trace_cache import captures, compiled, pytestmark, tracing  # noqa: F401


def inverse(x):
    return torch.linalg.inv(torch.linalg.cholesky(x)) + x, x.sum()


def solved_after_a_write(x):
    x.mul_(2)
    return torch.linalg.solve(x, x @ x), x + 1


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("fn", [inverse, solved_after_a_write])
def test_a_hit_gives_the_same_and_raises_the_same(folder, captures, fn, grad):  # noqa: F811
    x = torch.eye(3, dtype=torch.float64) + torch.ones(3, 3, dtype=torch.float64).tril()
    x = x @ x.T
    made = []
    for _ in range(2):
        run = compiled(fn)
        for f in (fn, run):
            leaf = x.clone().requires_grad_(grad)
            given = leaf * 1
            results = f(given)
            if grad:
                sum(y.sum() for y in results).backward()
            made.append([*results, given, leaf.grad if grad else given])
        for _ in range(2):
            with pytest.raises(torch.linalg.LinAlgError):
                run(torch.zeros(3, 3, dtype=torch.float64, requires_grad=grad) * 1)
    for other in made[1:]:
        torch.testing.assert_close(other, made[0])
    assert tracing() == ["miss", "hit"] and len(captures) == 1


def test_other_effects_are_traced_each_time(folder, captures):  # noqa: F811
    def f(x):
        torch.ops.aten._print("shown")
        return torch.linalg.inv(x)

    for _ in range(2):
        torch.testing.assert_close(compiled(f)(torch.eye(3)), torch.eye(3))
    assert tracing() == ["off: the graph has effects"] * 2 and len(captures) == 2
