"""Horizontal fusion of matmuls that share an input (Q, K and V of attention): `python examples/join_matmuls.py`.

One matmul by all three weights, side by side, reads the rows once. docs/tutorial.md builds this pass from nothing.
"""

from dataclasses import dataclass
from typing import Any

import torch

import mlirc
from mlirc.ir import TensorInfo, create, info_of, ir, type_of
from mlirc.passes import GraphBuilder, concatenate, may_move, move, register, unwritten_parameters, view_root


@register
@dataclass(frozen=True)
class JoinMatmuls:
    """Multiply by several parameters at once.

    before:  %q = "mlirc.addmm"(%bq, %x, %wq) : (tensor<768xf32>, tensor<256x768xf32>, ...) -> tensor<256x768xf32>
             %k = "mlirc.addmm"(%bk, %x, %wk)
    after:   %w = "mlirc.cat2"(the weights)   %b = "mlirc.cat2"(%bq, %bk)            of parameters alone: computed once
             %r = "mlirc.addmm"(%b, %x, %w) : tensor<256x1536xf32>
             %q, %k = views of its columns

    SAME ROWS         the first factor is the same value; the others are whole parameters, all transposed or none
    PROMISED STRIDES  a matmul that the graph returns keeps its strides, so it stays
    """

    name = "join-matmuls"
    takes = "graph"
    most: int = 4  # matmuls that become one

    def run(self, function: Any, ledger: Any) -> None:
        parameters = unwritten_parameters(function)
        groups: dict[tuple, list[Any]] = {}
        for op in function.regions[0].blocks[0].operations:
            if (key := group_of(op, parameters)) is not None:
                groups.setdefault(key, []).append(op)
        for members in groups.values():
            for start in range(0, len(members) - 1, self.most):  # a last one alone stays
                part = members[start : start + self.most]
                width = sum(info_of(op.results[0]).shape[1] for op in part)
                fits = all(may_move(op.results[0], (width, 1)) for op in part)
                taken = fits and ledger.allows(self.name, part[0])
                x, rule = info_of(rows_of(part[0])), "SAME ROWS" if fits else "PROMISED STRIDES"
                saved = {"bytes_saved": str((len(part) - 1) * x.shape[0] * x.shape[1] * x.dtype.itemsize)}
                ledger.record(self.name, "join", f"{len(part)} matmuls", rule, taken, part[0], **saved)
                if taken:
                    join(part)


def group_of(op: Any, parameters: set[ir.Value]) -> tuple | None:
    """Equal for matmuls that can become one; None for what is no matmul of rows by a whole parameter."""
    if op.operation.name not in ("mlirc.matmul", "mlirc.addmm"):
        return None
    *bias, x, w = op.operands
    root, info = view_root(w), info_of(w)
    whole, columns = info_of(root), info_of(op.results[0]).shape[-1]
    if info.rank != 2 or root not in parameters or not whole.is_contiguous or not isinstance(columns, int):
        return None
    if any(b not in parameters or info_of(b).shape != (columns,) for b in bias):
        return None
    transposed = whole.shape == info.shape[::-1] and info.stride == whole.stride[::-1]
    return (x, len(bias), info.dtype, transposed) if transposed or whole == info else None


def join(matmuls: list[Any]) -> None:
    """One matmul where the first is; the others' readers come after it, and so after theirs."""
    first = matmuls[0]
    count, x, info = len(first.operands), rows_of(first), info_of(first.results[0])
    weights = [view_root(op.operands[count - 1]) for op in matmuls]
    transposed = info_of(weights[0]) != info_of(first.operands[count - 1])
    widths = [info_of(op.results[0]).shape[1] for op in matmuls]
    with ir.InsertionPoint(first), first.location:
        g = GraphBuilder(info)
        w = concatenate(g, weights, 0 if transposed else 1)
        operands = [x, g.permute(w, [1, 0]) if transposed else w]
        if count == 3:
            operands.insert(0, concatenate(g, [op.operands[0] for op in matmuls], 0))
        result = TensorInfo(info.dtype, (info.shape[0], sum(widths)), device=info.device)
        joined = create(first.operation.name.removeprefix("mlirc."), operands, [type_of(result)]).out
        starts = [sum(widths[:k]) for k in range(len(widths))]
        columns = [g.narrow(joined, 1, start, width) for start, width in zip(starts, widths, strict=True)]
    for op, part in zip(matmuls, columns, strict=True):
        move(op.results[0], part)  # views of it get other strides
        op.operation.erase()  # after the list of matmuls was made


def rows_of(matmul: Any) -> ir.Value:
    return matmul.operands[len(matmul.operands) - 2]  # before it addmm has a bias


class Projections(torch.nn.Module):
    """Attention over 4 heads of 16."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x).unflatten(-1, (4, 16)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def main() -> tuple[float, list[dict[str, Any]]]:
    """The largest difference from eager, and the ledger's entries of the pass."""
    model, x = Projections().eval(), torch.randn(2, 32, 64)
    options = {"insert": {"after simplify": "join-matmuls"}, "fallback": "error"}
    with torch.no_grad():
        difference = torch.compile(model, backend="mlirc", options=options)(x) - model(x)
        ledger = mlirc.explain(model, options=options)(x).data["graphs"][0]["ledger"]
    return difference.abs().max().item(), [entry for entry in ledger if entry["pass_name"] == JoinMatmuls.name]


if __name__ == "__main__":
    print(main())
