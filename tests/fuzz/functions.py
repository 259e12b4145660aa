"""Functions with gradients of their own, and one that is compiled once for all its calls, for the texts of random programs."""

from typing import Any

import torch
from torch.autograd import Function


class Cube(Function):
    """Saves its input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (x,), (gradient,) = ctx.saved_tensors, grad_outputs
        return 3 * gradient * x * x


class Tanh(Function):
    """Saves its result."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (y,), (gradient,) = ctx.saved_tensors, grad_outputs
        return gradient * (1 - y * y)


class Scaled(Function):
    """Has a number beside a tensor, and an attribute in place of a saved tensor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, k: float) -> torch.Tensor:
        ctx.k, ctx.x = k, x
        return x * x * k

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return 2 * grad_outputs[0] * ctx.x * ctx.k, None


class Split(Function):
    """Has two results, one without a gradient, and its context apart."""

    @staticmethod
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.relu(), x > 0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return grad_outputs[0] * ctx.saved_tensors[0]


class Clamped(Function):
    """Passes gradients through a rounding, and clamps them."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return grad_outputs[0].clamp(-0.5, 0.5)


def scaled(x: torch.Tensor, k: Any) -> torch.Tensor:
    made: Any = Scaled.apply(x, k)
    return made


equal: Any = torch.compiler.nested_compile_region(lambda x: x.sin() * x + 1)
