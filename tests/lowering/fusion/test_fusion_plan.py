"""A fusion plan: what is saved is replayed exactly, what is forbidden stays apart, what is forced becomes one kernel or is an error."""

import json
from random import Random

import pytest

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.interpreter import run
from mlirc.lowering.fusion.graph import FusionGraph
from mlirc.lowering.pipeline.fusion_log import FusionLog
from mlirc.lowering.pipeline.fusion_plan import FusionPlan, FusionPlanError, parse_plan, plan_text, without_stars
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.pipeline.pass_manager import PipelineRun, run_pipeline
from mlirc.lowering.pipeline.pipelines import SIMPLIFY
from tests.compare_stages import compare, prepare
from tests.lowering.fusion.test_fusion_records import FUSE, copy, kernels_of_programs
from tests.property.random_programs import as_promised, random_program


def planned(module, plan=None, passes=FUSE, verify=False):
    log = FusionLog(None if plan is None else FusionPlan("plan.json", json.dumps(plan)))
    run_pipeline(module, passes, record=PipelineRun(ledger=Ledger(fusion=log)), verify=verify)
    log.check_plan()
    return log


def saved(log):
    return json.loads(plan_text(log.candidates, None))


def pairs(plan):
    return plan["graphs"][0]["pairs"]


def test_a_saved_plan_replays_exactly():
    """As it is, where passes decide again; and where nothing is merged but what it lists."""
    with context():
        for module in kernels_of_programs():
            given, again, exact = copy(module), copy(module), copy(module)
            plan = saved(planned(module))
            planned(again, plan)
            assert str(again) == str(module)
            plan["graphs"][0]["others"] = "refuse"
            log = planned(exact, plan)
            assert str(exact) == str(module)
            assert [c.rule for c in log.candidates if c.taken] == [
                p["rule"] for p in pairs(plan) if p["decision"] == "taken"
            ]
            plan["graphs"][0]["pairs"] = []
            planned(given, plan)
            assert str(given) == str(copy(given)) and "mlircx.kernel" in str(given)
            assert all(len(node.members) <= 1 for f in given.body.operations for node in FusionGraph(f).kernels())


def test_what_is_forbidden_is_in_no_kernel():
    forbidden = 0
    with context():
        for module in kernels_of_programs():
            plan = saved(planned(copy(module)))
            for pair in [p for p in pairs(plan) if p["decision"] == "taken"][:3]:
                names = without_stars([*pair["first"], *pair["second"]])
                if len(names) < len(pair["first"]) + len(pair["second"]):
                    continue  # one computes a part of the other already
                edited = {"format": 1, "graphs": [{"pairs": [pair | {"decision": "forbid"}]}]}
                log = planned(copy(module), edited)
                left = log.left[pair.get("function", "graph")]
                assert not any(names <= without_stars(members) for _, members in left)
                refused = [c for c in log.candidates if c.rule == "PLAN"]
                assert refused and all(c.kind == "plan" and c.limits["entry"] == 0 for c in refused)
                forbidden += 1
    assert forbidden > 10


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(10))
def test_what_is_forced_is_right_or_refused(seed):
    """Each refusal of a random program, forced: one for cost becomes a kernel that gives what eager gives; else one line says why not."""
    program, inputs, dynamic = *random_program(Random(seed), 10), seed % 4 == 0
    expected = as_promised(program, inputs)
    with context():
        _, imported = prepare(program, *inputs, dynamic=dynamic)
        run_pipeline(imported.module, f"{SIMPLIFY},to-kernels", verify=False)
        log = planned(copy(imported.module))
        refusals = [c for c in log.candidates if not c.taken]
        for c in [c for c in refusals if c.kind == "cost"][:4] + [c for c in refusals if c.kind == "legal"][:4]:
            plan = saved(log)
            head = [p for p in pairs(plan)[: c.number] if p["decision"] == "taken"]
            forced = pairs(plan)[c.number] | {"decision": "force"}
            exact = {"format": 1, "graphs": [{"others": "refuse", "pairs": [*head, forced]}]}
            module = copy(imported.module)
            try:
                left = planned(module, exact, verify=True).left[c.function]
            except FusionPlanError as error:
                assert c.kind == "legal" or c.action == "recompute", error
                assert "\n" not in str(error) and f"entry {len(head)} (force" in str(error)
                continue
            edited, one_word = copy(imported.module), plan
            pairs(one_word)[c.number]["decision"] = "force"
            again = planned(edited, one_word, verify=True).left[c.function]
            for kernels, made in ((left, module), (again, edited)):
                assert any(without_stars(c.first.members + c.second.members) <= without_stars(m) for _, m in kernels)
                compare(run(made.body.operations[0], inputs, imported.objects), expected, rtol=1e-3, atol=1e-3)


