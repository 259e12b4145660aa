"""The strides of eager's results by operator, where fake tensors have others.

A fake tensor's strides come from Python: of an elementwise operator by a port of TensorIterator with another result for operands
that are expanded, of a 0-d operand or of two dtypes; of other operators by a decomposition that nobody holds to the kernel.
tests/frontend/strides/ compares all operators with their kernels.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.frontend.strides import convolutions, fourier
from mlirc.frontend.strides import dimension_order as order
from mlirc.frontend.strides.dimension_order import Layout

aten = torch.ops.aten

Rule = Callable[[torch.Tensor, tuple], tuple | None]  # a result as promised, the arguments -> its strides


def iterated(*positions: int, number: bool = False) -> Rule:
    """The strides that TensorIterator gives for the operands at these positions; without positions, for all tensor arguments.

    `number`: the first or the second argument may be a number, which is an operand of no dimensions."""

    def rule(result: torch.Tensor, args: tuple) -> tuple | None:
        chosen = [args[k] for k in positions if k < len(args)] if positions else args
        operands = [x for x in chosen if isinstance(x, torch.Tensor)]
        if not operands or any(x.layout is not torch.strided for x in operands):
            return None
        if _decides(operands[0], result):
            return None
        numbers = [x for x in args[:2] if not isinstance(x, torch.Tensor)] if number else []
        common = _common_dtype(result, operands, numbers)
        return order.result_strides(result.shape, [*(_layout(x, common) for x in operands), *[((), ())] * len(numbers)])

    return rule


def row_major(result: torch.Tensor, args: tuple) -> tuple:
    return order.row_major(result.shape)


def like(position: int) -> Rule:
    """The strides of empty_like of an argument."""

    def rule(result: torch.Tensor, args: tuple) -> tuple:
        return _preserved(args[position])

    return rule


def suggested(position: int) -> Rule:
    """Channels-last where the argument is, else row-major."""

    def rule(result: torch.Tensor, args: tuple) -> tuple:
        x, rank = args[position], result.dim()
        last = rank in (4, 5) and x.dim() == rank and _is_channels_last(x)
        return (order.channels_last if last else order.row_major)(result.shape)

    return rule


def _reduced(result: torch.Tensor, args: tuple) -> tuple | None:
    """Row-major strides of what is empty."""
    return order.row_major(result.shape) if any(order.same(n, 0) for n in result.shape) else None


def _scaled_by_power(result: torch.Tensor, args: tuple) -> tuple:
    """x * 2**y; of floats and integers there is a kernel that has both as they lie.

    The base is a number where x is float32 or of integers, and the power is row-major; else it is a 0-d tensor of the dtype of x."""
    x, y = args[:2]
    if x.is_floating_point() and not (y.is_floating_point() or y.is_complex()):
        if order.all_same(x.shape, result.shape):
            return _preserved(x)
        return order.result_strides(result.shape, [_layout(x, None), _layout(y, None)])
    if x.dtype == torch.float32 or not (x.is_floating_point() or x.is_complex()):
        power = order.row_major(y.shape)
    else:
        # a 0-d operand gives a kind alone
        computed = y.dtype if y.dim() and y.dtype.is_complex >= x.is_complex() else x.dtype
        power = order.result_strides(y.shape, [((), ()), _layout(y, computed)])
    return order.result_strides(result.shape, [_layout(x, result.dtype), (y.shape, power)])


def _rolled(result: torch.Tensor, args: tuple) -> tuple | None:
    """Two parts put together, for each dimension; an empty part is row-major. What is empty is cloned. Without dimensions all are one."""
    x: torch.Tensor = args[0]
    shifts, dims = args[1], args[2] if len(args) > 2 else []
    if not dims:
        return order.row_major(result.shape)
    if any(n == 0 for n in x.shape):
        return _preserved(x)
    moves = all(n % x.shape[d] != 0 for n, d in zip(shifts, dims, strict=True))
    return suggested(0)(result, args) if moves else order.row_major(result.shape)


def _rotated(result: torch.Tensor, args: tuple) -> tuple:
    """A flip's strides, transposed for an odd number of turns; row-major for none."""
    x, turns, dims = args[0], args[1] if len(args) > 1 else 1, args[2] if len(args) > 2 else (0, 1)
    if turns % 4 == 0:
        return order.row_major(x.shape)
    strides, (a, b) = list(_preserved(x)), dims
    if turns % 2:
        strides[a], strides[b] = strides[b], strides[a]
    return tuple(strides)


