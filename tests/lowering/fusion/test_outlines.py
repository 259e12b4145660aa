"""Outlines: a pair of kernels like an earlier one becomes what it would have become by itself."""

from functools import partial
from random import Random

import pytest
import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.fusion import pairs
from mlirc.lowering.fusion.body import read_body
from mlirc.lowering.fusion.outlines import Outlines
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.pipeline.pipelines import SIMPLIFY
from tests.compare_stages import prepare
from tests.property.random_programs import random_program

FUSE = "to-kernels,fuse-elementwise,fuse-reductions,fuse-horizontally,canonicalize,cse,eliminate-dead"


def fused(text: str) -> str:
    """With source lines, which each node keeps from the pair that it is of."""
    module = ir.Module.parse(text)
    run_pipeline(module, f"{SIMPLIFY},{FUSE}", verify=False)
    return module.operation.get_asm(enable_debug_info=True)


def lines_apart(text: str) -> str:
    """Another source line for each op."""
    ops = enumerate(text.split("\n"))
    return "\n".join(f'{op[: op.rindex("loc(")]}loc("x.py":{k}:1)' if op.strip()[:1] == "%" else op for k, op in ops)


def repeated(seed: int) -> str:
    """A program three times: on its inputs, on others, and on some of both."""
    program, inputs = random_program(Random(seed), 14)
    others = [x.clone() for x in inputs]

    def thrice(*given):
        first, second = given[: len(inputs)], given[len(inputs) :]
        mixed = [a if k % 2 else b for k, (a, b) in enumerate(zip(first, second, strict=True))]
        return [*program(*first), *program(*second), *program(*mixed)]

    _, imported = prepare(thrice, *inputs, *others, dynamic=seed % 3 == 0)
    return lines_apart(imported.module.operation.get_asm(enable_debug_info=True, use_local_scope=True))


def almost_alike() -> str:
    """Pairs that differ in one thing: whether a result is returned too, which operands are one tensor, how a view lies in what is read."""

    def program(x, y, z, w):
        kept = torch.exp(y + 1)
        return [
            *(torch.tanh(torch.exp(x + 1)) / 2, torch.tanh(kept) / 2, kept),
            *(torch.exp(z * 3) / y, torch.exp(z * 3 + y) / y, torch.exp(w * 3) / w),
            *(torch.exp(v + 2).permute(p) / x for v, p in ((x, (1, 0, 2)), (y, (0, 2, 1)), (z, (2, 0, 1)))),
        ]

    _, imported = prepare(program, *(torch.rand(5, 5, 5) for _ in range(4)))
    return lines_apart(imported.module.operation.get_asm(enable_debug_info=True, use_local_scope=True))


@pytest.mark.parametrize("text", [*(partial(repeated, seed) for seed in range(6)), almost_alike])
def test_it_is_what_each_pair_becomes_by_itself(text, monkeypatch):
    with context():
        given = text()
        alike = fused(given)
        monkeypatch.setattr(Outlines, "merge", lambda self, merge, compares, *pair: merge(*pair))
        monkeypatch.setattr(
            Outlines, "read", lambda self, kernel, operands, outputs, made_of: read_body(kernel, operands, outputs)
        )
        assert fused(given) == alike


def test_equal_layers_are_merged_once(monkeypatch):
    tried, merged_body = [], pairs.merged_body
    monkeypatch.setattr(pairs, "merged_body", lambda *pair: tried.append(pair) or merged_body(*pair))

    def layers(x, *weights):
        for w in weights:
            x = torch.softmax(torch.tanh(x @ w) * x + 1, -1)
        return [x]

    counts = []
    with context():
        for n in (3, 12):
            tried.clear()
            _, imported = prepare(layers, torch.rand(8, 16), *[torch.rand(16, 16) for _ in range(n)])
            run_pipeline(imported.module, f"{SIMPLIFY},{FUSE}", verify=False)
            counts.append(len(tried))
    assert counts[0] == counts[1] > 0
