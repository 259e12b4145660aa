"""`mlirc opt --pipeline` goes on from the stage that a file is in, however it came there."""

import re

import pytest
import torch

from mlirc.lowering.pipeline.pipelines import PIPELINES, STAGES
from tests.commands.command import bad, good

X = "tensor<4x8xf32>"
GRAPH = f"""func.func @graph(%x: {X}) -> {X} attributes {{mlirc.results = ["g0"]}} {{
  %0 = "mlirc.exp"(%x) : ({X}) -> {X}
  %1 = "mlirc.softmax"(%0) {{dims = "1"}} : ({X}) -> {X}
  %2 = "mlirc.add"(%0, %1) : ({X}, {X}) -> {X}
  return %2 : {X}
}}
"""
GRAPH = GRAPH.replace('"mlirc.softmax"(%0) {dims = "1"}', '"mlirc.neg"(%0)')


def steps(*arguments, text=GRAPH):
    return good(
        "opt", "-", "--pipeline", "cpu", "--emit", "none", "--print-pipeline", *arguments, text=text
    ).stderr.strip()


def joined(*stages):
    return ",".join(PIPELINES["cpu"][stage] for stage in stages)


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_stage_left_goes_on_after_it(stage):
    text = good("opt", "-", "--pipeline", "cpu", "--stop-after", stage, text=GRAPH).stdout
    assert steps(text=text) == joined(*STAGES[STAGES.index(stage) + 1 :])
    whole = good("opt", "-", "--pipeline", "cpu", text=GRAPH).stdout
    assert good("opt", "-", "--pipeline", "cpu", text=text).stdout == whole


@pytest.mark.parametrize(
    ("passes", "rest"),
    [
        ("", joined(*STAGES)),
        ("to-kernels", joined("fuse", "plan", "lower").partition("to-kernels,")[2]),
        ("to-kernels,plan-memory", joined("lower")),
        ("to-kernels,plan-memory,lower-kernels", ""),
    ],
)
def test_a_form_says_the_rest_where_no_stage_is_noted(passes, rest):
    assert steps(text=good("opt", "-", "-p", passes, text=GRAPH).stdout) == rest


def test_start_after_a_stage_or_a_pass():
    assert steps("--start-after", "simplify") == joined("fuse", "plan", "lower")
    assert steps("--start-after", "decompose", "--stop-after", "simplify").startswith("generate-convolutions,")
    last = joined("simplify").rpartition("hoist-gathers,canonicalize,")[2]
    assert steps("--start-after", "canonicalize#3", "--stop-after", "simplify") == last


def test_passes_are_inserted():
    rest = steps("--passes-after", "fuse=cse,eliminate-dead", "--passes-after", "to-kernels=cse")
    assert rest == joined(*STAGES).replace("to-kernels,", "to-kernels,cse,").replace(
        "schedule-collectives,", "schedule-collectives,cse,eliminate-dead,"
    )
    kernels = good("opt", "-", "--pipeline", "cpu", "--stop-after", "fuse", text=GRAPH).stdout
    assert steps("--passes-after", "plan=cse", text=kernels) == "plan-memory,cse,lower-kernels"
    assert steps("--passes-before", "lower=cse", text=kernels) == "plan-memory,cse,lower-kernels"
    before = steps("--passes-before", "fuse=eliminate-dead", "--passes-before", "to-kernels=cse")
    assert before == joined("simplify") + ",eliminate-dead," + joined("fuse", "plan", "lower").replace(
        "to-kernels", "cse,to-kernels"
    )
    simplified = good("opt", "-", "--pipeline", "cpu", "--stop-after", "simplify", text=GRAPH).stdout
    assert steps("--passes-before", "fuse=cse", text=simplified) == "cse," + joined("fuse", "plan", "lower")
    assert steps(
        "--passes-before", "plan=eliminate-dead", "--passes-after", "eliminate-dead#2=cse", text=kernels
    ).startswith("eliminate-dead,cse,")


