"""Operators of one element at a time: arithmetic, activations, bits, casts."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F

from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import FLOAT8, NARROW, OnnxValueError, dtype_of, numbers, tensor

UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "BitwiseNot": torch.bitwise_not,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "HardSwish": F.hardswish,
    "Identity": lambda x: x,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Mish": F.mish,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Softplus": lambda x: F.softplus(x, threshold=1e9) if x.dtype is torch.float64 else F.softplus(x),
    "Softsign": F.softsign,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "Add": torch.add,
    "And": torch.logical_and,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Mul": torch.mul,
    "Or": torch.logical_or,
    "PRelu": lambda x, slope: torch.where(x < 0, x * slope, x),
    "Sub": torch.sub,
    "Xor": torch.logical_xor,
}


def _enter_unary(name: str, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    op(name)(lambda node, x: function(x))


def _enter_binary(name: str, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    op(name)(lambda node, x, y: function(x, y))


for _name, _function in UNARY.items():
    _enter_unary(_name, _function)
for _name, _two in BINARY.items():
    _enter_binary(_name, _two)


@op("Div")
def div(node: OnnxNode, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Integers are truncated towards zero."""
    return torch.div(x, y) if x.dtype.is_floating_point else torch.div(x, y, rounding_mode="trunc")


@op("Mod")
def mod(node: OnnxNode, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The remainder, with the sign of `y`, or with fmod=1 with the sign of `x`."""
    if node.get("fmod", 0):
        return torch.fmod(x, y)
    found = torch.remainder(x, y)
    if not x.dtype.is_floating_point:
        return found
    return torch.where(found == 0, torch.copysign(found, y), found)


@op("Pow")
def raised(node: OnnxNode, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x ** y in the dtype of `x`."""
    if x.dtype.is_floating_point and not y.dtype.is_floating_point:
        return torch.pow(x, y.to(x.dtype))
    return torch.pow(x, y).to(x.dtype)


def _over_all(function: Callable[[Any, Any], Any]) -> Callable[..., torch.Tensor]:
    return lambda node, *xs: reduce(function, xs)


op("Max")(_over_all(torch.maximum))
op("Min")(_over_all(torch.minimum))
op("Sum")(_over_all(torch.add))
op("Mean")(lambda node, *xs: reduce(torch.add, xs) / len(xs))


@op("BitShift")
def bit_shift(node: OnnxNode, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    left = node.need("direction") == "LEFT"
    return torch.bitwise_left_shift(x, y) if left else torch.bitwise_right_shift(x, y)


@op("Clip")
def clip(node: OnnxNode, x: torch.Tensor, low: Any = None, high: Any = None) -> torch.Tensor:
    """The upper limit wins where they cross."""
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


@op("IsInf")
def is_inf(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    positive, negative = node.get("detect_positive", 1), node.get("detect_negative", 1)
    if positive and negative:
        return torch.isinf(x)
    if not positive and not negative:
        return torch.zeros_like(x, dtype=torch.bool)
    return torch.isposinf(x) if positive else torch.isneginf(x)


@op("Where")
def where(node: OnnxNode, condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(condition, x, y)


@op("Celu")
def celu(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return F.celu(x, alpha=node.get("alpha", 1.0))


@op("Elu")
def elu(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return F.elu(x, alpha=node.get("alpha", 1.0))


@op("Gelu")
def gelu(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate=node.get("approximate", "none"))


@op("HardSigmoid")
def hard_sigmoid(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return torch.clamp(x * node.get("alpha", 0.2) + node.get("beta", 0.5), 0, 1)


@op("LeakyRelu")
def leaky_relu(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return F.leaky_relu(x, node.get("alpha", 0.01))


@op("Selu")
def selu(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    alpha, gamma = node.get("alpha", 1.67326319217681884765625), node.get("gamma", 1.05070102214813232421875)
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(x))


@op("Shrink")
def shrink(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    limit, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    return torch.where(x < -limit, x + bias, torch.where(x > limit, x - bias, torch.zeros_like(x))).to(x.dtype)


@op("Swish")
def swish(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(node.get("alpha", 1.0) * x)


@op("ThresholdedRelu")
def thresholded_relu(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > node.get("alpha", 1.0), x, torch.zeros_like(x))


def cast(x: torch.Tensor, elem_type: int, saturate: bool = True) -> torch.Tensor:
    """`x` with another element type. Floats of 8 bits saturate, narrow integers wrap."""
    dtype = dtype_of(elem_type)
    if elem_type in NARROW:
        low, high = NARROW[elem_type]
        wide = x.to(torch.int32)
        return (((wide - low) & (high - low)) + low).to(dtype)
    if dtype in FLOAT8:
        return _to_float8(x if x.dtype in (torch.float32, torch.float64) else x.float(), dtype, saturate)
    return x.to(dtype)


def _to_float8(x: torch.Tensor, dtype: torch.dtype, saturate: bool) -> torch.Tensor:
    """Beyond the largest number is that number, or without `saturate` an infinity, or NaN in a dtype that has none."""
    limit = torch.finfo(dtype).max
    clamped = torch.clamp(x, -limit, limit).to(dtype)
    if saturate:
        return clamped
    if dtype is torch.float8_e5m2:
        return x.to(dtype)
    half = {torch.float8_e4m3fn: 16.0, torch.float8_e4m3fnuz: 8.0, torch.float8_e5m2fnuz: 4096.0}[dtype]
    return torch.where(x.abs() > limit + half, torch.full_like(x, float("nan")), torch.clamp(x, -limit, limit)).to(
        dtype
    )


@op("Cast")
def cast_op(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return cast(x, node.need("to"), bool(node.get("saturate", 1)))


@op("CastLike")
def cast_like(node: OnnxNode, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    elem_type = node.given[1]
    if elem_type is None:
        return x.to(like.dtype)
    return cast(x, elem_type, bool(node.get("saturate", 1)))


@op("BitCast")
def bit_cast(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    dtype = dtype_of(node.need("to"))
    if dtype.itemsize != x.dtype.itemsize:
        raise OnnxValueError(f"{x.dtype} and {dtype} have other sizes")
    return x.view(dtype)


@op("Dropout", raw=True)
def dropout(node: OnnxNode, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """The identity: a model is compiled for inference."""
    if training is not None and numbers(training, "training_mode")[0]:
        rate = 0.5 if ratio is None else numbers(ratio, "ratio")[0]
        if rate != 0.0:
            raise OnnxValueError("it trains, and models are compiled for inference")
    return x, torch.ones(tensor(x).shape, dtype=torch.bool)
