"""OptimizerInfo: `torch.compile(opt.step)` in each configuration, over several steps, and steps of mlirc.compile."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_optimizers import _get_optim_inputs_including_global_cliquey_kwargs, optim_db

import mlirc
from tests.databases.case import DatabaseCase
from tests.fuzz.noise import Noise
from tests.fuzz.observe import Trace

STEPS = 4
WAYS = ("plain", "scheduled", "set", "groups", "loaded", "complex", "sparse", "bfloat16", "float64", "dynamic")


def cases(device: str = "cpu") -> Iterator[DatabaseCase]:
    for info in optim_db:
        if info.step_requires_closure:
            continue
        for k, given in enumerate(configurations(info, device)):
            for way in WAYS:
                if (way == "complex" and not info.supports_complex) or (way == "sparse" and not info.supports_sparse):
                    continue
                options = {"dynamic": True} if way == "dynamic" else {}
                yield DatabaseCase(
                    f"{info.name} {k}, {way}, {given.desc} {given.kwargs}",
                    _steps(info, given.kwargs, way, device),
                    options,
                )


def configurations(info: Any, device: str) -> list[Any]:
    return list(_get_optim_inputs_including_global_cliquey_kwargs(device, torch.float32, info))


def _parameters(info: Any, way: str, device: str) -> list[torch.nn.Parameter]:
    torch.manual_seed(7)
    dtype = getattr(torch, way) if way in ("bfloat16", "float64") else torch.float32
    sizes = ((5, 3), (2, 4)) if info.name == "Muon" or info.only_supports_sparse_grads else ((5, 3), (3,), (), (2, 4))
    made = [torch.randn(size, dtype=dtype) for size in sizes]
    if way == "complex":
        made[1] = torch.randn(made[1].shape, dtype=torch.complex64)
    return [torch.nn.Parameter(x.to(device)) for x in made]


def _steps(info: Any, given: dict, way: str, device: str) -> Callable:
    sparse = way == "sparse" or info.only_supports_sparse_grads

    def drive(compiled, see):
        parameters, kwargs = _parameters(info, way, device), copy.deepcopy(given)
        groups: Any = parameters
        if way == "groups":
            groups = [{"params": parameters[:1]}, {"params": parameters[1:]}]
        optimizer = info.optim_cls(groups, **kwargs)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7) if way == "scheduled" else None
        step = compiled(lambda: optimizer.step())
        for k in range(STEPS):
            torch.manual_seed(11 + k)
            for p in parameters:
                gradient = torch.randn_like(p)
                p.grad = gradient.to_sparse() if sparse and p.dim() else gradient
            if k == 1 and len(parameters) > 2:
                parameters[1].grad = None
            see(step())
            if scheduler:
                scheduler.step()
            if way == "set":
                for group in optimizer.param_groups:
                    rate = group["lr"]
                    group["lr"] = rate.mul_(0.5) if isinstance(rate, torch.Tensor) else 0.05 * (k + 1)
            if way == "loaded" and k == 1:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            see(parameters, [p.grad for p in parameters], [_plain(optimizer.state[p]) for p in parameters])
            see([group["lr"] for group in optimizer.param_groups])

    return drive


def _plain(state: dict) -> dict:
    return {name: x for name, x in state.items() if not isinstance(x, list | dict)}


class Squares(torch.nn.Module):
    """A network with its loss."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 5, bias=False), torch.nn.Linear(5, 3, bias=False)

    def forward(self, x):
        return self.second(self.first(x).tanh()).square().sum()


def losses(info: Any, given: dict, whole: bool, noise: int | None = None) -> Trace:
    """What each step gives, in eager or of mlirc.compile. The optimizer has taken a step before."""
    with contextlib.nullcontext() if noise is None else Noise(noise):
        return _losses(info, given, whole)


def _losses(info: Any, given: dict, whole: bool) -> Trace:
    torch.manual_seed(3)
    model = Squares()
    parameters = list(model.parameters())
    optimizer = info.optim_cls(parameters, **copy.deepcopy(given))
    trace = Trace()
    for p in parameters:
        gradient = torch.randn_like(p)
        p.grad = gradient.to_sparse() if info.only_supports_sparse_grads else gradient
    try:
        if not given.get("differentiable"):
            optimizer.step()
        step = mlirc.compile(model, (torch.ones(6, 4),), optimizer=optimizer) if whole else None
        for _ in range(STEPS):
            x = torch.randn(6, 4)
            if step is None:
                optimizer.zero_grad()
                loss = model(x)
                loss.backward()
                optimizer.step()
            else:
                loss = step(x)
            trace.see(loss.detach())
    except Exception as error:
        trace.error = error
    return trace
