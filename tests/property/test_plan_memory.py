"""plan-memory on random graphs: no two live buffers overlap, and the program computes what it computed before."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlirc.dialects.core import symbols
from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.interpreter import run
from mlirc.lowering.memory.arena_layout import ArenaBlock, lay_out, live_peak
from mlirc.lowering.passes.plan.plan_memory import PlanMemory
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.verify.plan import check_plan
from mlirc.lowering.verify.stage import verify_stage
from tests.property.random_graphs import RandomGraph

SIZES = ({"s0": 0, "s1": 1}, {"s0": 1, "s1": 0}, {"s0": 7, "s1": 2}, {"s0": 16, "s1": 40})
seeds = st.integers(0, 2**32)
quick = settings(deadline=None, derandomize=True, database=None)


@settings(quick, max_examples=250)
@given(seeds, st.integers(1, 24), st.booleans())
def test_no_two_live_buffers_overlap(seed: int, op_count: int, symbolic: bool):
    with context():
        graph = RandomGraph(seed, op_count, symbolic)
        PlanMemory().run(graph.function, Ledger())
        graph.module.operation.verify()
        for sizes in SIZES if symbolic else SIZES[:1]:
            check_plan(graph.function, sizes)


@settings(quick, max_examples=100)
@given(seeds, st.integers(1, 16), st.booleans(), st.sampled_from(SIZES), st.booleans())
def test_the_planned_program_computes_the_same(seed, op_count, symbolic, sizes, reuse):
    with context():
        graph = RandomGraph(seed, op_count, symbolic)
        verify_stage(graph.function, "kernel")
        inputs = graph.inputs(sizes)
        before = [clone(x) for x in inputs]
        expected = [clone(x) for x in run(graph.function, before)]
        PlanMemory(reuse).run(graph.function, Ledger())
        verify_stage(graph.function, "memory")
        found = run(graph.function, inputs)
    for ours, wanted in zip([*found, *inputs], [*expected, *before], strict=True):
        assert ours.stride() == wanted.stride()
        torch.testing.assert_close(ours, wanted, rtol=0, atol=0, equal_nan=True)


def clone(x: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, also where elements share memory."""
    extent = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    flat = x.as_strided((extent,), (1,)).clone()
    return flat.as_strided(x.shape, x.stride())


@st.composite
def blocks(draw) -> list[ArenaBlock]:
    units = st.sampled_from([1, symbols.symbol("s0"), symbols.parse("s0*s1"), symbols.parse("s1 + 1")])
    made = []
    for _ in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 8))
        size = draw(units) * draw(st.integers(0, 300))
        made.append(ArenaBlock(size, start, start + draw(st.integers(0, 5))))
    return made


@settings(quick, max_examples=300)
@given(blocks(), st.sampled_from(SIZES))
def test_the_layout_keeps_blocks_apart(laid: list[ArenaBlock], sizes: dict[str, int]):
    arena = symbols.evaluate(lay_out(laid), sizes)
    assert live_peak(laid) <= arena
    spans = []
    for block in laid:
        first = symbols.evaluate(block.offset, sizes)
        span = (first, first + symbols.evaluate(block.size, sizes), block.start, block.end)
        assert span[0] % 64 == 0 and span[1] <= arena
        for other in spans:
            apart = span[1] <= other[0] or other[1] <= span[0] or span[3] < other[2] or other[3] < span[2]
            assert apart or span[0] == span[1] or other[0] == other[1]
        spans.append(span)


def test_a_long_thin_block_takes_little_more_than_its_bytes():
    laid = [
        ArenaBlock(symbols.parse("4*s0"), 0, 1),
        ArenaBlock(symbols.parse("4*s0"), 1, 2),
        ArenaBlock(symbols.parse("4*s0"), 2, 3),
    ]
    assert symbols.evaluate(lay_out(laid), {"s0": 1000}) == 2 * 4 * 1024


def test_the_layout_is_tight_for_a_chain():
    """Two live at a time, the largest two are neighbours: the arena is those two."""
    sizes = [64, 128, 1024, 2048, 512, 64, 1024]
    chain = [ArenaBlock(size, k, k + 1) for k, size in enumerate(sizes)]
    assert lay_out(chain) == live_peak(chain) == 3072
