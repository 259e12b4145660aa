"""Eager with the last bit of every inexact operation changed at random: how far rounding alone can carry a result.

Beside it what eager leaves open: element by element its own code gives other special values than in vectors (`again`),
sums and products have an order, a half type's number that leaves its range between two operations is one that we keep
(`in_range`, docs/decisions.md), and a NaN has any sign.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fuzz.writer import words

# Operations that round nothing: what they give is one of their operands' numbers, or an integer.
_EXACT = """
clone copy copy_ fill fill_ zero_ zeros zeros_like ones ones_like full full_like empty empty_like empty_strided
new_empty new_zeros new_ones new_full new_empty_strided arange cat stack gather index index_select where neg
neg_ abs relu relu_ flip roll repeat constant_pad_nd masked_fill masked_fill_ index_put index_put_ scatter
scatter_ max min amax amin maximum minimum sort topk cummax cummin clamp clamp_ clamp_min clamp_max fmin fmax
aminmax argmax argmin eq ne lt le gt ge isnan isinf isfinite sign sgn floor ceil trunc round nonzero
masked_select embedding reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d tril triu
max_pool2d_with_indices index_copy index_copy_ index_fill index_fill_ take masked_scatter rot90 set_ resize_
logical_not logical_and logical_or logical_xor nan_to_num slice_scatter select_scatter _unsafe_index
"""
EXACT = frozenset(words(_EXACT))
# Of these a zero may have any sign: sums of products begin as a library likes, and of -0.0 and 0.0 neither is larger; eager's
# gradient of a softmax has one sign along the last dimension and another along others (tests/dialects/test_signs_of_zero.py).
_SIGNLESS = """
mm bmm addmm baddbmm addbmm mv addmv dot vdot convolution convolution_backward _scaled_dot_product_flash_attention_for_cpu
_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_attention_math linear _trilinear _cdist_forward
_softmax_backward_data _log_softmax_backward_data native_group_norm_backward
maximum minimum max min amax amin fmax fmin aminmax clamp clamp_min clamp_max max_pool2d_with_indices
"""
SIGNLESS = frozenset(words(_SIGNLESS))


REPEATED = 2**16  # elements: larger tensors are in vectors but for their last elements
HALVES = (torch.float16, torch.bfloat16)
# Elementwise, though PyTorch does not tag them so.
_POINTWISE = """
elu_backward gelu_backward silu_backward mish_backward logit_backward log_sigmoid_backward softplus_backward
hardswish_backward hardsigmoid_backward leaky_relu_backward threshold_backward hardtanh_backward
"""
POINTWISE = frozenset(words(_POINTWISE))


def _apart(x: Any) -> Any:
    """The tensor with every other element of memory: eager's code for one element at a time goes through it."""
    return torch.stack([x, x], -1)[..., 0] if _is_float(x) else x


def _repeated(x: Any) -> Any:
    """Each element a row of equal ones: eager's code in vectors goes through all, the tensor's last ones too."""
    small = isinstance(x, torch.Tensor) and x.layout == torch.strided and x.numel() <= REPEATED
    return torch.stack([x] * 64, -1) if small and not x._is_zerotensor() else x


def _wide(x: Any) -> Any:
    return x.float() if _is_float(x) and x.dtype in HALVES else x


def _is_float(x: Any) -> bool:
    return (
        isinstance(x, torch.Tensor) and x.is_floating_point() and x.layout == torch.strided and not x._is_zerotensor()
    )


def _reversed(x: torch.Tensor, dims: Any = None) -> torch.Tensor:
    """The summands of a sum in the other order."""
    dims = [dims] if isinstance(dims, int) else dims or range(x.dim())
    return x.flip(list(dims)) if isinstance(x, torch.Tensor) else x


class Noise(TorchDispatchMode):
    """Changes the last bit of inputs and results of every other operation."""

    def __init__(self, seed: int):
        super().__init__()
        self.zero = -0.0 if seed % 2 else 0.0
        self.reversed = seed % 3 == 0  # sums that overflow on the way do so in one order, and not in another
        self.apart = seed % 4 == 1
        self.repeated = seed % 4 == 2
        self.wide = seed % 4 == 3
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name in SIGNLESS:
            return torch.utils._pytree.tree_map(self.signless, self.run(func, name, args, kwargs))
        return self.run(func, name, args, kwargs)

    def run(self, func: Any, name: str, args: tuple, kwargs: dict) -> Any:
        schema = func._schema
        if name in EXACT or any(r.alias_info and not r.alias_info.is_write for r in schema.returns):
            return func(*args, **kwargs)
        written = [arg for k, arg in enumerate(schema.arguments) if arg.alias_info and arg.alias_info.is_write]
        if not written and name not in ("_to_copy",):
            args = torch.utils._pytree.tree_map(self.shake, args)
        if name in ("sum", "mean", "nansum", "prod") and self.reversed:
            args = (_reversed(*args[:2]), *args[1:])
        result = func(*args, **kwargs)
        if not written and (self.apart or self.repeated) and (torch.Tag.pointwise in func.tags or name in POINTWISE):
            how = _apart if self.apart else _repeated
            result = self.again(func, how, args, kwargs, result, lambda given, other: other)
        if not written and self.wide and _is_float(result) and result.dtype in HALVES:
            result = self.again(func, _wide, args, kwargs, result, self.in_range)
        if written:
            self.shake_in_place(args[0] if args else None)
            return result
        return torch.utils._pytree.tree_map(self.shake, result)

    def again(self, func: Any, how: Any, args: tuple, kwargs: dict, result: Any, choose: Any) -> Any:
        """The operation once more on its operands in another form; `result`'s memory is laid out as it is."""
        if not _is_float(result):
            return result
        try:
            other = func(*torch.utils._pytree.tree_map(how, args), **torch.utils._pytree.tree_map(how, kwargs))
        except (RuntimeError, NotImplementedError, TypeError):
            return result
        if _is_float(other) and how is _repeated and other.shape[-1:] == (64,):
            other = other[..., 0]
        if not _is_float(other) or other.shape != result.shape:
            return result
        return result.clone().copy_(choose(result, other))

    def in_range(self, given: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        """The half type's last number where its range alone ended, or its smallest."""
        limits = torch.finfo(given.dtype)
        sign = torch.where(wide < 0, -1.0, 1.0)
        kept = torch.where(given.isinf() & wide.isfinite(), sign * limits.max, given.float())
        return torch.where((given == 0) & (wide != 0), sign * limits.tiny * limits.eps, kept).to(given.dtype)

    def signless(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.layout != torch.strided:
            return x
        return x.clone().copy_(torch.where(x == 0, self.zero, x))

    def shake(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor) and x._is_zerotensor():  # it has no memory
            return x
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided or not x.is_floating_point():
            if isinstance(x, torch.Tensor) and x.is_complex() and x.layout == torch.strided:
                return x * (1 + torch.finfo(x.dtype).eps * self.draw(x))
            return x
        return self.changed(x)

    def changed(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.where(x.isnan() & (self.draw(x) > 0), -x, x)
        wide = x if x.dtype == torch.float64 else x.double()
        other = (wide * (1 + torch.finfo(x.dtype).eps * self.draw(x))).to(x.dtype)
        return x.clone().copy_(torch.where(x.isfinite() & other.isfinite(), other, x))  # strides stay

    def shake_in_place(self, x: Any) -> None:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.layout != torch.strided:
            return
        if not any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True)):
            x.copy_(self.changed(x))

    def draw(self, x: torch.Tensor) -> torch.Tensor:
        return torch.randint(-1, 2, x.shape, generator=self.generator).to(torch.float64).to(x.device)