X, ROW = "tensor<64x8xf32>", "tensor<8xf32>"
GRAPH = f"""func.func @graph(%x: {X}, %row: {ROW}) -> ({X}, tensor<64xf32>) {{
  %0 = "mlirc.erf"(%row) : ({ROW}) -> {ROW}
  %1 = "mlirc.add"(%x, %0) : ({X}, {ROW}) -> {X}
  %2 = "mlirc.exp"(%1) : ({X}) -> {X}
  %3 = "mlirc.sum"(%2) {{dims = "1", keepdim = false}} : ({X}) -> tensor<64xf32>
  return %2, %3 : {X}, tensor<64xf32>
}}
"""


def of_graph(*entries, **more):
    with context():
        module = ir.Module.parse(GRAPH)
        log = planned(module, {"format": 1, "graphs": [{"pairs": list(entries), **more}]}, f"to-kernels,{FUSE}")
        return [node.body.label for node in FusionGraph(module.body.operations[0]).kernels()], log


def force(first, second, **more):
    return {"decision": "force", "pass": "fuse-elementwise", "first": [first], "second": [second], **more}


def test_a_cost_is_overruled():
    assert of_graph()[0] == ["erf", "add_exp_sum"]
    assert of_graph(force("erf@-:2", "add@-:3"))[0] == ["erf_add_exp_sum"]
    assert of_graph(force("erf@-:2", "add@-:3"), others="refuse")[0] == ["erf_add", "exp", "sum"]
    apart = {"decision": "forbid", "first": ["exp@-:4"], "second": ["sum@-:5"]}
    assert of_graph(apart)[0] == ["erf", "add_exp", "sum"]
    assert of_graph(apart | {"decision": "forbid", "first": ["add@-:3"]})[0] != ["erf", "add_exp_sum"]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([force("erf@-:2", "exp@-:4")], "entry 0 (force erf@-:2 -> exp@-:4): the second does not read the first"),
        ([force("erf@-:2", "sub@-:3")], "@graph has no kernel 'sub@-:3'; did you mean 'sum@-:5'? it has 4"),
        ([force("erf@-:2", "ad@-:3")], "does not fit: entry 0 (force erf@-:2 -> ad@-:3): @graph has no kernel 'ad@-:3'; did you mean 'add@-:3'?"),
        ([force("sum@-:5", "add@-:3")], "the second does not read the first"),
        ([force("add@-:3", "exp@-:4") | {"first": ["erf@-:2", "add@-:3"]}], "nothing has made one kernel of erf@-:2 + add@-:3"),
        ([force("add@-:3", "exp@-:4"), {"decision": "forbid", "first": ["exp@-:4"], "second": ["add@-:3"]}], "entry 1 forbids it"),
        ([force("add@-:3", "sum@-:5", action="horizontal")], "they cannot be one kernel: NO CYCLE"),
        ([force("erf@-:2", "add@-:3", **{"pass": "fuse-elementwis"})], "no pass that ran 'fuse-elementwis' looked at @graph"),
        ([force("erf@-:2", "add@-:3", function="prepare")], "no pass that ran 'fuse-elementwise' looked at @prepare"),
    ],
)  # fmt: skip
def test_a_plan_that_does_not_fit_says_where(entries, said):
    with pytest.raises(FusionPlanError) as raised:
        of_graph(*entries)
    assert said in str(raised.value) and str(raised.value).startswith("plan.json: ") and "\n" not in str(raised.value)


