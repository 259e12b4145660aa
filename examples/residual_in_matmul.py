"""A residual goes into the matmul before it, and the norm reads their sum: `python examples/residual_in_matmul.py`."""

from dataclasses import dataclass
from typing import Any

import torch

import mlirc
from mlirc.passes import Candidate, KernelFusion, register


@register
@dataclass(frozen=True)
class ResidualInMatmul:
    """Add a residual where the matmul's result is in registers.

    before:  %1 = kernel "matmul"(%h, %w)               what is fused greedily: the norm reads %1 and %x, and writes two tensors
             %2, %3 = kernel "add_layer_norm"(%1, %x)
    after:   %2 = kernel "matmul_add"(%h, %w, %x)
             %3 = kernel "layer_norm"(%2)               reads one, and writes one

    SAME ROWS     each point of the sum is one of the matmul (this rule, and all others that refuse, are the fusion passes')
    RESIDUAL      the second adds another tensor, as large as the matmul's result, and nothing else
    MATMULS STAY  the norm itself is no kernel with the matmul: it needs a whole row, of which a tile has a part
    """

    name = "residual-in-matmul"
    takes = "kernel"

    def run(self, function: Any, ledger: Any) -> None:
        fusion = KernelFusion(function, ledger, self.name)
        while pair := next((pair for pair in fusion.candidates() if is_residual(pair) and fusion.merge(pair)), None):
            del pair  # the kernels are others now
        fusion.write_back()


def is_residual(pair: Candidate) -> bool:
    adds = pair.second.ops == ["add"] and pair.second.read == 2 * pair.second.written
    return pair.kind == "" and pair.action == "fuse" and "matmul" in pair.first.name and adds


class Block(torch.nn.Module):
    """Two linear layers with their residuals, a norm between."""

    def __init__(self, norm: torch.nn.Module):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        self.norm = norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.first(x)
        return x + self.second(self.norm(x))


def main(norm: torch.nn.Module | None = None) -> tuple[float, list[str], int]:
    """The largest difference from eager, the kernels, and how many bytes fewer they read and write."""
    model, x = Block(norm or torch.nn.LayerNorm(64)).eval(), torch.randn(4, 32, 64)
    options = {"insert": {"before fuse-elementwise": "residual-in-matmul"}, "fallback": "error"}
    with torch.no_grad():
        difference = torch.compile(model, backend="mlirc", options=options)(x) - model(x)
        graphs = [mlirc.explain(model, options=o)(x).data["graphs"][0] for o in ({}, options)]
    greedy, fused = (int(graph["read"]) + int(graph["written"]) for graph in graphs)
    return difference.abs().max().item(), [k["name"] for k in graphs[1]["kernels"]], greedy - fused


if __name__ == "__main__":
    print(main())
    print(main(torch.nn.RMSNorm(64)))