def test_passes_are_left_out():
    without = ",".join(name for name in joined(*STAGES).split(",") if name not in ("cse", "hoist-gathers"))
    assert steps("--omit", "cse,hoist-gathers") == steps("--omit", "cse", "--omit", "hoist-gathers") == without
    replaced = steps("--omit", "fuse-elementwise", "--passes-before", "fuse-elementwise=fuse-elementwise{max-ops=2}")
    assert replaced == joined(*STAGES).replace("fuse-elementwise", "fuse-elementwise{max-ops=2}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--omit", "plan-memory"), "'plan-memory' cannot be left out"),
        (("--omit", "cse,hoist-gather"), r"no pass 'hoist-gather' in this pipeline; did you mean 'hoist-gathers'\?"),
        (("--passes-after", "fuze=cse"), r"no stage or pass 'fuze' in this pipeline; did you mean 'fuse'\?"),
        (("--passes-after", "fuse=csee"), r"no pass 'csee'.* did you mean 'cse'\?"),
        (("--passes-after", "fuse"), "write ANCHOR=PASSES, as fuse=my-pass"),
        (("--passes-after", "cse=cse"), "'cse' runs 3 times in this pipeline; say which: cse#1 to cse#3"),
        (("--passes-after", "plan=cse", "--stop-after", "fuse"), "comes after --stop-after fuse"),
        (
            ("--passes-before", "plan=cse", "--stop-after", "fuse"),
            "--passes-before plan: comes after --stop-after fuse",
        ),
        (("--passes-before", "fuze=cse"), r"no stage or pass 'fuze' in this pipeline; did you mean 'fuse'\?"),
        (("--passes-before", "fuse"), "--passes-before 'fuse': write ANCHOR=PASSES, as fuse=my-pass"),
        (("--start-after", "to-kernels", "--stop-after", "simplify"), "to-kernels is after --stop-after simplify"),
        (("--passes-after", "xyzzy=cse"), "no stage or pass 'xyzzy' in this pipeline; it has simplify, fuse"),
        (("--start-after", "cse#4"), "'cse#4': 'cse' runs 3 times in this pipeline"),
        (("--start-after", "cse#x"), "'cse#x': 'cse' runs 3 times"),
        (("--start-after", "to-kernel"), r"did you mean 'to-kernels'\?"),
    ],
)
def test_wrong_anchors(arguments, message):
    assert re.search(message, bad("opt", "-", "--pipeline", "cpu", *arguments, text=GRAPH, code=2))


def test_what_is_to_be_inserted_is_never_left_out_in_silence():
    planned = good("opt", "-", "--pipeline", "cpu", "--stop-after", "plan", text=GRAPH).stdout
    line = bad("opt", "-", "--pipeline", "cpu", "--passes-after", "fuse=cse", text=planned, code=2)
    assert "--passes-after fuse: the module is past it, in the memory form" in line
    twice = ("--passes-after", "fuse=cse", "--passes-after", "fuse=canonicalize", "--passes-before", "lower=cse")
    line = bad("opt", "-", "--pipeline", "cpu", *twice, text=planned, code=2)
    assert "--passes-after fuse: the module is past it, in the memory form" in line


def test_a_stage_that_is_none():
    text = 'module attributes {mlirc.stage = "fus"} {\n' + GRAPH + "}"
    assert "the module's mlirc.stage is 'fus'; there are simplify" in bad(
        "opt", "-", "--pipeline", "cpu", text=text, code=1
    )


def test_a_dump_goes_on_after_its_stage(tmp_path):
    with torch.no_grad():
        torch.compile(lambda x: (x.exp() + 1).sum(1), backend="mlirc", options={"dump": tmp_path})(torch.randn(4, 8))
    done = []
    for stage in ("import", *STAGES):
        (path,) = tmp_path.glob(f"*_{stage}.mlir")
        done += [stage] if stage != "import" else []
        ran = good("opt", path, "--pipeline", "cpu", "--emit", "none", "--print-pipeline")
        assert ran.stderr.strip() == joined(*(s for s in STAGES if s not in done))


def test_a_pipeline_is_printed_without_a_file():
    assert good("opt", "--pipeline", "cpu", "--print-pipeline", "--passes-after", "fuse=cse").stdout.strip() == (
        ",".join([joined("simplify", "fuse"), "cse", joined("plan", "lower")])
    )
