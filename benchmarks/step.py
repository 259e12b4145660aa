"""One call of a model: compiled, and in float64 as the reference."""

import copy
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.models import Model
from mlirc.measurement.error import CallResults, EverythingInFloat64


def take_step(model: Model, module: nn.Module, call: Callable, inputs: dict, training: bool) -> CallResults:
    """Runs `call`, which is `module` or a compiled form of it, once; in training with the backward pass."""
    if not training:
        with torch.no_grad():
            return CallResults([call(**inputs).logits], [])
    module.zero_grad()
    output = call(**inputs)
    model.loss(output).backward()
    gradients = [p.grad.detach().clone() for p in module.parameters() if p.grad is not None]
    return CallResults([output.logits.detach(), output.loss.detach()], gradients)


def reference_step(model: Model, module: nn.Module, inputs: dict, training: bool) -> CallResults:
    """The same call in float64, from the same weights and inputs."""
    exact = copy.deepcopy(module).double()
    doubled = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    with EverythingInFloat64():
        return take_step(model, exact, exact, doubled, training)
