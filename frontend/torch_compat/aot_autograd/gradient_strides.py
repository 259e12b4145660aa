"""Lets gradients have any strides where these say nothing: of dimensions of size 1, and of what is empty.

AOTAutograd copies a gradient that a backward graph gets into the strides that it expects, where it has others. It expects those of a view of the
result, and views have other strides in dimensions of size 1: a batch of one image would be copied in each step. Under vmap, as in
torch.autograd.grad(is_grads_batched=True), that copy raises: such gradients are laid out by views and a copy that is a new tensor. Where the
metadata are not as expected, AOTAutograd copies as it does under `aot_eager`.

One image that lies channels-last is traced as such: by the strides of the view, (7, 1, 42, 7), operators would take it for a row-major one, and with
symbolic sizes AOTAutograd would ask for that.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch._prims_common import make_channels_last_strides_for, make_contiguous_strides_for

from mlirc.codegen.abi.lazy_tensors import is_batched
from mlirc.codegen.abi.reach import reach
from mlirc.frontend.torch_compat.aot_autograd.replaced_function import replacing
from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import statically_known_true
from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor


def tracing_images() -> AbstractContextManager[None]:
    """Within, gradients that lie channels-last are traced with all strides of such images."""
    around = traced_images()
    return nullcontext() if around is None else around()


@reach("traced-images", instead="the gradient of one channels-last image may be row-major")
def traced_images() -> Callable[[], AbstractContextManager[None]]:
    import torch._dynamo  # noqa: F401  # imports the next one in its order
    from torch._functorch._aot_autograd import collect_metadata_analysis

    return replacing(
        collect_metadata_analysis,
        "coerce_tangent_and_suggest_memory_format",
        lambda plain: lambda x: plain(as_image(x)),
    )


def as_image(x: Any) -> Any:
    """A fake tensor that lies channels-last, and not row-major too, with strides that say so."""
    if not isinstance(x, FakeTensor) or x.layout is not torch.strided or x.dim() not in (4, 5):
        return x
    size: Any = x.shape
    stride: Any = x.stride()
    if not any(type(n) is int and n == 1 for n in size) or same(size, stride, make_contiguous_strides_for(size)):
        return x
    last = make_channels_last_strides_for(size)
    return x.detach().as_strided(size, last, x.storage_offset()) if same(size, stride, last) else x


def laying_out_batches() -> AbstractContextManager[None]:
    """Within, AOTAutograd lays out gradients that stand for several."""
    around = batches_laid_out()
    return nullcontext() if around is None else around()


@reach(
    "batched-tangents",
    instead="batched gradients raise where a backward graph wants other strides and an input is gone",
)
def batches_laid_out() -> Callable[[], AbstractContextManager[None]]:
    import torch._dynamo  # noqa: F401  # imports the next one in its order
    from torch._functorch._aot_autograd import runtime_wrappers

    def other(plain: Callable) -> Callable:
        return lambda x, wanted: in_order_of(x, strides_of(wanted, x.shape)) if is_batched(x) else plain(x, wanted)

    return replacing(runtime_wrappers, "coerce_to_expected_memory_format", other)


def strides_of(wanted: Any, size: Sequence[int]) -> Sequence[int]:
    """The strides that AOTAutograd asks for, of a gradient of these sizes. Under vmap only the row-major format can be asked about."""
    if wanted.stride is not None:
        return wanted.stride
    make: Any = make_contiguous_strides_for
    if wanted.memory_format in (torch.channels_last, torch.channels_last_3d):
        make = make_channels_last_strides_for
    return make(size)


def in_order_of(x: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A gradient that stands for several, with its dimensions in the order of these strides: it may not be written to a tensor that does not."""
    if x.stride() == tuple(strides):
        return x
    slowest_first = sorted(range(x.dim()), key=lambda d: strides[d], reverse=True)
    return x.permute(slowest_first).contiguous().permute([slowest_first.index(d) for d in range(x.dim())])


def ask_for_order_alone() -> None:
    """Changes the metadata of the graph that is being compiled."""
    tracing = TracingContext.try_get()
    for meta in getattr(getattr(tracing, "fw_metadata", None), "subclass_tangent_meta", None) or ():
        known: Any = getattr(meta, "memory_format", None)
        size, stride = getattr(known, "size", None), getattr(known, "stride", None)
        if size is None or stride is None or not all(type(n) is int for n in (*size, *stride)):
            continue
        try:
            if 0 in size or same(size, stride, make_contiguous_strides_for(size)):
                meta.memory_format = replace(known, size=None, stride=None, memory_format=torch.contiguous_format)
            elif len(size) in (4, 5) and same(size, stride, make_channels_last_strides_for(size)):
                # vmap knows no other memory format
                meta.memory_format = replace(known, stride=make_channels_last_strides_for(size))
        except (AttributeError, TypeError):
            return


def same(size: Sequence[Any], stride: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether strides agree in all dimensions of more than one element."""
    return all(
        (type(n) is int and n == 1) or statically_known_true(a == b)
        for n, a, b in zip(size, stride, other, strict=True)
    )
