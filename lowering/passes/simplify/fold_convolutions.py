"""fold-convolutions: convolutions by parameters run in oneDNN, with what surrounds them inside and channels last."""

import math
from dataclasses import replace
from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder, constant_text
from mlirc.dialects.core.symbols import floordiv, mod, symbol
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.rows.group_norm import append_ones
from mlirc.lowering.analysis.provenance import sources_of
from mlirc.lowering.cpu.convolution.choice import Choice, along, generates_groups
from mlirc.lowering.cpu.convolution.windows import MOST_TAPS
from mlirc.lowering.files.packed_weights import CONVOLVE, CONVOLVE_BINARY, REORDER
from mlirc.lowering.fusion.aten_calls import arguments, call_aten
from mlirc.lowering.fusion.convolution_users import (
    folded_factors,
    folded_norm,
    folded_parameters,
    is_convolution,
    is_residual,
    only_user,
)
from mlirc.lowering.kernel.typical_sizes import static
from mlirc.lowering.layout.channels_last import channels_last, in_channels_last, spread_channels_last
from mlirc.lowering.layout.wide_images import as_wide, of_rank
from mlirc.lowering.module.target_attribute import target_of
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.target import CpuTarget

FEW_CHANNELS, FEW_WEIGHTS = 4, 16384  # of a convolution whose taps and channels are too few for panels
F32, HALF = torch.float32, (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class FoldConvolutions:
    """Give oneDNN packed weights, the batch norm folded into them, and the addition that follows.

    before:  %0 = "mlircx.aten"(%x, %w) {op = "aten.convolution.default", ...}
             %1 = "mlirc.batch_norm_inference"(%0, %gamma, %beta, %mean, %variance) {eps = 1e-05}
             %2 = "mlirc.add"(%1, %y)
    after:   %s = gamma * rsqrt(variance + eps)
             %p = "mlircx.aten"(w * %s) {op = "mkldnn._reorder_convolution_weight.default", ...}
             %b = beta - mean * %s
             %2 = "mlircx.aten"(%x, %y, %p, %b) {op = "mkldnn._convolution_pointwise.binary", ...}

    Half types are widened where oneDNN has no convolution of theirs for this processor; results are rounded once.
    A kernel of ours (`mlirc.convolution`) takes what needs fewer multiplications so, and reads large weights where they are,
    unpacked (convolution/choice.py). It takes a relu that follows, too. oneDNN does not: its relu of NaN is 0.
    Rows [N, C, W] are images of one row.
    A depthwise convolution, or one of few channels, becomes a kernel (`mlirc.fused_convolution`), one in groups too
    (`mlirc.grouped_convolution`), and one of a pixel a matmul: fusion gives them what follows.
    PARAMETER: the weight, the bias and the statistics must be parameters, or depend on these alone: hoist-parameters then
    computes %p and %b when they change. What stands between convolutions keeps its values in channels-last order (channels_last.py);
    the graph's inputs and results stay as eager has them.
    """

    name = "fold-convolutions"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        block = function.regions[0].blocks[0]
        fixed = {x for x, parameters in sources_of(function, composed=True).items() if parameters}
        restored: dict[ir.Value, ir.Value] = {}
        # found first: folding one erases other ops, which must not be looked at again
        for op in [op for op in block.operations if is_convolution(op)]:
            rule = refusal(op, fixed) or ("" if ledger.allows(self.name, op) else "REWRITES")
            ledger.record(self.name, "fold", "aten.convolution", rule or "PARAMETER", not rule, op)
            if not rule:
                plain, last = fold(op, fixed)
                restored[plain] = last
        if restored:
            spread_channels_last(block, restored, lambda op: ledger.allows(self.name, op), everywhere=True)


def refusal(op: Any, fixed: set) -> str:
    """The rule that stands against it, or ""."""
    x, w = info_of(op.operands[0]), info_of(op.operands[1])
    _, _, _, stride, padding, dilation, transposed, _, groups = arguments(op)
    if target_of(op).cpu.onednn == "none":
        return "ONEDNN"
    if not all(v in fixed for v in op.operands[1:]):
        return "PARAMETER"
    dtypes = {info_of(v).dtype for v in op.operands}
    if len(dtypes) > 1 or not dtypes <= {F32, *HALF} or x.rank not in (3, 4) or x.device != "cpu":
        return "FLOAT IMAGES"
    if transposed and not is_ours(op):
        return "TRANSPOSED"
    numbers = [*stride, *padding, *dilation, groups, *w.shape]
    if not all(type(n) is int for n in numbers) or 0 in (*w.shape, *x.shape):
        return "STATIC WEIGHTS"
    return ""


def widens(dtype: torch.dtype, target: CpuTarget) -> bool:
    """Whether oneDNN convolves such tensors in float32: what PyTorch has for them takes tens of times as long."""
    return dtype in HALF and not (dtype == torch.bfloat16 and target.onednn == "bfloat16")


def wide(x: ir.Value, target: CpuTarget) -> ir.Value:
    return GraphBuilder().cast(x, F32) if widens(info_of(x).dtype, target) else x


def fold(op: Any, fixed: set) -> tuple[ir.Value, ir.Value]:
    """Replaces the convolution and what it takes in; its result as the graph had it, and in channels-last order."""
    x, w, *bias = op.operands
    _, _, _, stride, padding, dilation, transposed, _, groups = arguments(op)
    chain, other, target = [op], None, target_of(op).cpu
    norm = folded_norm(op.results[0], fixed)
    if norm is not None:
        chain.append(norm)
    value = chain[-1].results[0]
    kernel = matmul_of if is_matmul(op) else fused if is_direct(op) or is_grouped(op) else None
    if kernel is not None:
        with ir.InsertionPoint(chain[-1]), chain[-1].location:
            made = kernel(op, norm, channels_last(as_wide(info_of(value))))
            return replaced(chain, of_rank(made, info_of(value).rank))
    user = only_user(value)
    # in groups, PyTorch's adds by a second call, which has no bfloat16
    takes_residual = not transposed and (groups == 1 or is_ours(op))
    if user is not None and takes_residual and is_residual(user, value):
        other = next(v for v in user.operands if v != value)
        chain.append(user)
    user = only_user(chain[-1].results[0])
    relu = user is not None and user.operation.name == "mlirc.relu" and is_ours(op)
    if relu:
        chain.append(user)
    result = chain[-1].results[0]
    with ir.InsertionPoint(chain[-1]), chain[-1].location:
        if is_ours(op):
            made = own_call(op, norm, other, relu, channels_last(as_wide(info_of(result))))
            return replaced(chain, of_rank(made, info_of(result).rank))
        x, w, *bias = (wide(v, target) for v in (x, w, *bias))
        if norm is not None:
            w, *bias = folded_parameters(w, bias, norm, info_of(w).dtype)
        x, w = of_rank(in_channels_last(x), 4), of_rank(w, 4)
        size = list(info_of(x).shape)
        size = size if all(isinstance(n, int) for n in size) else None
        stride, padding, dilation = along(stride, 1), along(padding, 0), along(dilation, 1)
        opaque = TensorInfo(info_of(w).dtype, info_of(w).shape, layout="mkldnn")
        packed = call_aten(REORDER, [w, padding, stride, dilation, groups, size], opaque)
        common = [packed, bias[0] if bias else None, padding, stride, dilation, groups]
        info = channels_last(as_wide(replace(info_of(result), dtype=info_of(x).dtype)))
        if other is None:
            made = call_aten(CONVOLVE, [x, *common, "none", [], ""], info)
        else:
            images = [x, of_rank(in_channels_last(wide(other, target)), 4)]
            made = call_aten(CONVOLVE_BINARY, [*images, *common, "add", None, None, [], None], info)
        made = of_rank(made, info_of(result).rank)
        return replaced(chain, GraphBuilder().cast(made, info_of(result).dtype))


def replaced(chain: list[Any], made: ir.Value) -> tuple[ir.Value, ir.Value]:
    """`made` in place of what the ops of the chain give; a copy of it as the graph had it, and itself."""
    result = chain[-1].results[0]
    plain = create("copy", [made], [result.type]).out
    result.replace_all_uses_with(plain)
    for dead in reversed(chain):
        dead.operation.erase()
    return plain, made


def is_ours(op: Any) -> bool:
    """Whether a kernel of ours takes the convolution: its weights are not kept a second time, packed."""
    x, w, out = info_of(op.operands[0]), info_of(op.operands[1]), info_of(op.results[0])
    _, _, _, stride, _, dilation, transposed, _, groups = arguments(op)
    windows = along(stride, 1), along(dilation, 1)
    choice = Choice(
        as_wide(x).shape, as_wide(w).shape, as_wide(out).shape, *windows, transposed, groups, target_of(op).cpu
    )
    return x.dtype == torch.float32 and w.is_contiguous and choice.generates_prepared_forward


def own_call(op: Any, norm: Any | None, other: ir.Value | None, relu: bool, info: TensorInfo) -> ir.Value:
    x, w, *bias = op.operands
    transposed, more, _ = arguments(op)[6:]
    factors = {"shift": bias[0]} if bias else {}
    if norm is not None:
        scale, shift = folded_factors(bias, norm, info.dtype)
        factors = {"scale": scale, "shift": shift}
    attributes = windows_of(op) | {"after": ", ".join([*factors, *["relu"] * relu])}
    if transposed:
        attributes["more"] = ", ".join(map(str, along(more, 0)))
    images = [in_channels_last(x), w, *([in_channels_last(other)] if other is not None else [])]
    images = [of_rank(image, 4) for image in images]
    name = "transposed_convolution" if transposed else "convolution" if other is None else "convolution_add"
    return create(name, [*images, *factors.values()], [type_of(info)], attributes).out


def is_direct(op: Any) -> bool:
    """Whether it becomes a kernel that what follows fuses with: depthwise, each channel with one filter; or of few channels, as the first
    of a net."""
    w, (_, _, _, _, _, _, transposed, _, groups) = info_of(op.operands[1]), arguments(op)
    filters, channels, *taps = static(w.shape)  # refusal() sees to it
    depthwise = channels == 1 and groups == filters > 1
    few = groups == 1 and channels <= FEW_CHANNELS and math.prod(static(w.shape)) <= FEW_WEIGHTS
    return (depthwise or few) and not transposed and w.dtype == F32 and math.prod(taps) > 1 and max(taps) <= MOST_TAPS


def is_grouped(op: Any) -> bool:
    """Whether it becomes a kernel that computes each group's filters from this group's channels."""
    (x, w), out = (info_of(v) for v in list(op.operands)[:2]), info_of(op.results[0])
    _, _, _, _, _, _, transposed, _, groups = arguments(op)
    (_, channels, *taps), widths = static(w.shape), {isinstance(v.shape[-1], int) for v in (x, out)}
    fits = groups > 1 and not transposed and w.dtype == F32 and max(taps) <= MOST_TAPS and widths == {True}
    return fits and generates_groups(channels, taps, target_of(op).cpu)


def fused(op: Any, norm: Any | None, info: TensorInfo) -> ir.Value:
    """The kernel that the convolution becomes, of a type like `info`: filters lie innermost in its weights too."""
    x, w, *bias = op.operands
    w, shift = folded_parameters(w, bias, norm, F32) if norm is not None else (w, bias[0] if bias else None)
    w, groups, attributes = of_rank(w, 4), arguments(op)[-1], windows_of(op)
    if is_direct(op):
        filters, _, height, width = info_of(w).shape
        strides = (1, height * width * filters, width * filters, filters)
        w, name = create("copy", [w], [type_of(TensorInfo(F32, info_of(w).shape, strides))]).out, "fused_convolution"
    else:
        w, name = in_vectors(w, target_of(op).cpu.lanes(F32)), "grouped_convolution"
        attributes["groups"] = str(groups)
    x = of_rank(in_channels_last(x) if groups > 1 else x, 4)  # few channels are read where they are
    made = create(name, [x, w], [type_of(info)], attributes).out
    return made if shift is None else create("add", [made, append_ones(GraphBuilder(), shift, 2)], [type_of(info)]).out


def windows_of(op: Any) -> dict[str, str]:
    """The settings of a convolution for height and width, as the attributes of ops of ours."""
    settings = zip(("stride", "padding", "dilation"), arguments(op)[3:6], (1, 0, 1), strict=True)
    return {name: ", ".join(map(str, along(numbers, height))) for name, numbers, height in settings}


def in_vectors(w: ir.Value, lanes: int) -> ir.Value:
    """The weights [O, C, KH, KW] as [tiles, KH, C, KW, lanes], contiguous; zeros follow the last filter."""
    filters, channels, height, width = static(info_of(w).shape)
    tiles = -(-filters // lanes)
    if filters % lanes:
        whole = TensorInfo(F32, (tiles * lanes, channels, height, width))
        w = create("pad", [w], [type_of(whole)], {"low": "0, 0, 0, 0", "value": constant_text(0.0, F32)}).out
    a, b, c, d = info_of(w).stride
    t, i, j, k, lane = (symbol(f"d{n}") for n in range(5))
    shape = (tiles, height, channels, width, lanes)
    view = GraphBuilder().view(w, shape, (a * lanes, c, b, d, a), [t * lanes + lane, j, i, k])
    return create("copy", [view], [type_of(TensorInfo(F32, shape))]).out


def is_matmul(op: Any) -> bool:
    """Whether it multiplies each pixel by a matrix, and no more."""
    w, (_, _, _, stride, padding, _, transposed, _, groups) = info_of(op.operands[1]), arguments(op)
    is_pixel = {*w.shape[2:], *stride} == {1} and set(padding) == {0}
    return is_pixel and groups == 1 and not transposed and w.dtype == F32


def matmul_of(op: Any, norm: Any | None, info: TensorInfo) -> ir.Value:
    """The matmul of pixels [N * H * W, C], of which `info` is the type as images."""
    x, w, *bias = op.operands
    g, (a, b, c, d) = GraphBuilder(), (symbol(f"d{k}") for k in range(4))
    x, w = of_rank(in_channels_last(x), 4), of_rank(w, 4)
    n, channels, height, width = info_of(x).shape
    filters, (step, inner, *_) = info_of(w).shape[0], info_of(w).stride
    pixels = n * height * width
    rows = g.view(
        x,
        (pixels, channels),
        (channels, 1),
        [floordiv(a, height * width), b, mod(floordiv(a, width), height), mod(a, width)],
    )
    columns = g.view(w, (channels, filters), (inner, step), [b, a, 0, 0])
    made = create("matmul", [rows, columns], [type_of(TensorInfo(F32, (pixels, filters)))]).out
    scale, shift = folded_factors(bias, norm, F32) if norm is not None else (None, bias[0] if bias else None)
    made = made if scale is None else g.mul(made, scale)
    made = made if shift is None else g.add(made, shift)
    return g.view(made, info.shape, info.stride, [(a * height + c) * width + d, b])
