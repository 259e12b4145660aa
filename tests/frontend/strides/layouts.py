"""Layouts of tensors that an operator's result may follow, and the fake tensors that graphs are traced with, mended or not."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves, tree_map

from mlirc.frontend.strides.traced import with_eager_strides


def permuted(x: torch.Tensor, *dims: int) -> torch.Tensor:
    """The same values with dimensions in memory in that order, the slowest first."""
    back = sorted(range(x.dim()), key=lambda d: dims[d])
    return x.permute(dims).contiguous().permute(back)


def sliced(x: torch.Tensor) -> torch.Tensor:
    wide = x.new_empty(*x.shape[:-1], 2 * x.shape[-1])[..., ::2] if x.dim() else x
    return wide.copy_(x)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "row-major": lambda x: x.contiguous(),
    "transposed": lambda x: x.mT.contiguous().mT if x.dim() > 1 else x,
    "reversed": lambda x: permuted(x, *reversed(range(x.dim()))),
    "first innermost": lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0) if x.dim() else x,
    "channels-last": lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1) if x.dim() > 1 else x,
    "sliced": sliced,
    "sliced, transposed": lambda x: sliced(x.mT).mT if x.dim() > 1 else x,
    "expanded first": lambda x: x[:1].expand(x.shape) if x.dim() > 1 else x,
    "expanded last": lambda x: x[..., :1].expand(x.shape) if x.dim() > 1 else x,
}


def every(x: Any) -> tuple:
    """All of a tensor's strides, as numbers."""
    return tuple(n if isinstance(n, int) else n.node.hint for n in x.stride())


def walked(x: Any) -> tuple | None:
    """A tensor's strides that somebody walks along, as numbers."""
    sizes, strides = [n if isinstance(n, int) else n.node.hint for n in x.shape], every(x)
    return None if 0 in sizes else tuple(s if n > 1 else None for n, s in zip(sizes, strides, strict=True))


def fakes(op: Any, args: tuple, kwargs: dict, dynamic: bool, mended: bool = True) -> list:
    """What tracing makes of a call: under Python's dispatcher, as AOTAutograd has it, and without a memory of others' calls."""
    with torch._dynamo.config.patch(fake_tensor_cache_enabled=False):
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv() if dynamic else None)
    count = iter(range(100))

    def fake(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return mode.from_tensor(x.detach(), source=ConstantSource(f"x{next(count)}") if dynamic else None)

    fake_args, fake_kwargs = tree_map(fake, (args, kwargs))
    if not mended:
        with enable_python_dispatcher(), mode:
            return tree_leaves(op(*fake_args, **fake_kwargs))
    tensors = [x for x in tree_leaves((fake_args, fake_kwargs)) if isinstance(x, torch.Tensor)]
    with with_eager_strides(tensors), enable_python_dispatcher(), mode:
        return tree_leaves(op(*fake_args, **fake_kwargs))


def wrong(op: Any, args: tuple, kwargs: dict, dynamic: bool, compared: Any = None) -> list[str] | None:
    """Results whose strides (`compared` of a tensor: those that are `walked` along, or `every`) are not eager's. None where eager, or
    the fake tensors, refuse the call."""
    seen = compared or walked
    logging.disable(logging.CRITICAL)
    try:
        expected = tree_leaves(op(*args, **kwargs))
        found = fakes(op, args, kwargs, dynamic)
    except Exception:
        return None
    finally:
        logging.disable(logging.NOTSET)
    return [
        f"{op}{_shown(args)}: result {k} has strides {seen(y)}, eager {seen(x)}"
        for k, (x, y) in enumerate(zip(expected, found, strict=True))
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and seen(x) != seen(y)
    ]


def _shown(args: Any) -> str:
    return str(tree_map(lambda x: f"{tuple(x.shape)}:{x.stride()}" if isinstance(x, torch.Tensor) else x, args))
