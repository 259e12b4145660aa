"""Records of each pair that a fusion pass looks at: they add up, name groups in one way from pass to pass, and change nothing."""

import functools
import json
from random import Random

import pytest

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.fusion import candidates, cost
from mlirc.lowering.fusion.graph import FusionGraph
from mlirc.lowering.pipeline.fusion_log import FusionLog, json_lines
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.pipeline.pass_manager import PipelineRun, run_pipeline
from mlirc.lowering.pipeline.pipelines import SIMPLIFY
from mlirc.lowering.pipeline.rewrites import Rewrites, parse_limits
from tests.compare_stages import prepare
from tests.lowering.pipeline.test_filecheck import FOLDER
from tests.property.random_programs import random_program

FUSE = "fuse-elementwise,fuse-reductions,fuse-horizontally"
NAMES = FUSE.split(",")


def kernels_of_programs():
    """Modules of kernels that nothing has fused."""
    yield from map(ir.Module.parse, texts_of_programs())


@functools.cache
def texts_of_programs():
    return [module.operation.get_asm(enable_debug_info=True) for module in programs()]


def programs():
    for name in NAMES:
        module = ir.Module.parse((FOLDER / "fuse" / f"{name}.mlir").read_text())
        run_pipeline(module, "decompose,to-kernels", verify=False)
        yield module
    for seed in range(6):
        program, inputs, dynamic = *random_program(Random(seed), 14), seed % 3 == 0
        _, imported = prepare(program, *inputs, dynamic=dynamic)
        run_pipeline(imported.module, f"{SIMPLIFY},to-kernels", verify=False)
        yield imported.module


def recorded(module, *limits, passes=FUSE):
    log, rewrites = FusionLog(), Rewrites(parse_limits(limits))
    run_pipeline(module, passes, record=PipelineRun(ledger=Ledger(rewrites=rewrites, fusion=log)), verify=False)
    return log, rewrites


def sizes(module):
    """Bytes moved and scalar ops computed by all kernels."""
    bodies = [node.body for function in module.body.operations for node in FusionGraph(function).kernels()]
    return sum(map(cost.moved, bodies)), sum(map(cost.evaluations, bodies))


def copy(module):
    return ir.Module.parse(module.operation.get_asm(enable_debug_info=True))


def test_records_add_up_and_change_nothing():
    taken = 0
    with context():
        for module in kernels_of_programs():
            plain, before = copy(module), sizes(module)
            run = run_pipeline(plain, FUSE, verify=False)
            log, rewrites = recorded(module)
            assert str(module) == str(plain)
            done = [c for c in log.candidates if c.taken]
            after = sizes(module)
            assert sum(c.bytes_saved for c in done) == before[0] - after[0]
            assert sum(c.recomputed for c in done) == after[1] - before[1]
            told = [(e.pass_name, e.rule) for e in run.ledger.entries if e.taken]
            assert told == [(c.pass_name, c.rule) for c in done]
            assert [c.number for c in log.candidates] == list(range(len(log.candidates)))
            for name in NAMES:
                assert [c.rewrite for c in done if c.pass_name == name] == list(range(len(rewrites.of(name))))
            taken += len(done)
    assert taken > 40


def test_groups_keep_their_names_from_pass_to_pass():
    """What a pass leaves is made of what it was given, and each kernel of to-kernels has one name."""
    with context():
        for module in kernels_of_programs():
            count = sum(len(FusionGraph(function).kernels()) for function in module.body.operations)
            log, _ = recorded(module)
            names = [(f, n) for f, left in log.left.items() for _, members in left for n in members if n[-1] != "*"]
            assert sum(c.total() for c in log.counts.values()) == count  # no pass met one that it did not know
            assert len(names) == len(set(names)) <= count  # in one kernel each; copies have a star
            for c in log.candidates:
                assert {n.removesuffix("*") for n in (*c.first.members, *c.second.members)} <= log.names(c.function)


def test_the_number_of_a_rewrite_refuses_that_pair():
    with context():
        for module in kernels_of_programs():
            log, _ = recorded(copy(module))
            for c in [c for c in log.candidates if c.taken][:3]:
                n = c.rewrite
                limit = f"{c.pass_name}={f'0-{n - 1},' if n else ''}{n + 1}-"
                again, _ = recorded(copy(module), limit)
                other = again.candidates[c.number]
                assert (other.first, other.second, other.kind) == (c.first, c.second, "rewrites")
                assert (other.bytes_saved, other.rewrite) == (c.bytes_saved, n)


def test_refusals_say_what_merging_would_have_saved_where_only_cost_forbids_it():
    with context():
        kinds = set()
        for module in kernels_of_programs():
            for c in recorded(module)[0].candidates:
                kinds.add(c.kind)
                assert (c.bytes_saved is None) == (c.kind == "legal") == (c.estimated_gain is None)
                assert c.taken == (c.kind == "") and (c.rewrite is not None) == c.taken
    assert kinds == {"", "legal", "cost"}


def test_json_lines():
    with context():
        log, _ = recorded(next(kernels_of_programs()))
    run, *lines = map(json.loads, json_lines(log.candidates, FUSE, "cpu", kind="forward").splitlines())
    assert run == {"record": "run", "format": 1, "passes": FUSE, "target": "cpu", "kind": "forward"}
    assert len(lines) == len(log.candidates) and lines[0]["first"]["members"] and lines[0]["pass"] == "fuse-elementwise"


def test_without_a_log_nothing_is_made(monkeypatch):
    def never(*_):
        raise AssertionError("nobody asked for records")

    monkeypatch.setattr(candidates.CandidateRecords, "__init__", never)
    monkeypatch.setattr(candidates, "spaces_of", never)
    with context():
        for module in kernels_of_programs():
            assert run_pipeline(module, FUSE, verify=False).ledger.entries
            break


@pytest.mark.parametrize("passes", ["fuse-elementwise,canonicalize,cse,fuse-reductions,fuse-horizontally"])
def test_names_survive_a_pass_in_between(passes):
    with context():
        module = ir.Module.parse((FOLDER / "fuse" / "fuse-reductions.mlir").read_text())
        run_pipeline(module, "decompose,to-kernels,canonicalize,cse", verify=False)
        count = sum(len(FusionGraph(function).kernels()) for function in module.body.operations)
        log, _ = recorded(module, passes=passes)
        assert sum(c.total() for c in log.counts.values()) == count
