"""An op of one's own, with its gradient, inside a compiled model: `python examples/custom_op.py`.

PyTorch is told what the op computes and how it is differentiated; mlirc, what one element of each is. Both then become part of
the kernels around them, where any compiler may call an op that it does not know.
"""

import torch

import mlirc
from mlirc.ops import Binary, Unary


@torch.library.custom_op("examples::softsign", mutates_args=())
def softsign(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x.abs())


@torch.library.custom_op("examples::softsign_backward", mutates_args=())
def softsign_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return gradient / (1 + x.abs()) ** 2


softsign.register_fake(torch.empty_like)
softsign_backward.register_fake(lambda gradient, x: torch.empty_like(x))
softsign.register_autograd(
    lambda context, gradient: softsign_backward(gradient, context.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


class Softsign(Unary, name="example_softsign", aten=(torch.ops.examples.softsign.default,)):
    """x / (1 + |x|)."""

    reference = staticmethod(lambda x: x / (1 + x.abs()))
    scalar = staticmethod(lambda b, x: b.div(x, b.add(b.constant(1.0), b.abs(x))))


class SoftsignBackward(Binary, name="example_softsign_backward", aten=(torch.ops.examples.softsign_backward.default,)):
    """gradient / (1 + |x|)^2."""

    reference = staticmethod(lambda gradient, x: gradient / (1 + x.abs()) ** 2)

    @staticmethod
    def scalar(b, gradient, x):
        below = b.add(b.constant(1.0), b.abs(x))
        return b.div(gradient, b.mul(below, below))


def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (softsign(x * 2) - y).square().sum()


def main() -> dict:
    """The gradients of eager and of the compiled step, and the ATen calls of its graphs."""
    x, y = torch.randn(1000), torch.randn(1000)
    gradients = []
    for function in (step, torch.compile(step, backend="mlirc")):
        leaf = x.clone().requires_grad_()
        function(leaf, y).backward()
        gradients.append(leaf.grad)
    report = mlirc.explain(step)(x.requires_grad_(), y).data
    calls = [call for graph in report["graphs"] for call in graph["aten"]]
    print(f"largest difference {(gradients[0] - gradients[1]).abs().max():.2e}, ATen calls {calls}")
    return {"gradients": gradients, "aten": calls}


if __name__ == "__main__":
    main()
