"""The dtypes of eager's results, where PyTorch's fake tensors have others: what flex_attention sums up in float64, the statistics of a norm
of half numbers with float32 parameters, as autocast makes them, and running statistics of half numbers. And the sizes of one
operator's empty results.
"""

from typing import Any

import torch

from mlirc.frontend.torch_compat.fake_tensors import FakeTensor

aten = torch.ops.aten

FLEX_ATTENTION = "flex_attention"
NORMS = (
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
    aten._batch_norm_with_update.default,
    aten._batch_norm_with_update_functional.default,
    aten._batch_norm_no_update.default,
    aten._native_batch_norm_legit_no_training.default,
    aten.native_group_norm.default,
    aten.native_layer_norm.default,
)
HALF = (torch.float16, torch.bfloat16)
RUNNING = {aten._native_batch_norm_legit_functional.default: 3, aten._batch_norm_with_update_functional.default: 4}
"""What returns new running statistics, of the third and fourth argument: the first of the two results."""


def with_eager_dtypes(operator: torch._ops.HigherOrderOperator, args: tuple, results: Any) -> Any:
    """The results of an operator that takes functions: its logarithms of sums and largest scores are promised in float32."""
    if operator.name() != FLEX_ATTENTION or not isinstance(results, tuple) or args[0].dtype != torch.float64:
        return results
    out, *others = results
    return out, *(x.to(torch.float64) if isinstance(x, FakeTensor) else x for x in others)


def with_eager_sizes(operator: Any, args: tuple, result: torch.Tensor) -> torch.Tensor:
    """The result of `pixel_unshuffle` of no elements, which has the operand's sizes in eager."""
    x = args[0] if operator is aten.pixel_unshuffle.default else None
    if x is None or x.device.type != "cpu" or not any(type(n) is int and n == 0 for n in x.shape):
        return result
    return torch.empty_like(x)


def with_eager_statistics(operator: Any, args: tuple, results: tuple | list) -> tuple | list:
    """A norm's results: the second and third, a mean and a reciprocal deviation, are promised in the dtype of the operand on a CPU; new
    running statistics, which have the old ones' dtype, in that of the computation. The mask of dropout of no elements, which is promised in bool."""
    if operator is aten.native_dropout.default and any(type(n) is int and n == 0 for n in args[0].shape):
        return results[0], torch.empty_like(args[0])
    if operator in RUNNING:
        first = RUNNING[operator]
        given = (x if isinstance(x, torch.Tensor) else None for x in args[3:5])
        moved = (y if x is None else y.to(x.dtype) for x, y in zip(given, results[first : first + 2], strict=True))
        named: Any = getattr(type(results), "_make", type(results))
        results = named((*results[:first], *moved, *results[first + 2 :]))
    if operator not in NORMS or args[0].dtype not in HALF or args[0].device.type != "cpu":
        return results
    if not any(isinstance(x, torch.Tensor) and x.dtype == torch.float32 for x in args[1:]):
        return results
    out, mean, deviation, *others = results
    named: Any = getattr(type(results), "_make", type(results))
    return named((out, mean.to(torch.float32), deviation.to(torch.float32), *others))
