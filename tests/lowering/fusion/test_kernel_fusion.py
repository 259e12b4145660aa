"""KernelFusion: what a pass of anybody's merges is right and recorded, and what it attempts can be taken back."""

from dataclasses import dataclass
from random import Random

import pytest
import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.interpreter import run
from mlirc.lowering.fusion import cost
from mlirc.lowering.fusion.body import nodes_below
from mlirc.lowering.fusion.graph import FusionGraph
from mlirc.lowering.fusion.kernel_fusion import KernelFusion
from mlirc.lowering.pipeline.fusion_log import FusionLog
from mlirc.lowering.pipeline.fusion_plan import FusionPlan
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.pipeline.pass_manager import PipelineRun, passes, run_pipeline
from mlirc.lowering.pipeline.pipelines import SIMPLIFY
from mlirc.lowering.pipeline.rewrites import Rewrites, parse_limits
from tests.compare_stages import compare, prepare
from tests.lowering.fusion.test_fusion_records import NAMES, copy, kernels_of_programs
from tests.lowering.fusion.test_fusion_records import sizes as work
from tests.property.random_programs import as_promised, random_program


def moved(fusion):
    return sum(group.read + group.written for group in fusion.groups())


def mergeable(fusion):
    return [pair for pair in fusion.candidates() if pair.kind != "legal"]


def shown(fusion):
    return fusion.groups(), fusion.candidates(), fusion.tensors()


def functions():
    for module in kernels_of_programs():
        yield from ((module, function) for function in module.body.operations)


def test_what_is_attempted_is_taken_back():
    attempts, random = 0, Random(0)
    with context():
        for module, function in functions():
            fusion, text = KernelFusion(function, Ledger(), "any"), str(module)
            before = shown(fusion)
            for most in (3, 1):
                made = 0
                while made < most and (ways := mergeable(fusion)):
                    pair, bytes_before = random.choice(ways), moved(fusion)
                    fusion.attempt(pair)
                    assert bytes_before - moved(fusion) == pair.bytes_saved
                    made += 1
                for _ in range(made):
                    fusion.undo()
                assert shown(fusion) == before
                attempts += made
            fusion.write_back()
            assert str(module) == text
    assert attempts > 20


def test_a_merged_kernel_has_its_nodes_once_and_in_order():
    merged, random = 0, Random(2)
    with context():
        for _, function in functions():
            fusion = KernelFusion(function, Ledger(), "any")
            while ways := mergeable(fusion):
                fusion.attempt(random.choice(ways))
                merged += 1
            for node in fusion.graph.kernels():
                nodes = node.body.nodes
                assert nodes == nodes_below([result.node for result in node.body.results])
                assert len({one.key for one in nodes}) == len(nodes)
    assert merged > 20


def test_what_is_merged_is_recorded_and_written_back():
    merged, random = 0, Random(1)
    with context():
        for module, function in functions():
            log, before = FusionLog(), work(module)
            fusion = KernelFusion(function, Ledger(fusion=log), "any")
            while ways := mergeable(fusion):
                assert fusion.merge(random.choice(ways))
            left = moved(fusion)
            fusion.write_back()
            run_pipeline(module, "", verify=True)
            taken = [pair for pair in log.candidates if pair.taken]
            assert sum(pair.bytes_saved or 0 for pair in taken) == before[0] - work(module)[0]
            assert sum(cost.moved(node.body) for node in FusionGraph(function).kernels()) == left
            merged += len(taken)
    assert merged > 20


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(k, marks=pytest.mark.full) for k in range(4, 60))])
def test_any_order_of_merges_computes_the_same(seed):
    """Legality is not the pass's to decide: whatever it chooses, in whatever order, and against all costs."""
    random = Random(seed)
    program, inputs = random_program(random, 16)
    with context():
        function, imported = prepare(program, *inputs)
        run_pipeline(imported.module, f"{SIMPLIFY},to-kernels")
        fusion = KernelFusion(function, Ledger(), "any")
        while ways := mergeable(fusion):
            pair = random.choice(ways)
            fusion.attempt(pair)
            fusion.undo()
            assert fusion.merge(pair)
        fusion.write_back()
        run_pipeline(imported.module, "eliminate-dead", verify=True)
        compare(run(function, inputs, imported.objects), as_promised(program, inputs))


def test_a_plan_and_rewrites_hold_for_it():
    with context():
        for _, function in functions():
            fusion = KernelFusion(function, Ledger(rewrites=Rewrites(parse_limits(["any=none"]))), "any")
            for pair in mergeable(fusion):
                assert not fusion.merge(pair)
            if not (ways := mergeable(fusion)):
                continue
            refuse = '{"format": 1, "graphs": [{"others": "refuse", "pairs": []}]}'
            log = FusionLog(FusionPlan("plan.json", refuse))
            assert not KernelFusion(function, Ledger(fusion=log), "any").candidates()
            names = [f'"{name}"' for name in (*ways[0].first.members, *ways[0].second.members)]
            entry = f'{{"decision": "forbid", "function": "{function.name.value}", "first": [{names[0]}], "second": [{names[1]}]}}'
            log = FusionLog(FusionPlan("plan.json", f'{{"format": 1, "graphs": [{{"pairs": [{entry}]}}]}}'))
            fusion = KernelFusion(function, Ledger(fusion=log), "any")
            assert not fusion.merge(ways[0]) and log.candidates[0].rule == "PLAN"
            return
    raise AssertionError("nothing to merge")


