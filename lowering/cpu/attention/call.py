"""Describes an attention call at the memory level, and decides whether a kernel of ours computes it (attention/function.py)."""

from dataclasses import replace
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, opmath
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.nn.attention import CAUSAL, may_match, shares_heads
from mlirc.lowering.cpu.attention.coverage import uncovered
from mlirc.lowering.module.rules import expect, text_attribute


@dataclass(frozen=True)
class AttentionProblem:
    """softmax(scale * q @ k^T + mask) @ v for each head, the sum of each row's exponentials as `lse`.

    q [B, H, L, D], k [B, G, S, D], v [B, G, S, Dv], out [B, H, L, Dv], lse [B, H, L] float32; G divides H.
    mask    None, or [B or 1, H or 1, L or 1, S or 1]: booleans (true: seen), or numbers to add
    causal  "none"; "upper_left": query i sees the keys up to i; "lower_right": up to i + S - L
    """

    q: TensorInfo
    k: TensorInfo
    v: TensorInfo
    mask: TensorInfo | None
    out: TensorInfo
    lse: TensorInfo
    scale: float
    causal: str

    @property
    def diagonal(self) -> Int:
        """Query i sees the keys up to i + diagonal."""
        return self.k.shape[2] - self.q.shape[2] if self.causal == "lower_right" else 0

    @property
    def group(self) -> int:
        """Heads of the query that share one of the keys'."""
        heads, shared = self.q.shape[1], self.k.shape[1]
        return 1 if heads == shared else heads // shared  # type: ignore[return-value]  # refusal() sees to it

    @property
    def symbols(self) -> list[str]:
        return symbols_of(self.q, self.k, self.v, self.mask, self.out, self.lse)


@dataclass(frozen=True)
class Gradients:
    """The gradients dq, dk and dv, like q, k and v, of an attention whose result has the gradient dout [B, H, L, Dv].

    work    [B, H, L, 1] float32, scratch: the sum of dout * out of each row. In half types [B, H, L, 1 + D]: then dq's sums
    """

    call: AttentionProblem
    dout: TensorInfo
    dq: TensorInfo
    dk: TensorInfo
    dv: TensorInfo
    work: TensorInfo

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """The types of the operands and then of the results, by name, in the order of a call."""
        a = self.call
        read = {"dout": self.dout, "q": a.q, "k": a.k, "v": a.v, "out": a.out, "lse": a.lse}
        mask = {"mask": a.mask} if a.mask else {}
        return read | mask | {"dq": self.dq, "dk": self.dk, "dv": self.dv, "work": self.work}

    @property
    def symbols(self) -> list[str]:
        return symbols_of(*self.tensors.values())


def symbols_of(*infos: TensorInfo | None) -> list[str]:
    found: set[str] = set()
    for info in infos:
        for size in (*info.shape, *info.stride) if info else ():
            found |= symbols.free_symbols(size)
    return sorted(found)


def read_attention(op: Any) -> AttentionProblem:
    """The Attention of a `mlirc.attention`, or of a call or run of one: operands and results in the same order."""
    infos = [info_of(x) for x in (*op.operands, *op.results)]
    mask = infos[3] if len(infos) == 6 else None
    scale, causal = (attribute_value(op.attributes[name]) for name in ("scale", "causal"))
    q, k, v, *_, out, lse = infos
    return AttentionProblem(q, k, v, mask, out, lse, scale, causal)


def read_gradients(op: Any) -> Gradients:
    """The Gradients of a `mlirc.attention_backward`, or of a call of one."""
    dout, q, k, v, out, lse, *rest = (info_of(x) for x in (*op.operands, *op.results))
    mask = rest.pop(0) if len(rest) == 5 else None
    scale, causal = (attribute_value(op.attributes[name]) for name in ("scale", "causal"))
    return Gradients(AttentionProblem(q, k, v, mask, out, lse, scale, causal), dout, *rest)


def refusal(a: AttentionProblem) -> str:
    """Why our kernels do not cover the call, or ""."""
    if {a.q.device, a.k.device, a.v.device} != {"cpu"}:
        return "CPU"
    rule = uncovered(a.q.dtype, a.q.shape[1], a.k.shape[1], a.q.shape[3], a.v.shape[3])
    return rule or ("ROWS SIDE BY SIDE" if a.out.stride[3] != 1 else "")


