"""What operators that have kernels on a GPU alone compute, written for any device and dtype: attention, and cuDNN's norms and convolutions.

The interpreter and the reference in float64 compute on a CPU, whatever device a graph is of. Results that are no numbers, such as the
state of a random generator, are zeros of the size and dtype that PyTorch's meta function says.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


class NotOnACPU(NotImplementedError):
    """A call that no formula here gives what a GPU gives."""


def call(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What the operator returns for tensors on a CPU. Raises NotOnACPU, and what operators raise."""
    called: Any = FORMULAS.get(operator) or operator
    return called(*args, **kwargs)


def never_draws(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call of an operator that may draw random numbers draws none: attention without dropout."""
    names = [argument.name for argument in operator._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    return "attention" in operator.name() and "dropout_p" in names and not given.get("dropout_p")


def promised(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Results of the sizes that PyTorch's meta function says, all zeros; floating-point ones as precise as the first operand."""
    meta = lambda x: x.to("meta") if isinstance(x, Tensor) else x
    made = operator(*map(meta, args), **{k: meta(x) for k, x in kwargs.items()})
    wide = args[0].dtype == torch.float64
    return [
        torch.zeros(x.shape, dtype=torch.float64 if wide and x.is_floating_point() else x.dtype)
        if isinstance(x, Tensor)
        else x
        for x in made
    ]


# ---- attention: queries [.., heads, m, e], keys [.., heads or fewer, n, e], values [.., heads or fewer, n, f]


class AttentionFormula:
    """One attention without dropout, computed in float32 where operands are half types.

    scores = q @ k^T * scale + bias;  weights = exp(scores - log_sum_exp);  out = weights @ v
    `offset`: query i sees keys up to i + offset; None: all.
    """

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, offset: int | None, scale: float | None):
        self.given = (q, k, v, bias)
        wide = torch.promote_types(q.dtype, torch.float32)
        self.q, self.k, self.v = (x.to(wide) for x in (q, k, v))
        self.groups = q.shape[-3] // max(k.shape[-3], 1)
        if self.groups > 1:
            self.k, self.v = (x.repeat_interleave(self.groups, -3) for x in (self.k, self.v))
        self.scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        scores = self.q @ self.k.mT * self.scale
        if bias is not None:
            scores = scores + bias.to(wide)
        if offset is not None:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(offset + 1)
            scores = scores.masked_fill(hidden, -math.inf)
        self.scores = scores

    def forward(self) -> tuple[Tensor, Tensor]:
        """The output, in the queries' dtype, and the logarithm of each row's sum of exponentials [.., heads, m]."""
        total = self.scores.logsumexp(-1)
        weights = (self.scores - torch.where(total.isinf(), 0.0, total)[..., None]).exp()
        return (weights @ self.v).to(self.given[0].dtype), total

    def backward(self, grad: Tensor, out: Tensor, total: Tensor) -> list[Tensor]:
        """The gradients of queries, keys, values and scores."""
        grad, out, total = (x.to(self.q.dtype) for x in (grad, out, total))
        weights = (self.scores - torch.where(total.isinf(), 0.0, total)[..., None]).exp()
        dv = weights.mT @ grad
        ds = weights * (grad @ self.v.mT - (grad * out).sum(-1, keepdim=True))
        dq, dk = ds @ self.k * self.scale, ds.mT @ self.q * self.scale
        q, k, v, _ = self.given
        if self.groups > 1:
            dk, dv = (x.unflatten(-3, (k.shape[-3], self.groups)).sum(-3) for x in (dk, dv))
        return [dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), ds]


def without_dropout(p: float) -> None:
    if p:
        raise NotOnACPU("attention with dropout draws its random numbers on a GPU")


def sized(total: Tensor, promise: Tensor) -> Tensor:
    """Rows' logarithms in a result that is as long as the promise: its last sizes are rounded up, 1 or 0."""
    if promise.numel() == total.numel():
        return total.to(promise.dtype).reshape(promise.shape)
    made = torch.full_like(promise, math.inf)
    kept = min(promise.shape[-1], total.shape[-1])
    made[..., :kept] = total[..., :kept]
    return made


def rows_of(total: Tensor, q: Tensor) -> Tensor:
    """The logarithms of the queries [.., heads, m], from what the forward pass returned."""
    return total[..., : q.shape[-2]] if total.dim() == q.dim() - 1 else total.reshape(q.shape[:-1])


