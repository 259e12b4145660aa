"""Results have eager's strides: each elementwise operator of ATen and each operator with a rule, on operands of all layouts.

Graphs are traced with fake tensors; tests/frontend/strides/test_operators.py goes through OpInfo's samples, with gradients.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.frontend.strides.layouts import LAYOUTS, wrong

pytestmark = pytest.mark.thinned

aten = torch.ops.aten
SHAPES = (
    ((4, 5), (4, 5), (4, 5)),
    ((4, 5), (5,), ()),
    ((4, 5), (), (5,)),
    ((1, 4, 5), (3, 1, 5), (4, 5)),
    ((3, 1, 5), (4, 5), (3, 4, 5)),
    ((2, 3, 4, 5), (3, 4, 5), (2, 1, 1, 5)),
)
DTYPES = ((torch.float32,) * 3, (torch.float32, torch.int64, torch.float64), (torch.bool, torch.float32, torch.float16))
DTYPES = (*DTYPES, (torch.int64,) * 3, (torch.complex64, torch.float32, torch.complex64), (torch.bool,) * 3)


def elementwise() -> Iterator[Any]:
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::") or "_foreach" in name:
            continue
        base, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(aten, base), overload or "default", None)
        implicit = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
        if op is not None and torch.Tag.pointwise in op.tags and not op._schema.is_mutable and not implicit:
            yield op


OTHERS = (
    aten.hardswish.default,
    aten.hardswish_backward.default,
    aten.hardtanh_backward.default,
    aten.hardsigmoid_backward.default,
    aten.leaky_relu_backward.default,
    aten.elu_backward.default,
    aten.softplus_backward.default,
    aten.softshrink_backward.default,
    aten.hardshrink_backward.default,
    aten.log_sigmoid_forward.default,
    aten.mse_loss.default,
    aten.mse_loss_backward.default,
    aten.smooth_l1_loss.default,
    aten.smooth_l1_loss_backward.default,
    aten.huber_loss.default,
    aten.huber_loss_backward.default,
    aten.binary_cross_entropy.default,
    aten.binary_cross_entropy_backward.default,
    aten.floor_divide.default,
    aten.rsub.Tensor,
    aten.complex.default,
    aten.polar.default,
)
NUMBERS = {"int": 1, "number": 2, "float": 0.5, "bool": True, "SymInt": 1, "Optional[str]": "floor", "Scalar": 2}


def arguments(op: Any, tensors: list[torch.Tensor]) -> tuple[tuple, dict]:
    """Tensors and numbers as the schema asks for them."""
    given = iter(tensors)
    args, kwargs = [], {}
    for argument in op._schema.arguments:
        kind = str(argument.type)
        value: Any = argument.default_value if argument.has_default_value() else NUMBERS.get(kind)
        if kind == "Tensor" or (kind == "Optional[Tensor]" and not argument.has_default_value()):
            value = next(given)
        if argument.name == "reduction":
            value = 0
        if argument.name == "alpha":
            value = 2
        if argument.kwarg_only:
            kwargs[argument.name] = "floor" if argument.name == "rounding_mode" else value
        else:
            args.append(value)
    return tuple(args), kwargs


def calls(op: Any, shapes: Any, dtypes: Any) -> Iterator[tuple[tuple, dict]]:
    names = [n for n, layout in LAYOUTS.items() if n != "channels-last"]
    count = sum(str(a.type) in ("Tensor", "Optional[Tensor]") for a in op._schema.arguments)
    pairs = itertools.product(names, names[:6:2] if count > 1 else names[:1])
    for first, second in pairs:
        tensors = [
            LAYOUTS[layout](torch.ones(shape).to(dtype))
            for shape, dtype, layout in zip(shapes, dtypes, (first, second, "transposed"), strict=True)
        ]
        yield arguments(op, tensors)


FLOATS = "native_dropout_backward"  # of a gradient and a mask
LOSSES = ("mse_loss", "huber_loss", "smooth_l1", "binary_cross")


def differences(part: int, of: int, dynamic: bool = False) -> list[str]:
    found = []
    number = compared = 0
    for op, shapes in itertools.product(sorted({*elementwise(), *OTHERS}, key=str), SHAPES):
        if shapes != SHAPES[0] and str(op).removeprefix("aten.").startswith(LOSSES):
            continue  # their operands are expanded first
        for dtypes in DTYPES[:2] if shapes != SHAPES[0] else DTYPES:
            if FLOATS in str(op) and not dtypes[0].is_floating_point:
                continue
            for args, kwargs in calls(op, shapes, dtypes):
                number += 1
                if number % of != part:
                    continue
                wrongs = wrong(op, args, kwargs, dynamic)
                if wrongs is None:
                    break  # it refuses these dtypes
                compared += 1
                found += wrongs
    assert number > 5000 and of * compared > 0.75 * number, f"{compared} calls of {number} were compared"
    return found


def test_some_elementwise_calls():
    found = differences(part=0, of=96)
    assert not found, "\n".join(found[:60])


@pytest.mark.full
@pytest.mark.parametrize("dynamic", (False, True))
def test_each_elementwise_call(dynamic):
    found = differences(part=0, of=1, dynamic=dynamic)
    assert not found, "\n".join(found[:60])


N, C = (6, 5), (2, 3, 4, 5)
IMAGES = ("row-major", "transposed", "reversed", "channels-last", "sliced", "expanded first", "expanded last")
STATISTICS = [torch.ones(3) for _ in range(4)]
CALLS = {
    "pow": lambda x: aten.pow.Scalar(2, x),
    "isin": lambda x: aten.isin.Tensor_Tensor(x, torch.ones(2)),
    "isin, sorted": lambda x: aten.isin.Tensor_Tensor(x, torch.ones(100)),
    "isin of a number": lambda x: aten.isin.Tensor_Scalar(x, 1),
    "angle": lambda x: aten.angle.default(torch.complex(x, x)),
    "index_fill": lambda x: aten.index_fill.int_Scalar(x, 0, torch.tensor([1]), 2.0),
    "log_softmax gradient": lambda x: aten._log_softmax_backward_data.default(x, x, 1, torch.float32),
    "log_sigmoid": lambda x: aten.log_sigmoid_forward.default(x),
    "batch norm": lambda x: aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5),
    "batch norm, weights": lambda x: aten.native_batch_norm.default(x, *STATISTICS, True, 0.1, 1e-5),
    "batch norm, evaluation": lambda x: aten.native_batch_norm.default(x, *STATISTICS, False, 0.1, 1e-5),
    "batch norm, moved statistics": lambda x: aten._native_batch_norm_legit_functional.default(
        x, *STATISTICS, True, 0.1, 1e-5
    ),
    "batch norm with update": lambda x: aten._batch_norm_with_update_functional.default(x, *STATISTICS, 0.1, 1e-5),
    "batch norm, no update": lambda x: aten._batch_norm_no_update.default(x, *STATISTICS, 0.1, 1e-5),
    "batch norm gradient": lambda x: aten.native_batch_norm_backward.default(
        x, x, *STATISTICS[:3], *STATISTICS[2:], True, 1e-5, [True] * 3
    ),
    "layer norm gradient": lambda x: aten.native_layer_norm_backward.default(
        x, x, [5], x[..., :1], x[..., :1], torch.ones(5), torch.ones(5), [True] * 3
    ),
    "roll": lambda x: aten.roll.default(x, [1], [0]),
    "roll by nothing": lambda x: aten.roll.default(x, [0], [1]),
    "roll twice": lambda x: aten.roll.default(x, [1, 2], [0, -1]),
    "roll flat": lambda x: aten.roll.default(x, [1]),
    "pad": lambda x: aten.constant_pad_nd.default(x, [1, 0, 0, 1], 2.0),
    "pad by nothing": lambda x: aten.constant_pad_nd.default(x, [0, 0]),
    "pad by less": lambda x: aten.constant_pad_nd.default(x, [0, -1, -1, 0]),
    "pad by less and more": lambda x: aten.constant_pad_nd.default(x, [-1, 1]),
    "im2col": lambda x: aten.im2col.default(x, [2, 2], [1, 1], [1, 1], [1, 1]),
    "im2col of single pixels": lambda x: aten.im2col.default(x, [1, 1], [1, 1], [0, 0], [1, 1]),
    "col2im": lambda x: aten.col2im.default(x.flatten(2)[:, :2, :6], [2, 3], [1, 1], [1, 1], [0, 0], [1, 1]),
    "channel_shuffle": lambda x: aten.channel_shuffle.default(x, 3),
    "glu gradient": lambda x: aten.glu_backward.default(x.narrow(2, 0, x.shape[2] // 2), x, 2),
    "rrelu gradient": lambda x: aten.rrelu_with_noise_backward.default(
        x, x, torch.ones(x.shape), 0.1, 0.3, True, False
    ),
    "rrelu gradient, not drawn": lambda x: aten.rrelu_with_noise_backward.default(
        torch.ones(x.shape), x, torch.ones(x.shape), 0.1, 0.3, False, False
    ),
    "reflection_pad3d": lambda x: aten.reflection_pad3d.default(x, [1] * 6),
    "replication_pad3d": lambda x: aten.replication_pad3d.default(x, [1] * 6),
    "reflection_pad2d gradient": lambda x: aten.reflection_pad2d_backward.default(torch.ones(2, 3, 6, 7), x, [1] * 4),
    "replication_pad2d gradient": lambda x: aten.replication_pad2d_backward.default(torch.ones(2, 3, 6, 7), x, [1] * 4),
    "binary_cross_entropy": lambda x: aten.binary_cross_entropy.default(x, torch.ones(x.shape), None, 0),
}


PAIRS = (aten.ldexp.Tensor, aten.mse_loss.default, aten.smooth_l1_loss.default, aten.huber_loss.default)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("op", PAIRS, ids=str)
def test_pairs_of_dtypes(op):
    """What an operator computes by itself may have a dtype of its own."""
    dtypes = [torch.float32, torch.bfloat16, torch.complex64, torch.int32]
    layouts = ["row-major", "transposed", "expanded first"]
    shapes = [((4, 5), (4, 5)), *([((5,), (4, 5)), ((3, 4, 5), ())] if op is aten.ldexp.Tensor else [])]
    compared = 0
    for dtype, other, shape in itertools.product(dtypes, dtypes, shapes):
        for first, second in itertools.product(layouts, layouts):
            x, y = LAYOUTS[first](torch.ones(shape[0]).to(dtype)), LAYOUTS[second](torch.ones(shape[1]).to(other))
            found = wrong(op, arguments(op, [x, y])[0], {}, False)
            compared += found is not None
            assert not found, found
            if found is None:
                break
    assert compared > 30


STATIC = ("pad by less", "pad by less and more")  # fake tensors of symbolic sizes refuse these


@pytest.mark.thinned(6)
@pytest.mark.parametrize("dynamic", (False, True))
@pytest.mark.parametrize("name", CALLS)
def test_operators_with_rules(name, dynamic):
    compared = 0
    for shape in (N, C, (2, 3, 4)):
        for layout in IMAGES:
            x = LAYOUTS[layout](torch.full(shape, 0.5))
            found = wrong(CALLS[name], (x,), {}, dynamic)
            compared += found is not None
            assert not found, (layout, found)
    if dynamic and name in STATIC:
        assert not compared
    else:
        assert compared >= len(IMAGES)  # eager refuses the other shapes


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 3)])
def test_what_is_empty_has_an_order_too(shape, dynamic):
    x = torch.empty(shape).mT
    f = lambda x, n: [x.roll(n, 0), x.roll((n, 1), (0, 1)), x + x.sum(0), torch.cat([x, x], 1), x.flip(0), x.pow(2)]
    torch._dynamo.reset()
    found = torch.compile(f, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})(x, 2)
    assert [y.shape for y in found] == [y.shape for y in f(x, 2)]