def _shuffled(result: torch.Tensor, args: tuple) -> tuple | None:
    """Channels-last where the argument is, else row-major; what is empty is an alias."""
    x = args[0]
    return x.stride() if any(order.same(n, 0) for n in x.shape) else suggested(0)(result, args)


def _of_loss(result: torch.Tensor, args: tuple) -> tuple | None:
    """A loss's gradient: zeros_like its input, row-major."""
    return order.row_major(result.shape) if order.all_same(args[1].shape, result.shape) else None


def _randomized_relu(result: torch.Tensor, args: tuple) -> tuple | None:
    """noise * grad where slopes were drawn, else a leaky ReLU's gradient."""
    grad, x, noise, lower, upper, training, _ = args
    chosen = (noise, grad) if training and upper - lower > 1e-6 else (x, grad)
    return iterated()(result, chosen)


def _angle(result: torch.Tensor, args: tuple) -> tuple | None:
    """Row-major for complex operands, whose result eager copies out of a complex tensor; else TensorIterator's."""
    return order.row_major(result.shape) if args[0].is_complex() else iterated()(result, args)


def _absolute(result: torch.Tensor, args: tuple) -> tuple | None:
    """The strides of empty_like of complex operands; else TensorIterator's."""
    return _preserved(args[0]) if args[0].is_complex() else iterated()(result, args)


def _infinite(result: torch.Tensor, args: tuple) -> tuple | None:
    """TensorIterator's strides for the absolute values, of complex operands those of the real parts, and then for these and a number. Those of
    empty_like of integers."""
    x = args[0]
    if not (x.is_floating_point() or x.is_complex()):
        return _preserved(x)
    if not x.is_complex():
        return iterated()(result, args)
    absolute = order.result_strides(x.shape, [(x.shape, [2 * n for n in x.stride()])])
    return order.result_strides(x.shape, [(x.shape, absolute), ((), ())])


def _padded(result: torch.Tensor, args: tuple) -> tuple | None:
    """Where no side grows, the strides of a dense copy in the operand's order of dimensions."""
    x, pad = args[:2]
    return None if any(n > 0 for n in pad) else order.dense(result.shape, order.order(result.shape, [x.stride()]))


def _of_efficient_attention(result: torch.Tensor, args: tuple) -> tuple | None:
    """Gradients of query, key and value are new, unless they share a storage; that of a bias is part of a wider one, as PyTorch promises."""
    bias, shared = args[4], len(args) > SHARED_STORAGE and args[SHARED_STORAGE]
    of_bias = bias is not None and order.all_same(result.shape, bias.shape)
    return None if shared or of_bias else row_major(result, args)


def _of_flash_attention(result: torch.Tensor, args: tuple) -> tuple | None:
    """The attended values lie as the query: a size of 1 has its stride. The logarithms of the sums lie as promised."""
    return _preserved(args[0]) if result.dim() == args[0].dim() else None


