"""Faster functions for kernels that write half types alone, whose rounding hides an error of a few units in float32's last place."""

import torch

from mlirc.lowering.gpu.triton.builder import HALF, Lines, TritonBuilder, TritonValue
from mlirc.lowering.kernel.nodes import Kernel, Node

# Abramowitz and Stegun 7.1.26: error 1.5e-7 at most, which is not small beside erf(x) for a small x
ERF = """@triton.jit
def erf_beside_one(x):
    a = tl.abs(x)
    t = libdevice.fast_dividef(1.0, tl.fma(a, 0.3275911, 1.0))
    p = tl.fma(t, 1.061405429, -1.453152027)
    p = tl.fma(p, t, 1.421413741)
    p = tl.fma(p, t, -0.284496736)
    p = tl.fma(p, t, 0.254829592)
    return libdevice.copysign(tl.fma(-p * t, tl.exp(-a * a), 1.0), x)
"""

# x * Phi(x) is max(x, 0) - |x| * Phi(-|x|), and the logarithm of Phi(-a) is smooth: fitted by weighted least squares on [0, 8],
# where it leaves a relative error of 3e-5; beyond, it falls on. Half of the arithmetic of an erf, and exact far below 0 too.
# Of -0.0 and -inf it makes -0.0 and NaN, as eager does.
GELU = """@triton.jit
def gelu_rounded(x):
    a = tl.minimum(tl.abs(x), 10.0, propagate_nan=tl.PropagateNan.ALL)
    p = tl.fma(a, -1.2624390137716546e-06, 4.820276808459312e-05)
    p = tl.fma(p, a, -0.0008072425844147801)
    p = tl.fma(p, a, 0.007944547571241856)
    p = tl.fma(p, a, -0.05263528972864151)
    p = tl.fma(p, a, -0.45995697379112244)
    p = tl.fma(p, a, -1.1506098508834839)
    p = tl.fma(p, a, -1.0000430345535278)
    y = tl.fma(-a, tl.exp2(p), tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL))
    return tl.where(x == 0, x, tl.where(x == float("-inf"), float("nan"), y))
"""

# Phi(x) + x phi(x), with one exponential for both: Phi(-|x|) is half of 1 - erf(|x| / sqrt(2)), which ERF's formula gives as a product.
GELU_BACKWARD = """@triton.jit
def gelu_backward_rounded(grad, x):
    t = libdevice.fast_dividef(1.0, tl.fma(tl.abs(x), 0.23164189, 1.0))
    e = tl.exp(x * x * -0.5)
    p = tl.fma(t, 0.5307027145, -0.7265760135)
    p = tl.fma(p, t, 0.7107068705)
    p = tl.fma(p, t, -0.142248368)
    p = tl.fma(p, t, 0.127414796)
    below = p * t * e
    return grad * tl.fma(0.3989422804 * x, e, tl.where(x < 0, below, 1.0 - below))
"""

# Relative error 1e-5: of the exponentials' formula near 0.02, below which a tanh is its series' first two terms.
TANH = """@triton.jit
def tanh_rounded(x):
    a = tl.abs(x)
    y = 1.0 - 2.0 * libdevice.fast_dividef(1.0, 1.0 + tl.exp2(2.8853900818 * a))
    return tl.where(a < 0.02, x * (1.0 - x * x * 0.3333333333), libdevice.copysign(y, x))
"""


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
        self.functions["tanh_rounded"] = TANH
        return self.call("tanh_rounded", x)


class ErfBesideOne(RoundedBuilder):
    """Scalar work whose erf is only added to 1, as `is_beside_one` says."""

    def erf(self, x: TritonValue) -> TritonValue:
        if x.dtype != torch.float32:
            return super().erf(x)
        self.functions["erf_beside_one"] = ERF
        return self.call("erf_beside_one", x)
