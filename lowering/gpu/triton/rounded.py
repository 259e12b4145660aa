"""Faster functions for kernels that write half types alone, whose rounding hides an error of a few units in float32's last place."""

import torch

from mlirc.lowering.gpu.triton.builder import HALF, Lines, TritonBuilder, TritonValue
from mlirc.lowering.kernel.nodes import Kernel, Node

PTX = "PTX"  # the constant: whether the kernel may have instructions of PTX's, for what Triton has none

# 2^x where a subnormal result may be 0: one instruction, where Triton's takes two multiplications and a comparison besides
EXP2 = """@triton.jit
def exp2_flushed(x, PTX: tl.constexpr):
    if PTX:
        made = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    else:
        made = tl.exp2(x)
    return made
"""
# 1 / x of an x of 1/4 or more, within a unit in the last place; of an x above 2^126 it may be 0
RECIPROCAL = """@triton.jit
def reciprocal_flushed(x, PTX: tl.constexpr):
    if PTX:
        made = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    else:
        made = 1.0 / x
    return made
"""

# Abramowitz and Stegun 7.1.26: error 1.5e-7 at most, which is not small beside erf(x) for a small x
ERF = """@triton.jit
def erf_beside_one(x, PTX: tl.constexpr):
    a = tl.abs(x)
    t = reciprocal_flushed(tl.fma(a, 0.3275911, 1.0), PTX)
    p = tl.fma(t, 1.061405429, -1.453152027)
    p = tl.fma(p, t, 1.421413741)
    p = tl.fma(p, t, -0.284496736)
    p = tl.fma(p, t, 0.254829592)
    return libdevice.copysign(tl.fma(-p * t, exp2_flushed(a * -1.4426950408889634 * a, PTX), 1.0), x)
"""

# x * Phi(x) is max(x, 0) - |x| * Phi(-|x|), and the logarithm of Phi(-a) is smooth: fitted by weighted least squares on [0, 8],
# where it leaves a relative error of 3e-5; beyond, it falls on. Half of the arithmetic of an erf, and exact far below 0 too.
# Of -0.0 and -inf it makes -0.0 and NaN, as eager does.
GELU = """@triton.jit
def gelu_rounded(x, PTX: tl.constexpr):
    a = tl.minimum(tl.abs(x), 10.0, propagate_nan=tl.PropagateNan.ALL)
    p = tl.fma(a, -1.2624390137716546e-06, 4.820276808459312e-05)
    p = tl.fma(p, a, -0.0008072425844147801)
    p = tl.fma(p, a, 0.007944547571241856)
    p = tl.fma(p, a, -0.05263528972864151)
    p = tl.fma(p, a, -0.45995697379112244)
    p = tl.fma(p, a, -1.1506098508834839)
    p = tl.fma(p, a, -1.0000430345535278)
    y = tl.fma(-a, exp2_flushed(p, PTX), tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL))
    return tl.where(x == 0, x, tl.where(x == float("-inf"), float("nan"), y))
"""

# Phi(x) + x phi(x), with one exponential for both: Phi(-|x|) is half of 1 - erf(|x| / sqrt(2)), which ERF's formula gives as a product.
# The exponential is 2^64 times too large and its factors 2^64 times too small: so none that counts is subnormal.
GELU_BACKWARD = f"""@triton.jit
def gelu_backward_rounded(grad, x, PTX: tl.constexpr):
    t = reciprocal_flushed(tl.fma(tl.abs(x), 0.23164189, 1.0), PTX)
    e = exp2_flushed(tl.fma(x * -0.7213475204444817, x, 64.0), PTX)
    p = tl.fma(t, {0.5307027145 * 2**-64}, {-0.7265760135 * 2**-64})
    p = tl.fma(p, t, {0.7107068705 * 2**-64})
    p = tl.fma(p, t, {-0.142248368 * 2**-64})
    p = tl.fma(p, t, {0.127414796 * 2**-64})
    below = p * t * e
    return grad * tl.fma({0.3989422804 * 2**-64} * x, e, tl.where(x < 0, below, 1.0 - below))
"""

