"""An optimizer's step on tensors that are traced: as Dynamo traces it, without numbers that Python would have to read."""

import inspect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mlirc.codegen.abi.reach import Missing, reach

State = Mapping[str, torch.Tensor]


@reach("optimizer-steps", instead="mlirc.compile takes no optimizer")
def optimizer_steps() -> "OptimizerSteps":
    """What takes a step."""
    if not isinstance(getattr(torch.compiler, "_is_compiling_flag", None), bool):
        raise Missing("nothing says that an optimizer is traced")
    return OptimizerSteps()


class OptimizerSteps:
    def take(
        self,
        optimizer: torch.optim.Optimizer,
        groups: Sequence[Sequence[torch.Tensor]],
        gradients: Mapping[torch.Tensor, torch.Tensor | None],
        states: Mapping[torch.Tensor, State],
    ) -> dict[torch.Tensor, dict[str, Any]]:
        """Changes the parameters of each group, and their states, in place. Gives the states, with what the step has added."""
        other: Any = object.__new__(type(optimizer))
        other.__dict__.update(optimizer.__dict__)
        how = {"foreach": False, "fused": False, "capturable": True}
        other.param_groups = [
            {**group, **{name: value for name, value in how.items() if name in group}, "params": list(params)}
            for group, params in zip(optimizer.param_groups, groups, strict=True)
        ]
        other.state = defaultdict(dict, {p: dict(state) for p, state in states.items()})
        before = torch.compiler._is_compiling_flag
        for p, gradient in gradients.items():
            p.grad = gradient
        try:
            torch.compiler._is_compiling_flag = True
            with torch.no_grad():
                inspect.unwrap(type(optimizer).step)(other)
        finally:
            torch.compiler._is_compiling_flag = before
            for p in gradients:
                p.grad = None
        return dict(other.state)
