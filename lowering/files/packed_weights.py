"""Verifies oneDNN's packed weights in a module from a file: one operator makes them, its convolutions read them, and nothing else does.

    %p = "mlircx.aten"(%w) {op = "mkldnn._reorder_convolution_weight.default", ...} -> tensor<8x4x3x3xf32, {layout = "mkldnn"}>
    %y = "mlircx.aten"(%x, %p, %b) {op = "mkldnn._convolution_pointwise.default", ...}

oneDNN trusts numbers that PyTorch does not look at: a stride of 0 traps, and weights packed for other groups are read as if they were not.
"""

from typing import Any

import torch

from mlirc.dialects.core import aten_arguments, symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.lowering.module.rules import expect, rules_of, text_attribute

REORDER = "mkldnn._reorder_convolution_weight.default"
CONVOLVE = "mkldnn._convolution_pointwise.default"
CONVOLVE_BINARY = "mkldnn._convolution_pointwise.binary"
CALLS = (REORDER, CONVOLVE, CONVOLVE_BINARY)
# the arguments behind a convolution's window: no activation; an addition, and no activation
AFTER = {CONVOLVE: ["none", [], ""], CONVOLVE_BINARY: ["add", None, None, [], None]}
LARGEST = 1 << 20  # of strides, paddings and dilations
DTYPES = (torch.float32, torch.bfloat16)

Window = tuple[Any, ...]  # padding, stride, dilation and groups, which weights are packed for


def verify_packed_weights(functions: dict[str, Any]) -> None:
    """Raises StageError. `functions` are those of a module, by name."""
    frozen: list[Window | None] = []
    if "prepare" in functions:
        frozen = _verify(functions["prepare"], [])
    for name, function in functions.items():
        if name != "prepare":
            _verify(function, frozen if name == "graph" else [])


def _verify(function: Any, frozen: list[Window | None]) -> list[Window | None]:
    """What the function's results are packed for, None for tensors in memory. `frozen` has that of its last arguments, results of @prepare."""
    block = function.regions[0].blocks[0]
    known: dict[ir.Value, Window | None] = {}
    arguments = list(block.arguments)
    known |= dict(zip(arguments[len(arguments) - len(frozen) :], frozen, strict=False))
    with rules_of(function):
        for k, x in enumerate(arguments):
            right = not is_packed(x) or known.get(x) is not None
            expect(right, function, f"argument {k} is of oneDNN", "let @prepare make it")
    for op in block.operations:
        if op.operation.name == "func.return" and function.name.value == "prepare":
            return [known.get(x) for x in op.operands]
        with rules_of(op):
            _verify_op(op, known)
    return []


def _verify_op(op: Any, known: dict[ir.Value, Window | None]) -> None:
    name = op.operation.name
    called = text_attribute(op, "op") if name == "mlircx.aten" else ""
    if called == REORDER:
        known[op.results[0]] = _packing(op)
    elif called in AFTER:
        _convolution(op, called, known)
    elif name != "mlirc.release":
        for x in (*op.operands, *op.results):
            expect(
                not is_packed(x), op, "reads weights that oneDNN packed", "only a convolution of oneDNN may read them"
            )


def is_packed(x: ir.Value) -> bool:
    return isinstance(x.type, ir.RankedTensorType) and info_of(x).layout != "strided"


def _packing(op: Any) -> Window:
    """The convolution for which a call packs weights. Raises StageError where its arguments do not fit."""
    w, *numbers, size = _given(op, 6)
    window = _window(op, numbers)
    x, made = _plain(op, w), info_of(op.results[0])
    groups = window[3]
    expect(
        x.rank == 4 and x.dtype in DTYPES and 0 not in x.shape,
        op,
        f"weights {x.shape} of {x.dtype}",
        "4 dimensions of floats",
    )
    expect(all(type(n) is int for n in x.shape), op, f"weights {x.shape} in symbols", "oneDNN packs for known sizes")
    expect(x.shape[0] % groups == 0, op, f"{groups} groups of {x.shape[0]} channels", "equal groups")
    same = (made.dtype, made.shape, made.layout, made.device) == (x.dtype, x.shape, "mkldnn", "cpu")
    expect(same, op, "the result is not the weights, packed", 'the same type with layout = "mkldnn"')
    if size is not None:
        padding, _, dilation, _ = window
        fits = isinstance(size, list) and len(size) == 4 and all(type(n) is int and 0 < n < 1 << 31 for n in size)
        fits = fits and size[1] == x.shape[1] * groups
        fits = fits and all(size[2 + d] + 2 * padding[d] > dilation[d] * (x.shape[2 + d] - 1) for d in (0, 1))
        expect(fits, op, f"images {size} for weights {x.shape}", "images that the weights can be laid over")
    return window