def test_a_pair_that_is_gone_is_an_error():
    with context():
        gone = refused = 0
        for _, function in functions():
            fusion = KernelFusion(function, Ledger(), "any")
            for pair in fusion.candidates():
                if pair.kind == "legal":
                    with pytest.raises(ValueError, match="cannot be one kernel: "):
                        fusion.merge(pair)
                    refused += 1
            for pair in mergeable(fusion)[:1]:
                fusion.merge(pair)
                with pytest.raises(ValueError, match="is no pair of kernels any more"):
                    fusion.attempt(pair)
                gone += 1
        assert gone > 5 and refused > 5


def test_pairs_are_left_out_where_a_matmul_multiplies_between_them():
    """y is read by a matmul and by what adds its result: no kernel is made of both additions, nor of the first and the matmul."""

    def function(x, w):
        y = x + 1
        return y @ w + y

    with context():
        graph, imported = prepare(function, torch.randn(64, 64), torch.randn(64, 64))
        run_pipeline(imported.module, "decompose,generate-matmuls,to-kernels")
        fusion = KernelFusion(graph, Ledger(), "any")
        assert [(pair.first.name, pair.second.name) for pair in fusion.candidates()] == [("matmul", "add")]
        between = next(use for use in fusion.tensors() if len(use.readers) == 2)
        assert (
            between.written == 64 * 64 * 4 and set(between.readers.values()) == {64 * 64 * 4} and not between.elsewhere
        )


def test_a_refusal_of_the_pass_is_recorded():
    with context():
        for _, function in functions():
            log = FusionLog()
            fusion = KernelFusion(function, Ledger(fusion=log), "any")
            if ways := mergeable(fusion):
                fusion.refuse(ways[0], "PREDICTED LOSS", nanoseconds=7)
                (record,) = log.candidates
                assert (record.rule, record.kind, record.taken) == ("PREDICTED LOSS", "cost", False)
                assert record.limits["nanoseconds"] == 7 and record.bytes_saved == ways[0].bytes_saved
                return


def test_candidates_are_what_the_passes_record():
    """A pair that a fusion pass looked at has the same numbers here, at the start."""
    seen = 0
    with context():
        for module in kernels_of_programs():
            here = {
                (c.function, c.action, c.first.members, c.second.members): c
                for function in module.body.operations
                for c in KernelFusion(function, Ledger(), "any").candidates()
            }
            log = FusionLog()
            record = PipelineRun(ledger=Ledger(fusion=log))
            run_pipeline(copy(module), "fuse-elementwise", record=record, verify=False)
            for c in log.candidates:
                mine = here.get((c.function, c.action, c.first.members, c.second.members))
                if mine is not None and c.taken and c.action == "fuse":
                    assert (mine.kind, mine.rule, mine.bytes_saved, mine.recomputed) == (
                        "",
                        c.rule,
                        c.bytes_saved,
                        c.recomputed,
                    )
                    seen += 1
    assert seen > 10


@dataclass
class Renames:
    """A pass of somebody's between two that fuse: what it changes they must see."""

    name = "renames"

    def run(self, function, ledger):
        for op in function.regions[0].blocks[0].operations:
            if op.operation.name == "mlircx.kernel":
                op.operation.attributes["label"] = ir.StringAttr.get("renamed")


@pytest.mark.parametrize("between", [[], ["renames"], ["canonicalize", "cse"]])
def test_a_pass_that_goes_on_with_a_graph_does_what_it_does_when_it_reads_the_function(between, monkeypatch):
    monkeypatch.setitem(passes(), Renames.name, Renames)
    steps, merged = [NAMES[0], *between, *NAMES[1:]], 0
    with context():
        for module in kernels_of_programs():
            apart, ledger = copy(module), Ledger()
            for step in steps:
                ledger.entries += run_pipeline(apart, step, verify=False).ledger.entries
            made = run_pipeline(module, ",".join(steps), verify=False).ledger
            assert module.operation.get_asm(enable_debug_info=True) == apart.operation.get_asm(enable_debug_info=True)
            assert made.entries == ledger.entries and not (made.left or made.given)
            merged += sum(entry.taken for entry in made.entries)
    assert merged > 20


@pytest.mark.parametrize("number", range(len(NAMES)))
def test_a_graph_that_was_written_back_is_what_reading_gives(number):
    def shape(graph):
        nodes = [node for node in graph.order if node is not None]
        place = {node: k for k, node in enumerate(nodes)}
        return [
            (
                [op.name for op in node.ops],
                [str(x.value) for x in node.inputs],
                [(str(x.value), sorted(place[u] for u in x.readers)) for x in node.outputs],
                node.position,
                sorted(place[u] for u in node.before),
                sorted(place[u] for u in node.after),
                str(node.location),
                node.body and [n.key[0] for n in node.body.nodes],
                node.body and [str(x.value) for x in node.body.tensors],
                node.changed,
            )
            for node in nodes
        ]

    with context():
        for module in kernels_of_programs():
            run_pipeline(module, ",".join(NAMES[: number or 1]), verify=False)
            for function in module.body.operations:
                ledger = Ledger()
                with ir.InsertionPoint(function):
                    passes()[NAMES[number]]().run(function, ledger)
                (left,) = ledger.left.values()
                read = FusionGraph(function)
                assert shape(left) == shape(read)
                assert left.old_ops == read.old_ops and left.tensors.keys() == read.tensors.keys()
                assert [x.value for x in left.views] == [x.value for x in read.views]
