"""The dtypes of eager's results, where PyTorch's fake tensors have others: what flex_attention sums up in float64."""

from typing import Any

import torch

from mlirc.frontend.torch_compat.fake_tensors import FakeTensor

FLEX_ATTENTION = "flex_attention"


def with_eager_dtypes(operator: torch._ops.HigherOrderOperator, args: tuple, results: Any) -> Any:
    """The results of an operator that takes functions: its logarithms of sums and largest scores are promised in float32."""
    if operator.name() != FLEX_ATTENTION or not isinstance(results, tuple) or args[0].dtype != torch.float64:
        return results
    out, *others = results
    return out, *(x.to(torch.float64) if isinstance(x, FakeTensor) else x for x in others)
