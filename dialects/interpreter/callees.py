"""Eager PyTorch implementations of the callees of `mlircx.call`."""

from collections.abc import Callable
from typing import Any

import torch

from mlirc.dialects.core.graph_ops import AddMatmulGelu
from mlirc.dialects.ops.nn.attention import Attention, AttentionBackward
from mlirc.dialects.ops.nn.convolution import (
    Convolution,
    ConvolutionAdd,
    ConvolutionWeightGradient,
    DepthwiseWeightGradient,
    TransposedConvolution,
)


def addmm(bias: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.addmm(bias, x, y) if x.dim() == 2 else torch.baddbmm(bias, x, y)


CALLEES: dict[str, Callable[..., Any]] = {  # name -> what it gives for tensors, the call's attributes as keywords
    "matmul": torch.matmul,
    "addmm": addmm,
    "addmm_gelu": AddMatmulGelu.reference,
    "copy": torch.clone,
    "attention": Attention.reference,
    "attention_backward": AttentionBackward.reference,
    "convolution": Convolution.reference,
    "convolution_add": ConvolutionAdd.reference,
    "convolution_weight_gradient": ConvolutionWeightGradient.reference,
    "depthwise_weight_gradient": DepthwiseWeightGradient.reference,
    "transposed_convolution": TransposedConvolution.reference,
}