def summed_to(grad: Tensor, like: Tensor) -> Tensor:
    return grad.sum_to_size(like.shape).to(like.dtype)


def forward_of(operator: Any, has_bias: bool) -> Callable[..., Any]:
    """An operator scaled_dot_product_attention is made of: (q, k, v, [bias, with_sum,] dropout, causal, [debug,] scale)."""

    def forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any, scale: float | None = None, **named: Any) -> Any:
        names = [a.name for a in operator._schema.arguments][3:]
        given = dict(zip(names, rest, strict=False)) | named
        without_dropout(given.get("dropout_p", 0.0))
        causal = 0 if given.get("is_causal", False) else None
        out, total = AttentionFormula(q, k, v, given.get("attn_bias") if has_bias else None, causal, scale).forward()
        made = promised(operator, (q, k, v, *rest), named | {"scale": scale})
        return out, sized(total, made[1]), *made[2:]

    return forward


def efficient_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, out: Tensor, total: Tensor,
    seed: Tensor, offset: Tensor, dropout_p: float, wanted: Sequence[bool], is_causal: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    without_dropout(dropout_p)
    found = AttentionFormula(q, k, v, bias, 0 if is_causal else None, scale).backward(grad, out, rows_of(total, q))
    found[3:] = [] if bias is None else [summed_to(found[3], bias)]
    made = [x if want else None for x, want in zip(found, wanted, strict=False)]
    return *made, *[None] * (4 - len(made))


def flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, total: Tensor, cum_q: Any, cum_k: Any, max_q: int, max_k: int,
    dropout_p: float, is_causal: bool, seed: Tensor, offset: Tensor, *, scale: float | None = None,
) -> Any:  # fmt: skip
    without_dropout(dropout_p)
    return tuple(
        AttentionFormula(q, k, v, None, 0 if is_causal else None, scale).backward(grad, out, rows_of(total, q))[:3]
    )


def cudnn_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, total: Tensor, seed: Tensor, offset: Tensor, bias: Tensor | None,
    cum_q: Any, cum_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool, *, scale: float | None = None,
) -> Any:  # fmt: skip
    without_dropout(dropout_p)
    return tuple(
        AttentionFormula(q, k, v, bias, 0 if is_causal else None, scale).backward(grad, out, rows_of(total, q))[:3]
    )


# ---- cuDNN's convolutions and norms


def convolution_relu(x, weight, bias, stride, padding, dilation, groups):
    return aten.convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups).relu()


def convolution_add_relu(x, weight, z, alpha, bias, stride, padding, dilation, groups):
    made = aten.convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups)
    return (made + (1 if alpha is None else alpha) * z).relu()


def batch_norm(x, weight, bias, mean, variance, training, momentum, epsilon):
    """What is kept for the gradient is empty, as PyTorch's kernels on a CPU need nothing of it."""
    made = aten.native_batch_norm(x, weight, bias, mean, variance, training, momentum, epsilon)
    return *made, torch.empty(0, dtype=torch.uint8)


def batch_norm_backward(x, grad, weight, mean, variance, saved_mean, saved_deviation, epsilon, reserve):
    saved = (mean, variance, saved_mean, saved_deviation)
    return aten.native_batch_norm_backward(grad, x, weight, *saved, True, epsilon, [True, True, True])


EFFICIENT = aten._scaled_dot_product_efficient_attention.default
FLASH = aten._scaled_dot_product_flash_attention.default
CUDNN = aten._scaled_dot_product_cudnn_attention.default
FORMULAS: dict[Any, Callable[..., Any]] = {
    EFFICIENT: forward_of(EFFICIENT, True),
    FLASH: forward_of(FLASH, False),
    CUDNN: forward_of(CUDNN, True),
    aten._scaled_dot_product_efficient_attention_backward.default: efficient_backward,
    aten._scaled_dot_product_flash_attention_backward.default: flash_backward,
    aten._scaled_dot_product_cudnn_attention_backward.default: cudnn_backward,
    aten.cudnn_batch_norm.default: batch_norm,
    aten.cudnn_batch_norm_backward.default: batch_norm_backward,
    aten.cudnn_convolution_relu.default: convolution_relu,
    aten.cudnn_convolution_add_relu.default: convolution_add_relu,
}