def aten_takes(a: AttentionProblem) -> bool:
    """Whether ATen's kernel for the CPU computes the call. It takes numbers of the query's dtype or float32 as a mask."""
    mask = a.mask is None or a.mask.dtype in (a.q.dtype, torch.float32)
    return mask and a.causal != "lower_right" and a.q.shape[3] == a.v.shape[3]


def backward_refusal(g: Gradients) -> str:
    """Why our kernels do not cover the gradients, or ""."""
    if any(x.stride[3] != 1 for x in (g.dq, g.dk, g.dv)):
        return "ROWS SIDE BY SIDE"
    return refusal(replace(g.call, out=g.dq))


def verify_attention(op: Any) -> None:
    """Raises StageError where operands, results and attributes do not belong together."""
    count = len(op.operands) + len(op.results)
    expect(count in (5, 6), op, f"{count} operands and results", "q, k, v, a mask or none, the result and lse")
    verify_attributes(op)
    verify_infos(op, read_attention(op))


def verify_backward(op: Any) -> None:
    """Raises StageError where operands, results and attributes do not belong together."""
    count, wanted = len(op.operands) + len(op.results), "dout, q, k, v, out, lse, a mask or none, dq, dk, dv and work"
    expect(count in (10, 11), op, f"{count} operands and results", wanted)
    verify_attributes(op)
    g = read_gradients(op)
    verify_infos(op, g.call)
    for x, like in ((g.dout, g.call.out), (g.dq, g.call.q), (g.dk, g.call.k), (g.dv, g.call.v)):
        expect((x.shape, x.dtype) == (like.shape, like.dtype), op, f"{x.shape} for {like.shape}", "a gradient is alike")
    q = g.call.q
    head = q.shape[3] if opmath(q.dtype) != q.dtype else 0
    expect(g.work.shape == (*q.shape[:3], 1 + head), op, f"work {g.work.shape}", "[B, H, L, 1], or 1 + D in half types")
    expect(g.work.dtype == opmath(q.dtype), op, f"work in {g.work.dtype}", f"it is {opmath(q.dtype)}")
    read = len(op.results) == 4 and any(True for _ in op.results[3].uses)  # ATen's gradients have none
    expect(not read, op, "its scratch is read", "use the gradients alone")


def verify_attributes(op: Any) -> None:
    causal = text_attribute(op, "causal")
    expect(causal in CAUSAL, op, f"causal = {causal!r}", f"one of {', '.join(CAUSAL)}")
    scale = attribute_value(op.attributes["scale"]) if "scale" in op.attributes else None
    expect(isinstance(scale, float), op, "no scale", "a floating-point number")


def verify_infos(op: Any, a: AttentionProblem) -> None:
    ranks = {x.rank for x in (a.q, a.k, a.v, a.out, a.mask or a.q)}
    expect(ranks == {4}, op, f"ranks {sorted(ranks)}", "view them with four dimensions")
    batch, heads, rows, head = a.q.shape
    shared, keys, values = a.k.shape[1], a.k.shape[2], a.v.shape[3]
    expect(a.k.shape == (batch, shared, keys, head), op, f"keys {a.k.shape} for {a.q.shape}", "[B, G, S, D]")
    expect(may_match(a.k, a.v), op, f"values {a.v.shape} for {a.k.shape}", "[B, G, S, Dv]")
    expect(shares_heads(a.q, a.k), op, f"{heads} heads share {shared}", "as many, or a multiple")
    expect(a.out.shape == (batch, heads, rows, values), op, f"a result {a.out.shape}", "[B, H, L, Dv]")
    expect(a.lse.shape == (batch, heads, rows), op, f"lse {a.lse.shape}", "[B, H, L]")
    expect(len({x.dtype for x in (a.q, a.k, a.v, a.out)}) == 1, op, "several dtypes", "cast q, k and v")
    expect(a.lse.dtype == opmath(a.q.dtype), op, f"lse in {a.lse.dtype}", f"it is {opmath(a.q.dtype)}")
    if a.mask:
        fits = all(n in (1, m) for n, m in zip(a.mask.shape, (batch, heads, rows, keys), strict=True))
        expect(fits, op, f"a mask {a.mask.shape}", "sizes 1, or those of [B, H, L, S]")
