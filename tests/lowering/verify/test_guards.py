"""What PyTorch's guards say of sizes: the verifier refutes nothing at sizes that they exclude, and still refutes what is wrong at others."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from mlirc.codegen.emit.checked_program import CheckedProgram, InputError
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.symbols import evaluate, parse
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline
from mlirc.lowering.verify.assignments import assignments, related
from mlirc.lowering.verify.index_proofs import Space, counterexample
from mlirc.lowering.verify.stage import verify_stage


def part_of_a_reversed_shape(x, n, k):
    """The part has one row, so that of n its index alone is left, which k bounds."""
    v = x.reshape(x.shape[::-1]).unsqueeze(1) * -1.5
    return v[n:k:3, ...] + 1


def pads_of_convolved(x, weight):
    """A window of more than 3 would leave no size."""
    y = F.conv2d(F.pad(x, (1, 1, 1, 1)), weight, None, padding=1, dilation=2)
    return F.pad(y, (0, 0, 0, 0), mode="reflect") * 2


PROGRAMS = {
    "a part of a reversed shape": (part_of_a_reversed_shape, lambda k: (torch.randn(2 + k, 2 + k, 4, 3), 0, 1)),
    "pads of what is convolved": (
        pads_of_convolved,
        lambda k: (torch.randn(2, 1, 65 + k, 17 + k), torch.randn(1, 1, 2, 2)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_that_no_guard_passes_are_no_counterexample(name):
    program, arguments = PROGRAMS[name]
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"cache": False, "fallback": "error"})
    for k in range(2):
        given = arguments(k)
        torch.testing.assert_close(compiled(*given), program(*given))


def test_assignments_pass_all_facts():
    facts = tuple(map(parse, ("s0*s1 - s2*s3", "s2*s3 - s0*s1", "3 - s4", "s1 - us5 - 1", "s0 - s1 - 1")))
    names = [f"s{k}" for k in range(5)] + ["us5"]
    found = list(assignments(names, facts, 4))
    assert len(found) == 4 and all(evaluate(f, values) >= 0 for values in found for f in facts)
    assert not list(assignments(["s0"], [parse("s0 - 5"), parse("3 - s0")], 4))
    assert related(["s4"], facts) == {"s4"} and related(["us5"], facts) == set(names) - {"s4"}


def test_a_fact_about_another_symbol_bounds_one_by_way_of_it():
    goal, known = parse("s0 - 1 - s1 - d0"), tuple(map(parse, ("s0 - s2", "s2 - s1 - 1")))
    assert counterexample(Space({"d0": 1}, ()), goal) is not None
    assert counterexample(Space({"d0": 1}, known), goal) is None
    found = counterexample(Space({"d0": 1}, known), goal - 1)
    assert found is not None and found["s0"] >= found["s2"] >= found["s1"] + 1 and evaluate(goal - 1, found) < 0


TEXT = """func.func @graph(%0: i64 {{mlirc.symbol = "s1"}}, %1: tensor<?x?xf32, {{size = "s0, s2"}}>) -> tensor<1xf32>
    attributes {{mlirc.guards = "{guards}"}} {{
  %2 = "mlirc.view"(%1) {{map = "(d0 + s1)//s2, (d0 + s1) % s2", offset = "s1"}} : (tensor<?x?xf32, {{size = "s0, s2"}}>) -> tensor<1xf32>
  %3 = "mlirc.exp"(%2) : (tensor<1xf32>) -> tensor<1xf32>
  return %3 : tensor<1xf32>
}}"""


@pytest.mark.parametrize(
    "guards", ["8 - s0, s0*s2 - s1", "8 - s2, 4*s0*s2 - s1", "8 - s0, s0*s2 - s3, s3 - s1", "2 - s0, 4 - s2"]
)
@pytest.mark.parametrize("proofs", ["tried", "demanded"])
def test_what_the_guards_do_not_bound_is_refused(guards, proofs):
    with context():
        module = ir.Module.parse(TEXT.format(guards=guards))
        with pytest.raises(StageError, match=r"reaches index \(\(d0 \+ s1\)//s2\) in a size of s0"):
            verify_stage(module.body.operations[0], "graph", proofs=proofs)


@pytest.mark.parametrize("guards", ["s0*s2 - s1 - 1", "s0*s2 - s3, s3 - s1 - 1"])
def test_what_the_guards_bound_is_taken(guards):
    with context():
        module = ir.Module.parse(TEXT.format(guards=guards))
        verify_stage(module.body.operations[0], "graph", proofs="tried")


@pytest.mark.parametrize(
    "guards", ["s0*s2 - s1 - 1, s2 - 1", "s2 - 3, s0*s2 - s1 - 7, 2*s0 - s1", "s2 - 1, s0 - s1 - 1"]
)
def test_guards_of_a_file_are_compared_before_a_run(guards):
    """Whoever wrote them."""
    with context():
        module = ir.Module.parse(TEXT.format(guards=guards))
        run_pipeline(module, pipeline("cpu"), proofs="none")
    program = CheckedProgram(module)
    x = torch.randn(9, 4)
    torch.testing.assert_close(program([6, x])[0], x[1, 2:3].exp())
    for place, y in ((36, x), (1 << 40, x), (0, x[:, :0].contiguous())):
        with pytest.raises(InputError):
            program([place, y])


def test_a_guard_of_a_file_names_no_dimension():
    with context():
        module = ir.Module.parse(TEXT.format(guards="2 - d0"))
        with pytest.raises(StageError, match="names a dimension"):
            verify_stage(module.body.operations[0], "graph")


def test_a_part_of_a_reversed_shape_is_shown_by_two_facts():
    facts = tuple(map(parse, ("s0 - s86", "s0 - s16", "s16 - s86 - 1", "s86 + 3 - s16")))
    sizes = dict(zip(("d0", "d1", "d2", "d3"), map(parse, ("1", "s5", "s7", "s7")), strict=True))
    goal = parse("s7 - 1 - (d0*s5*s7*s7 + s5*s7*s7*s86 + d1*s7*s7 + d2*s7 + d3)//(s0*s5*s7)")
    assert Space(sizes, facts).nonnegative(goal)
    assert not Space(sizes, facts).nonnegative(goal - 1) and not Space(sizes, facts[:2]).nonnegative(goal)


FACTS = ("s0 - s1", "s0 - s1 - 1", "s1 - s2 - 1", "s0*s2 - s1 - 1", "s2 - 1", "s1 - s0*s2", "3 - s0", "s2 - s0 - 1")
INDICES = ("d0 + s1", "2*d0 + s1 - s2", "d0*s2 + s1", "d0 - s1", "s0*s2 - 1 - d0")


def test_what_facts_show_holds_wherever_they_do():
    """Of quotients by a symbol, which the facts are to keep from 0."""
    shown = 0
    for number, (known, text) in enumerate(itertools.product(itertools.combinations(FACTS, 2), INDICES)):
        facts, size = tuple(map(parse, known)), parse(("1", "s0", "s1")[number % 3])
        for goal in (parse(f"s0 - 1 - ({text})//s2"), parse(f"({text})//s2 - {number % 2}")):
            if not Space({"d0": size}, facts).nonnegative(goal):
                continue
            shown += 1
            for point in itertools.product(range(5), repeat=3):
                values = dict(zip(("s0", "s1", "s2"), point, strict=True))
                if values["s2"] and all(evaluate(f, values) >= 0 for f in facts):
                    places = range(evaluate(size, values) if number % 3 else 1)
                    assert all(evaluate(goal, {**values, "d0": d}) >= 0 for d in places), (known, text, values)
    assert shown > 5
