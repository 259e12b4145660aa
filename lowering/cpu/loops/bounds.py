"""Shorter scalar work where a kernel's structure bounds its values, as in a softmax:

before:  e = exp(x - max(x));            y = e / sum(e)
after:   e = exp_of_at_most_0(x - max);  y = e * (1 / sum(e))

x less its largest element is at most 0, so the exponential need not mind overflow. One of the terms of the sum is e^0: it is
at least 1, or NaN, so that its reciprocal is a normal number, computed once for a row.

GELU is x Phi(x), and Phi(x) is at most 1: its erf need not be accurate beside 0.
"""

import math
from typing import Any

import torch

from mlirc.dialects.core.dialect import OPS
from mlirc.lowering.cpu.math import erf as vector_math_erf
from mlirc.lowering.cpu.math import exp as vector_math_exp
from mlirc.lowering.kernel.axes import Vector
from mlirc.lowering.kernel.nodes import Kernel, Node


class ExpOfAtMostZero:
    """The op class of exp(x) for x <= 0."""

    computes = "float"
    cheap = False

    @staticmethod
    def scalar(b: Any, x: Any) -> Any:
        return vector_math_exp.exp_of_at_most_zero(b, x)


class SummedExpOfAtMostZero(ExpOfAtMostZero):
    """An exponential of at most 0 that only a softmax's sum reads. loops/fma_contraction.py uses `factors`."""

    factors = staticmethod(vector_math_exp.exp_factors)


class GeluOfFloats:
    """The op class of a GELU in float32."""

    computes = "float"
    cheap = False

    @staticmethod
    def scalar(b: Any, x: Any) -> Any:
        return b.mul(x, vector_math_erf.normal(b, x)) if vector_math_erf.has_normal(b) else OPS["gelu"].scalar(b, x)


class GeluBackwardOfFloats:
    """The op class of a GELU's gradient in float32: gradient * (Phi(y) + y e^(-y^2/2) / sqrt(2 pi))."""

    computes = "float"
    cheap = False

    @staticmethod
    def scalar(b: Any, x: Any, y: Any) -> Any:
        if not vector_math_erf.has_normal(b):
            return OPS["gelu_backward"].scalar(b, x, y)
        power = vector_math_exp.exp_of_at_most_zero(b, b.mul(b.mul(y, y), b.constant(-0.5)))
        density = b.mul(b.constant(1 / math.sqrt(2 * math.pi)), power)
        return b.mul(x, b.add(vector_math_erf.normal(b, y), b.mul(y, density)))


def use_bounds(kernel: Kernel, vector: Vector) -> None:
    """Gives nodes cheaper classes where their operands' bounds allow it, after vectors are chosen: a division whose divisor differs
    from lane to lane stays a division."""
    lanes = vector.axis.name if vector.axis else ""
    nodes: list[Node] = []
    users = users_of(kernel)
    for node in kernel.nodes:
        if node.dtype == torch.float32 and node.kind == "exp" and is_at_most_zero(node.operands[0]):
            only_summed = all(user is not None and is_at_least_one(user) for user in users[node])
            node.cls = SummedExpOfAtMostZero if only_summed else ExpOfAtMostZero
        elif node.dtype == torch.float32 and node.kind == "gelu":
            node.cls = GeluOfFloats
        elif node.dtype == torch.float32 and node.kind == "gelu_backward":
            node.cls = GeluBackwardOfFloats
        elif node.dtype == torch.float32 and node.kind == "div":
            x, y = node.operands
            if is_at_least_one(y) and lanes not in y.dims and node.dims != y.dims:
                inverse = Node("reciprocal", y.dtype, (y,), OPS["reciprocal"], dims=y.dims, depth=y.depth)
                nodes.append(inverse)
                node.kind, node.cls, node.operands = "mul", OPS["mul"], (x, inverse)
        nodes.append(node)
    kernel.nodes = nodes


def users_of(kernel: Kernel) -> dict[Node, list[Node | None]]:
    """The nodes that read each node; None for an output."""
    found: dict[Node, list[Node | None]] = {node: [] for node in kernel.nodes}
    for node in kernel.nodes:
        for operand in node.operands:
            found[operand].append(node)
    for output in kernel.outputs:
        found[output.node].append(None)
    return found


def is_at_most_zero(node: Node) -> bool:
    """x - max(x), or NaN."""
    if node.kind != "sub":
        return False
    x, largest = node.operands
    return largest.kind == "reduce" and largest.attributes["kind"] == "max" and largest.operands[0] is x


def is_at_least_one(node: Node) -> bool:
    """A sum of e^(x - max(x)), or NaN."""
    summed = node.kind == "reduce" and node.attributes["kind"] == "sum"
    return summed and node.operands[0].kind == "exp" and is_at_most_zero(node.operands[0].operands[0])