def _convolution(op: Any, called: str, known: dict[ir.Value, Window | None]) -> None:
    images = 1 if called == CONVOLVE else 2
    given = _given(op, images + 6 + len(AFTER[called]))
    window = _window(op, given[images + 2 : images + 6])
    expect(given[images + 6 :] == AFTER[called], op, "oneDNN applies something after it", 'write "none", or "add"')
    packed = op.operands[_operand(op, given[images])]
    expect(known.get(packed) is not None, op, "its weights are not packed", f"call {REORDER}")
    expect(
        known[packed] == window, op, f"weights packed for {known[packed]} by {window}", "the same numbers in both calls"
    )
    w, x, made = info_of(packed), _plain(op, given[0]), info_of(op.results[0])
    expect(x.rank == 4 and x.dtype == w.dtype, op, f"images {x.shape} of {x.dtype}", "4 dimensions, the weights' dtype")
    channels = w.shape[1] * window[3]
    expect(x.shape[1] == channels, op, f"images of {x.shape[1]} channels for {channels}", "as many as the weights read")
    if given[images + 1] is not None:
        bias = _plain(op, given[images + 1])
        fits = (bias.shape, bias.dtype) == (w.shape[:1], w.dtype)
        expect(fits, op, f"a bias {bias.shape} of {bias.dtype}", f"{w.shape[0]} numbers of the weights' dtype")
    shape = (x.shape[0], w.shape[0], *(_extent(x.shape[2 + d], w.shape[2 + d], window, d) for d in (0, 1)))
    right = made.rank == 4 and all(_same(a, b) for a, b in zip(made.shape, shape, strict=True))
    right = right and (made.layout, made.dtype) == ("strided", w.dtype)
    expect(right, op, f"a result {made.shape} of {made.dtype}", f"it is {shape}")
    if images == 2:
        other = _plain(op, given[1])
        expect((other.shape, other.dtype) == (made.shape, made.dtype), op, f"adds {other.shape}", "the result's type")


def _given(op: Any, count: int) -> list[Any]:
    positional, keywords = aten_arguments.parse(attribute_value(op.attributes["args"]))
    expect(
        len(positional) == count and not keywords, op, f"{len(positional)} arguments", f"{count} of them, by position"
    )
    expect(len(op.results) == 1, op, f"{len(op.results)} results", "one")
    return [_list(x) for x in positional]


def _list(x: Any) -> Any:
    return list(x["tuple"]) if isinstance(x, dict) and isinstance(x.get("tuple"), list) else x


def _operand(op: Any, x: Any) -> int:
    refers = isinstance(x, dict) and list(x) == ["$"] and type(x["$"]) is int and 0 <= x["$"] < len(op.operands)
    expect(refers, op, f"{str(x)[:50]} where a tensor is read", "refer to an operand")
    return x["$"]


def _plain(op: Any, x: Any) -> TensorInfo:
    """The type of an argument that is a tensor in memory."""
    value = op.operands[_operand(op, x)]
    expect(
        isinstance(value.type, ir.RankedTensorType) and not is_packed(value),
        op,
        "reads packed weights as elements",
        "read them as weights",
    )
    info = info_of(value)
    expect(info.device == "cpu", op, f"a tensor on {info.device}", "oneDNN computes on the CPU")
    return info


def _window(op: Any, given: list[Any]) -> Window:
    padding, stride, dilation, groups = given
    for what, numbers, least in (("padding", padding, 0), ("stride", stride, 1), ("dilation", dilation, 1)):
        right = isinstance(numbers, list) and len(numbers) == 2
        right = right and all(type(n) is int and least <= n < LARGEST for n in numbers)
        expect(right, op, f"a {what} of {str(numbers)[:50]}", f"two numbers of at least {least}")
    expect(type(groups) is int and 0 < groups < LARGEST, op, f"{str(groups)[:50]} groups", "at least 1")
    return tuple(padding), tuple(stride), tuple(dilation), groups


def _extent(image: Any, kernel: Any, window: Window, d: int) -> Any:
    padding, stride, dilation, _ = window
    return (image + 2 * padding[d] - dilation[d] * (kernel - 1) - 1) // stride[d] + 1


def _same(a: Any, b: Any) -> bool:
    """Whether sizes are equal; of symbols PyTorch looks at the result, as at that of any call."""
    numbers = not symbols.free_symbols(a) and not symbols.free_symbols(b)
    return a == b or not numbers
