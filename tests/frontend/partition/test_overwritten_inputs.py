"""What a backward graph needs of an input that the forward graph overwrites is what the forward graph read."""

import pytest
import torch

WRITES = {
    "added to": lambda state: state.add_(1),
    "moved": lambda state: state.lerp_(torch.full_like(state, 3.0), 0.25),
    "decayed": lambda state: state.mul_(0.5),
    "a part": lambda state: state[1:].sub_(2),
    "transposed": lambda state: state.t().mul_(torch.arange(1.0, 4.0)),
    "replaced": lambda state: state.copy_(state.sin() * 2),
}


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_read_what_the_forward_pass_read(dynamic):
    def program(x, states):
        """Of each state: before the write by way of a new value, and after it."""
        results = []
        for write, state in zip(WRITES.values(), states, strict=True):
            before = state.exp() * x
            write(state)
            results += [before * x, x * state, (x + state.t()[:3].mT.cos()).sin()]
        return results

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    seen = []
    for function in (program, compiled):
        states = [torch.linspace(-1, 1, 9).view(3, 3) for _ in WRITES]
        gradients = []
        for _ in range(2):
            x = torch.linspace(0.5, 2, 9).view(3, 3).requires_grad_()
            results = function(x, states)
            gradients += torch.autograd.grad([r.sum() for r in results[2::3] + results[:1]], x, retain_graph=True)
            gradients += torch.autograd.grad([(r * r).sum() for r in results], x)
        seen.append((gradients, states))
    torch.testing.assert_close(seen[1], seen[0])
