"""The error measure: relative L2 distance from eager in float64, of the outputs and of all gradients as a vector each.

A compiled model is accurate enough when its error is at most LIMIT times that of eager in the same dtype.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.models import Model

LIMIT = 2.0
# Where eager happens to be exact, no error at all would be allowed: a few roundings of the dtype are.
FLOOR = {torch.float32: 1e-7, torch.bfloat16: 1e-3}
PART = 1 << 26  # elements that are compared at a time: the logits of GPT-2 are 400 million


@dataclass(frozen=True)
class Step:
    """What one call gave: the outputs, and after a training step the gradient of every parameter."""

    outputs: list[torch.Tensor]
    gradients: list[torch.Tensor]


@dataclass(frozen=True)
class Error:
    """Relative L2 errors; `gradients` is 0 in inference."""

    outputs: float
    gradients: float

    def within(self, eager: "Error", dtype: torch.dtype) -> bool:
        floor = FLOOR[dtype]
        outputs = self.outputs <= LIMIT * eager.outputs + floor
        return outputs and self.gradients <= LIMIT * eager.gradients + floor


def take_step(model: Model, module: nn.Module, call: Callable, inputs: dict, training: bool) -> Step:
    """Runs `call`, which is `module` or a compiled form of it, once; in training with the backward pass."""
    if not training:
        with torch.no_grad():
            return Step([call(**inputs).logits], [])
    module.zero_grad()
    output = call(**inputs)
    model.loss(output).backward()
    gradients = [p.grad.detach().clone() for p in module.parameters() if p.grad is not None]
    return Step([output.logits.detach(), output.loss.detach()], gradients)


class EverythingInFloat64(TorchDispatchMode):
    """Turns each request for float32 into one for float64: some models compute a norm or a softmax in float32."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") == torch.float32:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def reference_step(model: Model, module: nn.Module, inputs: dict, training: bool) -> Step:
    """The same call in float64, from the same weights and inputs."""
    exact = copy.deepcopy(module).double()
    doubled = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    with EverythingInFloat64():
        return take_step(model, exact, exact, doubled, training)


def error_of(step: Step, reference: Step) -> Error:
    return Error(
        relative_distance(step.outputs, reference.outputs), relative_distance(step.gradients, reference.gradients)
    )


def relative_distance(actual: Sequence[torch.Tensor], reference: Sequence[torch.Tensor]) -> float:
    """|actual - reference| / |reference| over all elements of all tensors; NaN when an element is."""
    squares = [
        ((x.double() - y).square().sum(), y.double().square().sum())
        for a, r in zip(actual, reference, strict=True)
        for x, y in zip(a.flatten().split(PART), r.flatten().split(PART), strict=True)
    ]
    if not squares:
        return 0.0
    difference, size = (torch.stack(column).sum().sqrt().item() for column in zip(*squares, strict=True))
    return difference / size if size else difference
