"""One case of PyTorch's databases: a program that shows what it computes, in eager and compiled, and the verdict."""

import gc
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.testing._internal.common_utils import noncontiguous_like

from tests.fuzz.calls import not_compiled
from tests.fuzz.compare import Difference, describe, differences
from tests.fuzz.judge import another_attention
from tests.fuzz.kinds.control_flow import in_python
from tests.fuzz.noise import Noise
from tests.fuzz.observe import Trace

NOISY_RUNS = (12, 40)  # where the first do not explain a difference, so many
SEED = 1
GOOD = ("right", "raises", "unsupported", "limit")


@dataclass(frozen=True)
class DatabaseCase:
    """`drive(compiled, see)` makes its inputs, calls `compiled(f)` of what is tried, and shows results, inputs and gradients."""

    name: str
    drive: Callable[[Callable, Callable], None]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """kind: right, raises (as eager does), unsupported (right, but a graph ran in eager), limit (PyTorch's own), wrong."""

    kind: str
    texts: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return self.kind in GOOD


def run(case: DatabaseCase, backend: Any, options: dict | None = None, noise: int | None = None) -> Trace:
    """One run. Without a backend in eager; `noise` changes its last bits."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    trace, grad = Trace(), torch.is_grad_enabled()
    compiled = lambda f: f if backend is None else torch.compile(f, backend=backend, options=options, **case.options)
    try:
        if noise is None:
            with torch._dynamo.config.patch(recompile_limit=64):
                case.drive(compiled, trace.see)
        else:
            with another_attention(noise), in_python(), Noise(noise):
                case.drive(compiled, trace.see)
    except Exception as error:
        trace.error = error
    finally:
        torch.set_grad_enabled(grad)
    return trace


def judge(case: DatabaseCase, backend: Any = "mlirc") -> Finding:
    """Eager is right; where aot_eager differs in the same places, it is PyTorch's own limit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        finding = _judge(case, backend)
    if finding.kind != "right":
        gc.collect()  # what is left of a jvp that PyTorch did not trace spoils the trace in which it is collected, under aot_eager too
    return finding


def _judge(case: DatabaseCase, backend: Any) -> Finding:
    expected = run(case, None)
    found = run(case, backend, {"fallback": "error"} if backend == "mlirc" else None)
    kind = "raises" if expected.error is not None else "right"
    if not (wrong := differences(expected, found)):
        return Finding(kind)
    if not_compiled(found.error):
        why = (describe(found.error),)
        found = run(case, backend)
        if not (wrong := differences(expected, found)):
            return Finding("unsupported", why)
    plain = run(case, "aot_eager")
    same_error = plain.error is not None and describe(plain.error) == describe(found.error)
    if same_error or not differences(plain, found):
        return Finding("limit", _texts(wrong))
    noisy: list[Trace] = []
    if {d.kind for d in wrong} <= {"values", "shape"}:
        for count in NOISY_RUNS:
            noisy += [run(case, None, noise=seed) for seed in range(len(noisy), count)]
            if not (wrong := differences(expected, found, noisy)):
                return Finding(kind)
    limits = {d.place for d in differences(expected, plain, noisy or None)}
    if {d.place for d in wrong} <= limits or not differences(plain, found, noisy or None):
        return Finding("limit", _texts(wrong))
    texts = _texts([d for d in wrong if d.place not in limits] or wrong)
    if found.error is not None:
        texts += ("".join(traceback.format_exception(found.error))[-2000:],)
    return Finding("wrong", texts)


def _texts(wrong: list[Difference]) -> tuple[str, ...]:
    return tuple(f"observation {d.observation}{d.path}, {d.kind}: {d.text}" for d in wrong[:4])


def spread(every: Iterable[Any], count: int) -> list[tuple[int, Any]]:
    """At most `count` of them with their numbers, over all: the first ones tend to be alike."""
    every = list(every)
    count = min(count, len(every))
    return [(k, every[k]) for k in sorted({i * (len(every) - 1) // max(count - 1, 1) for i in range(count)})]


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def fresh(x: torch.Tensor, layout: str = "plain", grad: bool = True) -> torch.Tensor:
    """A copy in another layout with the same numbers. `expanded` repeats the first index of the first dimension."""
    y = x.detach()
    if x.layout != torch.strided or x.is_nested or x.numel() < 2:
        y = y.clone()
    elif layout == "non-contiguous":
        y = noncontiguous_like(y)
    elif layout == "conjugated" and x.is_complex():
        y = y.conj_physical().conj()
    elif layout == "negated" and (x.is_complex() or x.is_floating_point()):
        y = torch.ops.aten._neg_view(y.neg())
    elif layout == "expanded" and x.dim():
        y = y.narrow(0, 0, 1).clone().expand(x.shape)
    elif layout == "channels last" and x.dim() in (4, 5):
        y = y.clone(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    elif layout == "reversed":
        order = tuple(range(x.dim()))[::-1]
        y = y.permute(order).clone(memory_format=torch.contiguous_format).permute(order)
    else:
        y = y.clone()
    return y.requires_grad_() if grad and x.requires_grad else y


def fresh_tree(tree: Any, layout: str = "plain", grad: bool = True) -> Any:
    return pytree.tree_map(lambda x: fresh(x, layout, grad) if isinstance(x, torch.Tensor) else x, tree)
