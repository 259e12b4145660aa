"""What batch-kernels looks at is recorded as pairs, and follows a fusion plan."""

import pytest

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.pipeline.fusion_plan import FusionPlanError
from tests.lowering.fusion.test_fusion_plan import pairs, planned, saved
from tests.lowering.pipeline.test_filecheck import FOLDER

PASS = "batch-kernels"


@pytest.fixture
def text():
    return (FOLDER / "fuse" / f"{PASS}.mlir").read_text()


def kernels(module):
    return str(module).count('"mlircx.kernel"')


def test_records_are_what_was_merged(text):
    with context():
        given, module = ir.Module.parse(text), ir.Module.parse(text)
        found = planned(module, passes=PASS).candidates
        taken = [c for c in found if c.taken]
        assert len(taken) == kernels(given) - kernels(module) > 0
        assert all(c.bytes_saved == 0 and c.estimated_gain > 0 and c.action == "horizontal" for c in taken)
        assert all(set(c.first.members).isdisjoint(c.second.members) for c in found)
        for c in found:
            assert c.taken or c.rule in ("READ LATER", "LIMITS"), c
        limited = planned(ir.Module.parse(text), passes=f"{PASS}{{max-reads=1}}").candidates
        numbers = [(c.kind, c.limits["max_reads"]) for c in limited if c.rule == "LIMITS"]
        assert numbers and set(numbers) == {("cost", 1)} and not any(c.taken for c in limited)


def test_a_saved_plan_replays(text):
    with context():
        module, exact, apart = (ir.Module.parse(text) for _ in range(3))
        plan = saved(planned(module, passes=PASS))
        plan["graphs"][0]["others"] = "refuse"
        planned(exact, plan, passes=PASS)
        assert str(exact) == str(module)
        plan["graphs"][0]["pairs"] = []
        log = planned(apart, plan, passes=PASS)
        assert kernels(apart) == kernels(ir.Module.parse(text)) and any(c.kind == "plan" for c in log.candidates)


def test_what_is_forbidden_stays_apart_and_what_cannot_be_is_an_error(text):
    with context():
        module = ir.Module.parse(text)
        first = planned(module, passes=PASS)
        plan = saved(first)
        entry = next(p for p in pairs(plan) if p["decision"] == "taken")
        entry["decision"] = "forbid"
        other = ir.Module.parse(text)
        log = planned(other, plan, passes=PASS)
        assert kernels(other) > kernels(module) and any(c.rule == "PLAN" for c in log.candidates)
        entry["decision"] = "force"
        with pytest.raises(FusionPlanError, match="'batch-kernels' cannot make one kernel of them"):
            planned(ir.Module.parse(text), plan, passes=f"{PASS}{{max-reads=1}}")


def test_names_are_handed_on(text):
    with context():
        log = planned(ir.Module.parse(text), passes=f"{PASS},fuse-horizontally")
        assert any(len(members) > 1 for left in log.left.values() for _, members in left)
