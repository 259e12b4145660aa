"""Gives fake tensors eager's strides and dtypes while a graph is traced, so that views, guards, gradients and AOTAutograd's wrappers agree with
eager.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.strides import dimension_order as order
from mlirc.frontend.strides.kernel_dtypes import with_dtypes_of_kernel
from mlirc.frontend.strides.promised_dtypes import with_eager_dtypes, with_eager_sizes, with_eager_statistics
from mlirc.frontend.strides.rules import rule_of
from mlirc.frontend.torch_compat.aot_autograd.merged_branches import refuses_branches
from mlirc.frontend.torch_compat.fake_dispatch import fake_dispatch
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor, detect_fake_mode, storage_id

COPIES_ON_CPU = (torch.ops.aten.channel_shuffle.default, torch.ops.aten.native_dropout.default)
"""Their meta functions may give an operand, or a view of one, which their schemas do not."""
T = TypeVar("T")


def traced_as_eager(inputs: Sequence[Any], trace: Callable[[], T]) -> T:
    """What `trace()` gives of a graph with these inputs. Its fake tensors have eager's strides, unless torch.cond refuses its branches for them:
    then they have those that PyTorch gives them."""
    try:
        with with_eager_strides(inputs):
            return trace()
    except (AssertionError, RuntimeError) as error:
        raise_of_handler(error)
        if not refuses_branches(error):
            raise
    return trace()


@contextmanager
def with_eager_strides(inputs: Sequence[Any]) -> Iterator[None]:
    """Around the tracing of a graph with these inputs: its fake tensors get the strides that eager's tensors have."""
    mode, results_through = detect_fake_mode(inputs), fake_dispatch()
    if mode is None or results_through is None:
        yield
        return
    with results_through(mode, _as_eager):
        yield


def _as_eager(func: Any, args: tuple, kwargs: dict, result: Any) -> Any:
    """The result of an operator on fake tensors, with the strides, dtypes and sizes that eager gives."""
    if isinstance(func, torch._ops.HigherOrderOperator):
        return with_eager_dtypes(func, args, result)
    if not isinstance(func, torch._ops.OpOverload):
        return result
    if isinstance(result, FakeTensor):
        result = with_eager_sizes(func, args, with_dtypes_of_kernel(func, args, kwargs, _copied(func, result)))
        rule = rule_of(func, result.device.type)
        return result if rule is None else _restrided(result, rule, _in_order(func, args, kwargs))
    tensors = [x for x in result if isinstance(x, FakeTensor)] if isinstance(result, (tuple, list)) else []
    if tensors:
        result = with_eager_statistics(func, args, result)
        if func in COPIES_ON_CPU:
            result = tuple([_copied(func, x) for x in result])
        rule = rule_of(func, tensors[0].device.type)
        if rule is not None:
            arguments = _in_order(func, args, kwargs)
            made = [_restrided(x, rule, arguments) for x in result]
            named: Any = getattr(type(result), "_make", type(result))
            return named(made)
    return result


def _copied(func: Any, x: Any) -> Any:
    """The result with memory of its own, where eager's kernel copies."""
    if func not in COPIES_ON_CPU or x.device.type != "cpu":
        return x
    with x.fake_mode:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _in_order(func: Any, args: tuple, kwargs: dict) -> tuple:
    """The arguments in the order of the operator's schema, as rules take them."""
    return (*args, *(kwargs.get(a.name) for a in func._schema.arguments[len(args) :])) if kwargs else args


def _restrided(x: Any, rule: Any, args: tuple) -> Any:
    """A fake tensor with the strides that the rule gives; `x` itself where it has them, or has no other.

    Where `x` lies in the memory of an operand, as the results of views and of `_unsafe_view` do, so does the new tensor, from the same offset on.
    """
    if not isinstance(x, FakeTensor) or x.layout is not torch.strided or x.constant is not None:
        return x
    if x.dim() == 0:
        return x
    if x.dim() == 1 and not (type(x.shape[0]) is int and x.shape[0] <= 1) and not order.same(x.stride(0), 0):
        return x
    try:
        strides = rule(x, args)
        if strides is None or order.all_same(x.stride(), strides):
            return x
    except RuntimeError:  # of sizes that only data says, no order is known
        return x
    with x.fake_mode:
        if any(
            isinstance(y, FakeTensor) and y.layout is torch.strided and storage_id(y) == storage_id(x) for y in args
        ):
            return x.as_strided(x.shape, strides, x.storage_offset())
        return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