def _decides(first: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether the first operand lies as the result is promised to, and no other has a say.

    The other operands have a say in the order of a dimension of size 1, whose stride may be another's."""
    shape, strides = first.shape, first.stride()
    if any(map(order.may_be_one, shape)) or any(order.same(n, 0) for n in strides):
        return False
    if not (order.all_same(shape, result.shape) and order.all_same(strides, result.stride())):
        return False
    return _has_no_gaps(shape, strides)


def _has_no_gaps(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether a tensor whose elements share no memory fills it."""
    if all(type(n) is int for n in (*shape, *strides)):
        return sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 == math.prod(shape)
    return order.is_row_major(shape, strides)


def _common_dtype(result: torch.Tensor, operands: Sequence[torch.Tensor], numbers: Sequence[Any]) -> torch.dtype:
    """What TensorIterator converts operands to first: a number counts where it is of another kind than all of them."""
    promoted: dict[bool, torch.dtype | None] = {True: None, False: None}
    for x in operands:
        seen = promoted[x.dim() > 0]
        promoted[x.dim() > 0] = x.dtype if seen is None else torch.promote_types(seen, x.dtype)
    from mlirc.dialects.core.graph_builder import outweigh  # MLIR's bindings with it, which a warm start does without

    common = outweigh(promoted[True], promoted[False])
    assert common is not None, "no operands"
    for x in (result.dtype, *map(_dtype_of_number, numbers)):
        if x != torch.bool and _kind(x) > _kind(common):
            common = x
    return common


def _dtype_of_number(x: Any) -> torch.dtype:
    if isinstance(x, bool):
        return torch.bool
    if isinstance(x, (int, torch.SymInt)):
        return torch.int64
    return torch.complex64 if isinstance(x, complex) else torch.get_default_dtype()


def _kind(dtype: torch.dtype) -> int:
    return 0 if dtype == torch.bool else 2 if dtype.is_floating_point or dtype.is_complex else 1


def _layout(x: torch.Tensor, common: torch.dtype | None) -> Layout:
    converted = common is not None and x.dtype != common and x.device.type == "cpu"
    return x.shape, _preserved(x) if converted else x.stride()


def _preserved(x: torch.Tensor) -> tuple:
    """Strides of empty_like(x): its own where they have no gaps, else dense ones in their order."""
    strides = x.stride()
    return strides if order.is_dense(x.shape, strides) else order.dense(x.shape, order.order(x.shape, [strides]))


def _like_first(result: torch.Tensor, args: tuple) -> tuple | None:
    """The strides of empty_like of the first argument; the last argument may ask for another memory format."""
    asked = args[-1]
    return None if isinstance(asked, torch.memory_format) and asked != torch.preserve_format else _preserved(args[0])


def _chosen(result: torch.Tensor, args: tuple) -> tuple:
    """TensorIterator's strides, for operands converted to the result's dtype."""
    condition, *rest = args[:3]
    layouts = [(x.shape, x.stride() if x.dtype == result.dtype else _preserved(x)) for x in rest]
    return order.result_strides(result.shape, [(condition.shape, condition.stride()), *layouts])


def _gated(result: torch.Tensor, args: tuple) -> tuple:
    """TensorIterator's strides, for both halves of the argument."""
    return order.result_strides(result.shape, [(result.shape, args[0].stride())] * 2)


def _indexed(result: torch.Tensor, args: tuple) -> tuple | None:
    """TensorIterator's strides, for the argument with strides of 0 where positions are looked up, and for the positions."""
    x, indices = args[:2]
    given = [d for d, index in enumerate(indices) if index is not None]
    positions = [indices[d] for d in given]
    if any(index.dtype in (torch.bool, torch.uint8) for index in positions):
        return None
    rest = [d for d in range(x.dim()) if d not in given]
    adjacent = given == list(range(given[0], given[-1] + 1))
    before = [d for d in rest if adjacent and d < given[0]]
    after = [d for d in rest if d not in before]
    count = result.dim() - len(rest)
    shape = result.shape[len(before) : len(before) + count]
    strides = [*(x.stride(d) for d in before), *[0] * count, *(x.stride(d) for d in after)]
    operands: list[Layout] = [(result.shape, strides)]
    for index in positions:
        found = order.broadcast_strides(shape, index.shape, index.stride())
        sizes = [*[1] * len(before), *shape, *[1] * len(after)]
        operands.append((sizes, order.viewed_strides(shape, found, sizes) or [0] * len(sizes)))
    return order.result_strides(result.shape, operands)


def _scattered(result: torch.Tensor, args: tuple) -> tuple | None:
    """The strides of a copy of the argument (clone_preserve_strides), which is dense where one element stands for several."""
    x = args[0]
    repeats = any(order.same(s, 0) and not order.is_one(n) for n, s in zip(x.shape, x.stride(), strict=True))
    return _preserved(x) if repeats else None


def _stacked(result: torch.Tensor, args: tuple) -> tuple | None:
    """A view of the tensors joined along that dimension, which are channels-last where all are. Along a new last one, as promised."""
    tensors, dim, rank = args[0], args[1] if len(args) > 1 else 0, result.dim() - 1
    if dim in (rank, -1):
        return None
    shape = list(tensors[0].shape)
    shape[dim % (rank + 1)] *= len(tensors)
    last = rank in (4, 5) and all(map(_is_channels_last, tensors))
    joined = (order.channels_last if last else order.row_major)(shape)
    return order.viewed_strides(shape, joined, result.shape)


def _viewed(result: torch.Tensor, args: tuple) -> tuple | None:
    return order.viewed_strides(args[0].shape, args[0].stride(), result.shape)


def _expanded(result: torch.Tensor, args: tuple) -> tuple:
    """A new dimension of size 1 has the stride of a whole of what it holds, which is 0 where that is expanded; all have 0 of a 0-d tensor."""
    rank, strides = args[0].dim(), list(result.stride())
    for d in reversed(range(len(strides) - rank)):
        if order.same(result.shape[d], 1):
            strides[d] = result.shape[d + 1] * strides[d + 1] if rank else 0
    return tuple(strides)


def _is_channels_last(x: torch.Tensor) -> bool:
    return order.lies_channels_last(x.shape, x.stride())


SHARED_STORAGE = 19  # the argument's position, of _efficient_attention_backward
ROW_MAJOR = (
    aten.masked_fill.Scalar,
    aten.tril.default,
    aten.triu.default,
    aten.index_copy.default,
    aten.index_add.default,
    aten.diag_embed.default,
    aten.im2col.default,
    aten.pow.Scalar,
    aten.isin.Tensor_Tensor,
    aten.isin.Tensor_Scalar,
    aten.isin.Scalar_Tensor,
    aten._log_softmax.default,
    aten._log_softmax_backward_data.default,
    aten._softmax_backward_data.default,
    aten.linalg_vector_norm.default,
    aten.renorm.default,
    aten.native_layer_norm_backward.default,
)
ROW_MAJOR_ON_CPU = (
    aten.log_sigmoid_forward.default,
    aten.glu_backward.default,
    aten.native_layer_norm.default,
    aten.upsample_bicubic2d_backward.default,
    aten._upsample_bicubic2d_aa_backward.default,
    aten.upsample_nearest3d_backward.default,
    aten._upsample_nearest_exact3d_backward.default,
)
ITERATED = (
    aten.hardswish.default,
    aten.hardswish_backward.default,
    aten.hardtanh_backward.default,
    aten.hardsigmoid_backward.default,
    aten.hardshrink_backward.default,
    aten.softshrink_backward.default,
    aten.softplus_backward.default,
    aten.elu_backward.default,
)
SUGGESTED: dict[Any, int] = {
    aten._native_batch_norm_legit.default: 0,
    aten._native_batch_norm_legit.no_stats: 0,
    aten._native_batch_norm_legit_functional.default: 0,
    aten._native_batch_norm_legit_no_training.default: 0,
    aten.native_batch_norm.default: 0,
    aten._batch_norm_with_update.default: 0,
    aten._batch_norm_with_update_functional.default: 0,
    aten._batch_norm_no_update.default: 0,
    aten.native_batch_norm_backward.default: 1,
    aten.batch_norm_backward.default: 1,
    aten.native_group_norm.default: 0,
    aten.max_unpool2d.default: 0,
    aten.reflection_pad2d_backward.default: 1,
    aten.reflection_pad3d.default: 0,
    aten.reflection_pad3d_backward.default: 1,
    aten.replication_pad2d_backward.default: 1,
    aten.replication_pad3d.default: 0,
    aten.replication_pad3d_backward.default: 1,
    aten.upsample_nearest2d_backward.default: 0,
    aten._upsample_nearest_exact2d_backward.default: 0,
    aten.upsample_bilinear2d_backward.default: 0,
    aten._upsample_bilinear2d_aa_backward.default: 0,
    aten.upsample_trilinear3d_backward.default: 0,
}
LIKE: dict[Any, int] = {
    aten._conj_physical.default: 0,
    aten.deg2rad.default: 0,
    aten.rad2deg.default: 0,
    aten.frexp.Tensor: 0,
    aten.huber_loss.default: 0,
    aten.binary_cross_entropy.default: 0,
    aten.binary_cross_entropy_backward.default: 1,
    aten.index_fill.int_Scalar: 0,
    aten.index_fill.int_Tensor: 0,
    aten.index_put.default: 0,
    aten._prelu_kernel.default: 0,
    aten.native_dropout.default: 0,
    aten.flip.default: 0,
    aten.sort.default: 0,
    aten.sort.stable: 0,
}
EXACT: dict[Any, Rule] = {
    aten.floor_divide.default: iterated(number=True),
    aten.ldexp.Tensor: _scaled_by_power,
    aten.roll.default: _rolled,
    aten.rot90.default: _rotated,
    aten.rsub.Tensor: iterated(1, 0),
    aten.complex.default: iterated(0, 1),
    aten.polar.default: iterated(0, 1),
    aten.mse_loss.default: iterated(0, 1),
    aten.smooth_l1_loss.default: iterated(0, 1),
    aten.mse_loss_backward.default: _of_loss,
    aten.huber_loss_backward.default: _of_loss,
    aten.smooth_l1_loss_backward.default: _of_loss,
    aten.angle.default: _angle,
    aten.abs.default: _absolute,
    aten.isinf.default: _infinite,
    aten.where.self: _chosen,
    aten.glu.default: _gated,
    aten.index.Tensor: _indexed,
    aten.clone.default: _like_first,
    aten.empty_like.default: _like_first,
    aten.zeros_like.default: _like_first,
    aten.ones_like.default: _like_first,
    aten.hardtanh.default: like(0),
    aten.nan_to_num.default: like(0),
    aten.full_like.default: _like_first,
    aten.stack.default: _stacked,
    aten.expand.default: _expanded,
    aten.view.default: _viewed,
    aten._unsafe_view.default: _viewed,
    aten.select_scatter.default: _scattered,
    aten.slice_scatter.default: _scattered,
    aten.diagonal_scatter.default: _scattered,
    aten.as_strided_scatter.default: _scattered,
    aten.constant_pad_nd.default: _padded,
    aten.leaky_relu_backward.default: iterated(1, 0),
    aten._prelu_kernel_backward.default: iterated(1, 2, 0),
    aten.rrelu_with_noise_backward.default: _randomized_relu,
    aten.threshold_backward.default: iterated(1, 0),
    aten._efficient_attention_backward.default: _of_efficient_attention,
}
REDUCTIONS = (
    aten.sum.dim_IntList,
    aten.prod.dim_int,
    aten.amax.default,
    aten.amin.default,
    aten.aminmax.default,
    aten.var.correction,
    aten.var_mean.correction,
)
EXACT |= dict.fromkeys(REDUCTIONS, _reduced)
EXACT_ON_CPU: dict[Any, Rule] = {
    aten.reflection_pad2d.default: suggested(0),
    aten.replication_pad2d.default: suggested(0),
    aten.channel_shuffle.default: _shuffled,
    aten.convolution.default: convolutions.forward,
    aten.convolution_backward.default: convolutions.backward,
    aten._scaled_dot_product_flash_attention_for_cpu.default: _of_flash_attention,
    aten._fft_c2c.default: fourier.of_complex,
    aten._fft_r2c.default: fourier.of_real,
    aten._fft_c2r.default: fourier.to_real,
}
AS_PROMISED = (aten.mvlgamma.default,)
"""Elementwise operators whose strides are not TensorIterator's: those of their first operand."""
NUMBERS = ("other", "n")
"""Second arguments of elementwise operators of which the kernel makes a tensor where they are numbers."""


def rule_of(target: Any, device: str) -> Rule | None:
    """How the strides of an operator's results are found; None for those of which fake tensors know."""
    if target in EXACT:
        return EXACT[target]
    if target in ROW_MAJOR:
        return row_major
    if device == "cpu":
        if target in ROW_MAJOR_ON_CPU:
            return row_major
        if target in EXACT_ON_CPU:
            return EXACT_ON_CPU[target]
        if target in SUGGESTED:
            return suggested(SUGGESTED[target])
        if target in LIKE:
            return like(LIKE[target])
    if target in ITERATED:
        return iterated()
    if torch.Tag.pointwise in target.tags and not target._schema.is_mutable and target not in AS_PROMISED:
        first, *rest = target._schema.arguments
        return iterated(number=str(first.type) == "number" or (bool(rest) and rest[0].name in NUMBERS))
    return None
