"""Attention's scores are scaled and masked by the matmul that makes them: `python examples/mask_in_scores.py`."""

from dataclasses import dataclass
from typing import Any

import torch

import mlirc
from mlirc.ir import info_of
from mlirc.passes import Candidate, KernelFusion, make_matmul_kernel, register

EPILOGUE = ("mlirc.mul", "mlirc.div", "mlirc.add", "mlirc.sub", "mlirc.select", "mlirc.cast", "mlirc.view")


@register
@dataclass(frozen=True)
class ScoresToKernels:
    """Make the matmul of scores a kernel, where it would be a library call that takes no epilogue.

    before:  %s = "mlirc.matmul"(%q, %k)    %1 = "mlirc.mul"(%s, %scale)    %2 = "mlirc.add"(%1, %mask)    %3 = "mlirc.amax"(%2)
    after:   %s = kernel "scores"(%q, %k)   the rest is the same

    SCORES       a softmax along the last dimension (its largest element) reads what scales and masks make of the matmul's result
    READ TWICE   something else reads the scores, or what was made of them
    """

    name = "scores-to-kernels"
    takes = "graph"

    def run(self, function: Any, ledger: Any) -> None:
        matmuls = [op for op in function.regions[0].blocks[0].operations if op.operation.name == "mlirc.matmul"]
        for op in matmuls:
            rule = rule_of(op.results[0])
            taken = rule == "SCORES" and ledger.allows(self.name, op)
            if rule:
                ledger.record(self.name, "generate", "matmul", rule, taken, op)
            if taken:
                make_matmul_kernel(op, "scores")


def rule_of(scores: Any) -> str:
    """SCORES, READ TWICE, or "" for a matmul that is followed by no scale, mask and softmax."""
    steps, rank = 0, info_of(scores).rank
    while len(users := [use.owner for use in scores.uses]) == 1 and users[0].operation.name in EPILOGUE:
        steps += users[0].operation.name not in ("mlirc.view", "mlirc.cast")
        scores = users[0].operation.results[0]
    names = [user.operation.name for user in users]
    reduced = [str(user.operation.attributes["dims"]) for user in users if user.operation.name == "mlirc.amax"]
    if not steps or rank != 3 or reduced != [f'"{info_of(scores).rank - 1}"']:
        return ""
    return "SCORES" if sorted(names) == ["mlirc.amax", "mlirc.sub"] else "READ TWICE"


@register
@dataclass(frozen=True)
class MaskInScores:
    """Scale and mask scores where the matmul has them in registers.

    before:  kernels "scores"(%q, %k), "mul"(%s), "add"(%1, %mask); what is fused greedily: the softmax does both
    after:   kernel "scores_mul_add"(%q, %k, %mask)

    SAME ROWS   each point of the second is one of the matmul (this rule, and those that refuse, are the fusion passes')
    """

    name = "mask-in-scores"
    takes = "kernel"

    def run(self, function: Any, ledger: Any) -> None:
        fusion = KernelFusion(function, ledger, self.name)
        while pair := next((pair for pair in fusion.candidates() if is_step(pair) and fusion.merge(pair)), None):
            del pair  # the kernels are others now
        fusion.write_back()


def is_step(pair: Candidate) -> bool:
    steps = all(f"mlirc.{op}" in EPILOGUE for op in pair.second.ops) and not pair.second.inner
    return pair.kind == "" and pair.action == "fuse" and "scores" in pair.first.name and steps


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    scores = scores + mask if mask.is_floating_point() else scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


INSERT = {"before generate-matmuls": "scores-to-kernels", "before fuse-elementwise": "mask-in-scores"}


def main(*arguments: torch.Tensor) -> tuple[torch.Tensor, list[str], dict[str, int]]:
    """What the compiled attention gives, its kernels, and how many rewrites each pass took."""
    options = {"insert": INSERT, "fallback": "error"}
    taken: dict[str, int] = {"scores-to-kernels": 0, "mask-in-scores": 0}
    with torch.no_grad():
        result = torch.compile(attention, backend="mlirc", options=options)(*arguments)
        graph = mlirc.explain(attention, options=options)(*arguments).data["graphs"][0]
    for entry in graph["ledger"]:
        if entry["taken"] and entry["pass_name"] in taken:
            taken[entry["pass_name"]] += 1
    return result, [kernel["name"] for kernel in graph["kernels"]], taken


if __name__ == "__main__":
    print(main(*torch.randn(3, 2, 4, 33, 16), torch.ones(33, 33).tril().log()))
