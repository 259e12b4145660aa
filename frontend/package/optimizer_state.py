"""The state of an optimizer as tensors with names, and its step on tensors that stand for them."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import GuardOnDataDependentSymNode
from mlirc.frontend.torch_compat.optimizer_steps import optimizer_steps

BEGIN_WITH_ZEROS = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.RMSprop,
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.RAdam,
)
"""Optimizers whose state is zeros before the first step."""


@dataclass(frozen=True)
class OptimizerState:
    """An optimizer's groups of parameters and its state, under names that a package has.

    groups   of each parameter group, the parameters, by their placeholders
    keys     of each parameter, the names of its state
    tensors  by name: "optimizer.exp_avg.0.weight"
    """

    optimizer: torch.optim.Optimizer
    groups: list[list[int]]
    keys: dict[int, list[str]]
    tensors: dict[str, torch.Tensor]

    def step(self, given: Mapping[int, torch.Tensor], gradients: Mapping[int, Any], tensors: Sequence[Any]) -> None:
        """Changes parameters and state in place. `given` and `gradients` are by placeholder; `tensors` are in the order of `tensors`.

        How many steps there were is counted in float32, and computed with in float64, as Python does. Raises UnsupportedGraph.
        """
        taker, left = optimizer_steps(), iter(tensors)
        assert taker is not None
        kept = {k: {key: next(left) for key in keys} for k, keys in self.keys.items()}
        states = {k: {key: wide(key, x) for key, x in state.items()} for k, state in kept.items()}
        groups = [[given[k] for k in group] for group in self.groups]
        grads = {given[k]: gradients[k] for group in self.groups for k in group}
        try:
            after = taker.take(self.optimizer, groups, grads, {given[k]: state for k, state in states.items()})
        except GuardOnDataDependentSymNode as error:
            name = type(self.optimizer).__name__
            raise UnsupportedGraph(
                f"the step of {name} decides by numbers of its tensors, which only a call has"
            ) from error
        for k, state in kept.items():
            for key, x in state.items():
                if (new := after[given[k]][key]) is not x:
                    x.copy_(new)


def numbers(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """What is part of the code of a step."""
    return [{name: x for name, x in group.items() if name != "params"} for group in optimizer.param_groups]


def wide(key: str, x: torch.Tensor) -> torch.Tensor:
    return x.double() if key == "step" and x.dtype == torch.float32 else x


def optimizer_state(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[int, torch.Tensor],
    names: Mapping[int, str],
    all_parameters: Iterable[torch.Tensor],
) -> OptimizerState:
    """The state, which is made where the optimizer has none yet. Raises UnsupportedGraph.

    parameters      those that have gradients, by placeholder, and their names
    all_parameters  of the model: an optimizer may have some without gradients, which it leaves as they are
    """
    if optimizer_steps() is None:
        raise UnsupportedGraph("this PyTorch has no optimizers that can be compiled ahead of time")
    if inspect.signature(type(optimizer).step).parameters["closure"].default is inspect.Parameter.empty:
        raise UnsupportedGraph(f"the step of {type(optimizer).__name__} calls the model itself")
    place = {id(p): k for k, p in parameters.items()}
    known = {id(p) for p in all_parameters}
    if any(id(p) not in known for group in optimizer.param_groups for p in group["params"]):
        raise UnsupportedGraph("the optimizer has parameters that the model has not")
    groups = [[place[id(p)] for p in group["params"] if id(p) in place] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        if odd := [name for name, value in group.items() if isinstance(value, torch.Tensor)]:
            raise UnsupportedGraph(f"the optimizer's {odd[0]} is a tensor; mlirc.compile takes numbers")
        if group.get("differentiable"):
            raise UnsupportedGraph(
                f"{type(optimizer).__name__} is differentiable, and eager refuses its step on parameters"
            )
    keys: dict[int, list[str]] = {}
    tensors: dict[str, torch.Tensor] = {}
    for p, state in begun(optimizer).items():
        if (k := place.get(id(p))) is None:
            continue
        found = {key: x for key, x in state.items() if x is not None}
        if odd := [key for key, x in found.items() if not isinstance(x, torch.Tensor)]:
            raise UnsupportedGraph(f"the optimizer's state '{odd[0]}' is no tensor")
        keys[k] = list(found)
        tensors |= {f"optimizer.{key}.{names[k]}": x for key, x in found.items()}
    return OptimizerState(optimizer, groups, keys, tensors)


def begun(optimizer: torch.optim.Optimizer) -> dict[torch.Tensor, dict[str, Any]]:
    """The optimizer's state of each parameter; what a step on copies leaves, set to zero, where it has none yet."""
    taker = optimizer_steps()
    assert taker is not None
    params = [p for group in optimizer.param_groups for p in group["params"]]
    known = {p: optimizer.state[p] for p in params if optimizer.state.get(p)}
    if missing := [p for p in params if p not in known]:
        copies = {p: p.detach().clone() for p in params}
        groups = [[copies[p] for p in group["params"]] for group in optimizer.param_groups]
        zeros = {copy: torch.zeros_like(copy) for copy in copies.values()}
        states = taker.take(optimizer, groups, zeros, {})
        made = {p: states.get(copies[p], {}) for p in missing}
        damped = any(group.get("momentum") and group.get("dampening") for group in optimizer.param_groups)
        if any(made.values()) and (type(optimizer) not in BEGIN_WITH_ZEROS or damped):
            raise UnsupportedGraph(f"the state of {type(optimizer).__name__} begins with a step: take one before")
        for p, state in made.items():
            optimizer.state[p] = {
                key: torch.zeros_like(x) if isinstance(x, torch.Tensor) else x for key, x in state.items()
            }
            known[p] = optimizer.state[p]
    return {p: known[p] for p in params}