def test_the_kind_of_a_graph_chooses_its_plan():
    text = json.dumps(
        {"format": 1, "graphs": [{"kind": "forward", "pairs": []}, {"kind": "backward", "pairs": [force("a", "b")]}]}
    )
    plan = FusionPlan("p", text)
    assert (
        plan.fitting("forward", "graph", {"c"}) is plan.graphs[0] and plan.fitting("inference", "graph", {"c"}) is None
    )
    assert plan.fitting(None, "graph", {"c"}) is plan.graphs[0]
    with pytest.raises(FusionPlanError, match=r"no kernel 'a'.* 1 more"):
        plan.fitting("backward", "graph", {"c"})


PAIR = '{"decision": "force", "pass": "p", "first": ["a"], "second": ["b"]}'


def file(*pairs):
    return '{"format": 1, "graphs": [{"pairs": [' + ", ".join(pairs) + "]}]}"


def other(old, new):
    assert old in PAIR
    return PAIR.replace(old, new)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        (file(PAIR)[:-3], "no JSON"),
        ("[]", "format 'None'"),
        ('{"format": 2}', "format '2'; this mlirc reads format 1"),
        ('{"format": 1}', "'graphs' is no list"),
        ('{"format": 1, "graphs": []}', "'graphs' is no list"),
        ('{"format": 1, "graphs": [3]}', "no list 'pairs'"),
        ('{"format": 1, "graphs": [{"pairs": {}}]}', "no list 'pairs'"),
        ('{"format": 1, "graphs": [{"pairs": [], "kind": "forwards"}]}', "'kind' is 'forwards'"),
        ('{"format": 1, "graphs": [{"pairs": [], "kind": {}}]}', "'kind' is '{}'"),
        ('{"format": 1, "graphs": [{"pairs": [], "others": []}]}', "'others' is '[]'"),
        ('{"format": 1, "graphs": [{"pairs": [], "other": "refuse"}]}', "a field 'other'; did you mean 'others'?"),
        (file("7"), "entry 0 is no object"),
        (file(PAIR, other("force", "forse")), "entry 1: 'decision' is 'forse'; did you mean 'force'?"),
        (file(other("force", "x" * 10_000)), "entry 0: 'decision' is 'xxx"),
        (file(other('["a"]', '"a"')), "entry 0: 'first' is no list of names"),
        (file(other('"a"', "1")), "entry 0: 'first' is no list of names"),
        (file(other('["a"]', "[]")), "entry 0: 'first' is no list of names"),
        (file(other('"a"', '"b"')), "both have 'b'"),
        (file(other('"p"', "null")), "entry 0: 'pass' is no text"),
        (file(other('"pass": "p", ', "")), "entry 0: 'pass' says which pass"),
        (file(other('"pass"', '"passs"')), "a field 'passs'; did you mean 'pass'?"),
    ],
)  # fmt: skip
def test_hostile_files_give_one_line(text, said):
    with pytest.raises(FusionPlanError) as raised:
        parse_plan(text, "plan.json")
    message = str(raised.value)
    assert said in message and message.startswith("plan.json") and "\n" not in message and len(message) < 500


def test_every_truncation_gives_one_line():
    with context():
        text = plan_text(planned(next(kernels_of_programs())).candidates, "forward")
    parse_plan(text, "p")
    for end in range(0, len(text.rstrip()), 7):
        with pytest.raises(FusionPlanError):
            parse_plan(text[:end], "p")
