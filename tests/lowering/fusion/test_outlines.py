"""Outlines: a pair of kernels like an earlier one becomes what it would have become by itself."""

from functools import partial
from random import Random

import pytest
import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.lowering.fusion import graph, pairs
from mlirc.lowering.fusion.body import read_body
from mlirc.lowering.fusion.outlines import Outlines
from mlirc.lowering.kernel.alike import AlikeKernels
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


@pytest.mark.thinned(4)
@pytest.mark.parametrize("text", [*(partial(repeated, seed) for seed in range(6)), almost_alike])
def test_it_is_what_each_pair_becomes_by_itself(text, monkeypatch):
    with context():
        given = text()
        alike = fused(given)
        monkeypatch.setattr(Outlines, "merge", lambda self, merge, compares, *pair: merge(*pair))
        monkeypatch.setattr(
            Outlines, "read", lambda self, kernel, operands, outputs, made_of: read_body(kernel, operands, outputs)
        )
        monkeypatch.setattr(graph, "copy_kernel", lambda kernel, body, location: graph.write_body(body, location))
        assert fused(given) == alike


def computed_in_kernels() -> str:
    """Ops of numbers, positions, casts, copies and reductions, alike but for one thing: a number, a shape, which operand it is, a cast."""

    def program(x, y, n):
        with x.fake_mode:
            ramp, row, full = torch.arange(5), torch.arange(4) * 2, torch.full((4,), 2.0)
        return [
            *(x + 1, y + 1, x + 2, x - 1, 1 - x, x + n, n + x, x + n * n, x + x, x + y, y + x, x[:, 0] + 1),
            *(
                x + ramp[:, None],
                x + ramp.flip(0)[:, None],
                x + row,
                y + row,
                x[:4] + row[:, None],
                x * ramp.float()[:, None],
            ),
            *(torch.where(x > 0, x, y), torch.where(y > 0, y, x), torch.where(x > 0, y, x), torch.where(x > 0, x, x)),
            *(x.double(), y.double(), x.int(), (x.double() + 1).float(), x.t().contiguous(), y.t().contiguous()),
            *(
                x.sum(0),
                y.sum(0),
                x.sum(1),
                x.sum(0, keepdim=True),
                x.sum(0, dtype=torch.float64),
                x.amax(0),
                x.argmax(0),
            ),
            *(x.max(0).values, y.max(0).values, 1 / y.max(0).values, full + y[0], ramp + 1),
        ]

    _, imported = prepare(program, torch.rand(5, 4), torch.rand(5, 4), torch.tensor(2.0))
    return lines_apart(imported.module.operation.get_asm(enable_debug_info=True, use_local_scope=True))


@pytest.mark.parametrize("text", [partial(repeated, 3), almost_alike, computed_in_kernels])
def test_copied_kernels_are_those_that_would_be_built(text, monkeypatch):
    with context():
        given = text()
        copied = fused(given)
        monkeypatch.setattr(AlikeKernels, "key", lambda self, form, op: None)
        assert fused(given) == copied


def test_equal_ops_are_built_once(monkeypatch):
    built, finish = [], KernelBuilder.finish
    monkeypatch.setattr(KernelBuilder, "finish", lambda k, results: built.append(k) or finish(k, results))

    def layers(x, *weights):
        for w in weights:
            x = ((x * w).double().sum(-1, keepdim=True) + 1).float() + x.t()
        return [x]

    counts = []
    with context():
        for n in (3, 12):
            built.clear()
            _, imported = prepare(layers, torch.rand(8, 8), *[torch.rand(8, 8) for _ in range(n)])
            run_pipeline(imported.module, "to-kernels", verify=False)
            counts.append(len(built))
    assert counts[0] == counts[1] > 0


def test_a_number_at_the_end_of_a_long_chain():
    """A 0-d op may be computed where it is used if sizes decide it: nobody follows thousands of ops to see that, for each of them."""
    ops = "\n".join(f'%x{k + 1} = "mlirc.sin"(%x{k}) : (tensor<f32>) -> tensor<f32>' for k in range(3000))
    text = f"func.func @graph(%x0: tensor<f32>) -> tensor<f32> {{ {ops} return %x3000 : tensor<f32> }}"
    with context():
        module = ir.Module.parse(text)
        run_pipeline(module, "to-kernels", verify=False)
        assert module.operation.get_asm().count("mlircx.kernel") == 3000


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
