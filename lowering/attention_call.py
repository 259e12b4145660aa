"""What an attention call at memory level asks for, and which calls kernels of our own are written for (attention_function.py)."""

from dataclasses import dataclass
from typing import Any

import torch

from mlirc.dialects import symbols
from mlirc.dialects.dialect import attribute_value
from mlirc.dialects.ops.attention import CAUSAL, may_match
from mlirc.dialects.symbols import Int
from mlirc.dialects.tensor_types import TensorInfo, info_of, opmath
from mlirc.lowering.kernel_verifier import expect, text_attribute

MOST_HEAD = 256  # elements of a head: scratch for a block of queries lies on a thread's stack
DTYPES = (torch.float32, torch.bfloat16)


@dataclass(frozen=True)
class Attention:
    """softmax(scale * q @ k^T + mask) @ v for each head, the sum of each row's powers as `lse`.

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
        found: set[str] = set()
        for info in (self.q, self.k, self.v, self.mask, self.out, self.lse):
            for size in (*info.shape, *info.stride) if info else ():
                found |= symbols.free_symbols(size)
        return sorted(found)


def read_attention(op: Any) -> Attention:
    """The Attention of a `mlirc.attention`, or of a call or run of one: operands and results in the same order."""
    infos = [info_of(x) for x in (*op.operands, *op.results)]
    mask = infos[3] if len(infos) == 6 else None
    scale, causal = (attribute_value(op.attributes[name]) for name in ("scale", "causal"))
    q, k, v, *_, out, lse = infos
    return Attention(q, k, v, mask, out, lse, scale, causal)


def refusal(a: Attention) -> str:
    """Why our kernels do not cover the call, or ""."""
    if a.q.dtype not in DTYPES:
        return "FLOAT32 OR BFLOAT16"
    if {a.q.device, a.k.device, a.v.device} != {"cpu"}:
        return "CPU"
    if not all(isinstance(n, int) and n <= MOST_HEAD for n in (a.q.shape[3], a.v.shape[3])):
        return "HEAD SIZE"
    heads, shared = a.q.shape[1], a.k.shape[1]
    if heads != shared and not (isinstance(heads, int) and isinstance(shared, int)):
        return "STATIC HEADS"
    if a.out.stride[3] != 1:
        return "ROWS SIDE BY SIDE"
    return ""


def verify_attention(op: Any) -> None:
    """Raises StageError where operands, results and attributes do not belong together."""
    count = len(op.operands) + len(op.results)
    expect(count in (5, 6), op, f"{count} operands and results", "q, k, v, a mask or none, the result and lse")
    causal = text_attribute(op, "causal")
    expect(causal in CAUSAL, op, f"causal = {causal!r}", f"one of {', '.join(CAUSAL)}")
    scale = attribute_value(op.attributes["scale"]) if "scale" in op.attributes else None
    expect(isinstance(scale, float), op, "no scale", "a floating-point number")
    a = read_attention(op)
    ranks = {x.rank for x in (a.q, a.k, a.v, a.out, a.mask or a.q)}
    expect(ranks == {4}, op, f"ranks {sorted(ranks)}", "view them with four dimensions")
    batch, heads, rows, head = a.q.shape
    shared, keys, values = a.k.shape[1], a.k.shape[2], a.v.shape[3]
    expect(a.k.shape == (batch, shared, keys, head), op, f"keys {a.k.shape} for {a.q.shape}", "[B, G, S, D]")
    expect(may_match(a.k, a.v), op, f"values {a.v.shape} for {a.k.shape}", "[B, G, S, Dv]")
    whole = heads == shared or (isinstance(heads, int) and isinstance(shared, int) and shared and heads % shared == 0)
    expect(bool(whole), op, f"{heads} heads share {shared}", "as many, or a multiple")
    expect(a.out.shape == (batch, heads, rows, values), op, f"a result {a.out.shape}", "[B, H, L, Dv]")
    expect(a.lse.shape == (batch, heads, rows), op, f"lse {a.lse.shape}", "[B, H, L]")
    expect(len({x.dtype for x in (a.q, a.k, a.v, a.out)}) == 1, op, "several dtypes", "cast q, k and v")
    expect(a.lse.dtype == opmath(a.q.dtype), op, f"lse in {a.lse.dtype}", f"it is {opmath(a.q.dtype)}")
    if a.mask:
        fits = all(n in (1, m) for n, m in zip(a.mask.shape, (batch, heads, rows, keys), strict=True))
        expect(fits, op, f"a mask {a.mask.shape}", "sizes 1, or those of [B, H, L, S]")