# Both terms are a quarter of what they are, and the exponential is infinite from 2^128 on: so no reciprocal that counts is subnormal.
SIGMOID = """@triton.jit
def sigmoid_rounded(x, PTX: tl.constexpr):
    e = exp2_flushed(tl.fma(x, -1.4426950408889634, -2.0), PTX)
    return 0.25 * reciprocal_flushed(0.25 + e, PTX)
"""
SILU = """@triton.jit
def silu_rounded(x, PTX: tl.constexpr):
    e = exp2_flushed(tl.fma(x, -1.4426950408889634, -2.0), PTX)
    return 0.25 * x * reciprocal_flushed(0.25 + e, PTX)
"""
SILU_BACKWARD = """@triton.jit
def silu_backward_rounded(grad, x, PTX: tl.constexpr):
    gate = sigmoid_rounded(x, PTX)
    return grad * gate * tl.fma(x, 1.0 - gate, 1.0)
"""

# Relative error 1e-5: of the exponentials' formula near 0.02, below which a tanh is its series' first two terms.
TANH = """@triton.jit
def tanh_rounded(x, PTX: tl.constexpr):
    a = tl.abs(x)
    y = 1.0 - 2.0 * reciprocal_flushed(1.0 + exp2_flushed(2.8853900818 * a, PTX), PTX)
    return tl.where(a < 0.02, x * (1.0 - x * x * 0.3333333333), libdevice.copysign(y, x))
"""


TEXTS = {
    "exp2_flushed": EXP2,
    "reciprocal_flushed": RECIPROCAL,
    "erf_beside_one": ERF,
    "gelu_rounded": GELU,
    "gelu_backward_rounded": GELU_BACKWARD,
    "tanh_rounded": TANH,
    "sigmoid_rounded": SIGMOID,
    "silu_rounded": SILU,
    "silu_backward_rounded": SILU_BACKWARD,
}


def writes_half(kernel: Kernel) -> bool:
    return kernel.feeds_half_only or all(output.access.dtype in HALF for output in kernel.outputs)


def is_beside_one(kernel: Kernel, node: Node) -> bool:
    """Whether an erf is only ever added to 1, as GELU's is: then its error need be small beside 1 only."""
    if node.kind != "erf":
        return False
    users = [n for n in kernel.nodes if node in n.operands]
    return (
        bool(users)
        and all(o.node is not node for o in kernel.outputs)
        and all(
            n.kind == "add" and any(x.kind == "constant" and x.attributes["value"] == 1.0 for x in n.operands)
            for n in users
        )
    )


class RoundedBuilder(TritonBuilder):
    """`/` and sqrt within 2 units in the last place, exp within 2^-22 for each unit of its argument, tanh within 1e-5.

    functions   the texts of those that the kernel calls, by name
    """

    def __init__(self, lines: Lines, dtype: torch.dtype, functions: dict[str, str]):
        super().__init__(lines, dtype)
        self.functions = functions

    def div(self, x: TritonValue, y: TritonValue) -> TritonValue:
        return self.infix("/", x, y) if x.dtype == torch.float32 else super().div(x, y)

    def sqrt(self, x: TritonValue) -> TritonValue:
        return self.call("tl.sqrt", x)

    def exp(self, x: TritonValue) -> TritonValue:
        return self.call("tl.exp" if x.dtype == torch.float32 else "libdevice.exp", x)

    def tanh(self, x: TritonValue) -> TritonValue:
        if x.dtype != torch.float32:
            return super().tanh(x)
        return self.rounded("tanh_rounded", x)

    def rounded(self, function: str, *operands: TritonValue) -> TritonValue:
        """A call of one of TEXTS."""
        self.add_function(function)
        return self.emit(f"{function}({', '.join(operands)}, {PTX})", operands[0].dtype, *operands)

    def add_function(self, name: str) -> None:
        """Adds a function's text, and those of the functions that it calls."""
        for other in TEXTS:
            if other != name and f"{other}(" in TEXTS[name]:
                self.add_function(other)
        self.functions[name] = TEXTS[name]


class ErfBesideOne(RoundedBuilder):
    """Scalar work whose erf is only added to 1, as `is_beside_one` says."""

    def erf(self, x: TritonValue) -> TritonValue:
        if x.dtype != torch.float32:
            return super().erf(x)
        return self.rounded("erf_beside_one", x)
