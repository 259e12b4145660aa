"""Eager with the last bit of every inexact operation changed at random: how far rounding alone can carry a result."""

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
# Of these a zero may have any sign: sums of products begin as a library likes, and of -0.0 and 0.0 neither is larger.
_SIGNLESS = """
mm bmm addmm baddbmm addbmm mv addmv dot vdot convolution convolution_backward _scaled_dot_product_flash_attention_for_cpu
_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_attention_math linear _trilinear _cdist_forward
maximum minimum max min amax amin fmax fmin aminmax clamp clamp_min clamp_max max_pool2d_with_indices
"""
SIGNLESS = frozenset(words(_SIGNLESS))


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
        if name in ("sum", "mean", "nansum") and self.reversed:
            args = (_reversed(*args[:2]), *args[1:])
        result = func(*args, **kwargs)
        if written:
            self.shake_in_place(args[0] if args else None)
            return result
        return torch.utils._pytree.tree_map(self.shake, result)

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
