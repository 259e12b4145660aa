"""What `mlirc opt` shows beside the result: IR between passes, differences, statistics, the ledger; and what it writes."""

import json
import re

import pytest

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.analysis.work import work_of
from tests.commands.command import bad, good

X = "tensor<4x8xf32>"
GRAPH = f"""func.func @graph(%x: {X}) -> {X} attributes {{mlirc.results = ["g0"]}} {{
  %0 = "mlirc.exp"(%x) : ({X}) -> {X}
  %1 = "mlirc.exp"(%x) : ({X}) -> {X}
  %2 = "mlirc.add"(%0, %1) : ({X}, {X}) -> {X}
  return %2 : {X}
}}
"""


def shown(*arguments, text=GRAPH):
    return good("opt", "-", *arguments, text=text).stderr


# ---- IR between passes


def test_ir_before_and_after_a_pass():
    parts = re.split(
        r"// ----- (.*) -----\n",
        shown("-p", "cse,to-kernels,fuse-elementwise", "--print-ir-before", "to-kernels", "--print-ir-after", "cse"),
    )
    assert parts[1::2] == ["after cse", "before to-kernels"] and parts[2] == parts[4]
    first = shown("-p", "cse", "--print-ir-before", "cse")
    assert first.count('"mlirc.exp"') == 2


def test_ir_after_each_change():
    text = shown("-p", "cse,cse,to-kernels", "--print-ir-after-change")
    assert re.findall(r"// ----- (.*) -----", text) == ["after cse", "after cse: no change", "after to-kernels"]


def test_a_pass_that_does_not_run_has_no_ir():
    line = bad("opt", "-", "-p", "cse", "--print-ir-after", "csee", text=GRAPH, code=2)
    assert "--print-ir-after: no pass 'csee' in this pipeline; did you mean 'cse'?" in line
    assert "--print-ir-before: no pass 'dce'" in bad(
        "opt", "-", "-p", "cse", "--print-ir-before", "dce", text=GRAPH, code=2
    )


# ---- differences


def test_a_difference_is_told_op_by_op():
    text = shown("-p", "cse,canonicalize", "--diff", "-o", "/dev/null")
    cse, canonicalize = text.split("// ----- canonicalize")
    lines = cse.splitlines()
    gone = [line for line in lines if line.startswith("-")]
    assert len(gone) == 1 and re.match(r'- %[01] = "mlirc.exp"\(%arg0\)', gone[0])
    assert [line for line in lines if line.startswith("~")] == [f'~ %1 = "mlirc.add"(%0, %0) : ({X}, {X}) -> {X}']
    assert not [line for line in lines if line.startswith("+")]
    assert canonicalize.startswith(": no change -----")


def test_other_numbers_are_no_difference():
    chain = GRAPH.replace("(%0, %1)", "(%1, %1)")  # %0 is dead
    text = shown("-p", "canonicalize", "--diff", "-o", "/dev/null", text=chain)
    assert len(re.findall(r"^[-+~]", text, re.MULTILINE)) == 1


def test_what_stays_is_folded():
    ops = "".join(f'  %{k + 1} = "mlirc.neg"(%{k}) : ({X}) -> {X}\n' for k in range(20))
    long = f'func.func @graph(%0: {X}) -> ({X}, {X}) {{\n{ops}  %21 = "mlirc.neg"(%19) : ({X}) -> {X}\n  return %20, %21 : {X}, {X}\n}}'
    text = shown("-p", "cse", "--diff", "-o", "/dev/null", text=long)
    assert re.search(r"^  \.\.\. 18 ops unchanged$", text, re.MULTILINE)
    assert len(text.splitlines()) < 10


def test_a_body_that_changes_its_owner_is_folded():
    text = shown("-p", "to-kernels,plan-memory,lower-kernels", "--diff", "-o", "/dev/null")
    lowered = text[text.index("// ----- lower-kernels") :]
    assert "mlircx.launch" in lowered and "mlircx.run" in lowered and "lines unchanged" in lowered
    assert "mlirc.read" not in lowered


# ---- statistics


def test_statistics_are_right():
    text = f"""func.func @graph(%x: tensor<4x16xf32>, %w: tensor<16x8xf32>, %y: {X}) -> {X} {{
      %0 = "mlirc.matmul"(%x, %w) : (tensor<4x16xf32>, tensor<16x8xf32>) -> {X}
      %1 = "mlirc.add"(%0, %y) : ({X}, {X}) -> {X}
      %2 = "mlirc.mul"(%1, %1) : ({X}, {X}) -> {X}
      return %2 : {X}
    }}"""
    stats = shown("-p", "", "--stats", text=text)
    expect = {"ops": 3, "kernels": 0, "bytes read": 4 * (64 + 128 + 32 + 32 + 32), "bytes written": 4 * 96}
    expect["flops"] = 2 * 4 * 8 * 16 + 32 + 32
    assert {name: int(re.search(rf"^  {name} +(\d+)$", stats, re.MULTILINE)[1]) for name in expect} == expect
    fused = shown("-p", "to-kernels,fuse-elementwise,plan-memory", "--stats", text=text)
    assert re.search(rf"bytes read +{4 * (64 + 128 + 32 + 32)}$", fused, re.MULTILINE)
    assert re.search(rf"flops +{expect['flops']}$", fused, re.MULTILINE)
    assert re.search(rf"  1  add_mul: reads {4 * 64}, writes {4 * 32}, 64 flops", fused)
    assert re.search(rf"  1  matmul: reads {4 * (64 + 128)}, writes {4 * 32}, {2 * 4 * 8 * 16} flops", fused)
    assert re.search(r"kernels +1$", fused, re.MULTILINE) and re.search(r"arena, cpu +128$", fused, re.MULTILINE)


def test_statistics_of_symbolic_sizes():
    s = 'tensor<?x8xf32, {size = "s0, 8"}>'
    text = f'func.func @graph(%x: {s}) -> {s} {{\n  %0 = "mlirc.exp"(%x) : ({s}) -> {s}\n  return %0 : {s}\n}}'
    stats = shown("-p", "to-kernels", "--stats", text=text)
    assert re.search(r"exp: reads 32\*s0, writes 32\*s0, 8\*s0 flops", stats)
    assert re.search(r"bytes read +32\*s0$", stats, re.MULTILINE) and re.search(r"flops +8\*s0$", stats, re.MULTILINE)


def test_a_fold_counts_inner_work_at_each_point():
    text = f"""func.func @graph(%x: {X}) -> tensor<4x1xf32> {{
      %0 = "mlircx.kernel"(%x) ({{
      ^bb0(%a: {X}):
        %1 = "mlirc.read"(%a) {{map = "d0, d1", masked = false}} : ({X}) -> f32
        %2 = "mlirc.exp"(%1) : (f32) -> f32
        %3 = "mlirc.reduce"(%2) {{kind = "sum"}} : (f32) -> f32
        %4 = "mlirc.neg"(%3) : (f32) -> f32
        "mlircx.yield"(%4) {{maps = ["d0, 0"]}} : (f32) -> ()
      }}) {{parallel = "4", inner = "8", label = "k"}} : ({X}) -> tensor<4x1xf32>
      return %0 : tensor<4x1xf32>
    }}"""
    with context():
        module = ir.Module.parse(text)
        assert work_of(module.body.operations[0].regions[0].blocks[0].operations).flops == 4 * 8 * 2 + 4


@pytest.mark.parametrize("passes", ["", "to-kernels"])
def test_comparisons_and_whole_numbers_are_no_floating_point_operations(passes):
    text = """func.func @graph(%x: tensor<8xf32>, %n: tensor<8xi64>) -> (tensor<8xi1>, tensor<8xi64>, tensor<8xf32>) {
      %0 = "mlirc.lt"(%x, %x) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>
      %1 = "mlirc.add"(%n, %n) : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi64>
      %2 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
      return %0, %1, %2 : tensor<8xi1>, tensor<8xi64>, tensor<8xf32>
    }"""
    assert re.search(r"flops +8$", shown("-p", passes, "--stats", text=text), re.MULTILINE)


# ---- the ledger, the verifier


def test_the_ledger_is_printed():
    text = shown("-p", "to-kernels,fuse-elementwise", "--ledger")
    assert re.search(r"^fuse-elementwise: fuse .*: taken, ", text, re.MULTILINE)


def test_the_ledger_has_source_lines_of_kernels_that_share_code():
    """As "model.py:7", and not as MLIR writes a location."""
    ops = "\n".join(f'  %{k + 1} = "mlirc.neg"(%{k}) : ({X}) -> {X} loc("model.py":{k + 7}:0)' for k in range(2))
    graph = f"func.func @graph(%0: {X}) -> {X} {{\n{ops}\n  return %2 : {X}\n}}"
    text = shown("-p", "to-kernels,plan-memory,lower-kernels", "--ledger", "-o", "/dev/null", text=graph)
    (shared,) = [line for line in text.splitlines() if line.startswith("lower-kernels: share")]
    assert shared.endswith("taken, SAME STRUCTURE (model.py:8)"), shared


def test_the_ledger_of_fusion_is_written_as_json_lines(tmp_path):
    file = tmp_path / "fusion.jsonl"
    good("opt", "-", "-p", "to-kernels,fuse-elementwise", "--emit", "none", "--ledger-json", file, text=GRAPH)
    run, *records = map(json.loads, file.read_text().splitlines())
    assert (run["record"], run["format"], run["passes"]) == ("run", 1, "to-kernels,fuse-elementwise")
    assert [r["number"] for r in records if r["taken"]] and records[0]["first"]["members"] == ["exp@-:2"]
    line = bad("opt", "-", "-p", "cse", "--ledger-json", file, "--split-input-file", text=GRAPH, code=2)
    assert "--ledger-json is of one module" in line
    assert "No such file" in bad("opt", "-", "-p", "cse", "--ledger-json", tmp_path / "no" / "file", text=GRAPH)


BREAKS = """
from dataclasses import dataclass
from mlirc.ir import ir
from mlirc.passes import register

@register
@dataclass(frozen=True)
class Breaks:
    "Gives a result no alias group."
    name = "breaks-groups"
    def run(self, function, ledger):
        function.attributes["mlirc.results"] = ir.ArrayAttr.get([ir.StringAttr.get("h0")])
"""
MENDS = BREAKS.replace("Breaks", "Mends").replace("breaks", "mends").replace('"h0"', '"g0"')


def test_verify_each_names_the_pass_even_if_a_later_one_mends_it(tmp_path):
    (tmp_path / "a.py").write_text(BREAKS + MENDS)
    arguments = ("opt", "-", "--import", tmp_path / "a.py", "-p", "breaks-groups,mends-groups")
    good(*arguments, text=GRAPH)
    assert "pass 'breaks-groups' left a form that does not verify" in bad(*arguments, "--verify-each", text=GRAPH)


# ---- what is written


def test_llvm_and_assembly():
    text = good("opt", "-", "--pipeline", "cpu", "--emit", "llvm", text=GRAPH).stdout
    assert "; ----- kernel_0 -----" in text and "define" in text and "; ----- graph -----" in text
    assert ".text" in good("opt", "-", "--pipeline", "cpu", "--emit", "asm", text=GRAPH).stdout


def test_nothing_is_written():
    assert good("opt", "-", "-p", "cse", "--emit", "none", text=GRAPH).stdout == ""


def test_a_drawing():
    text = good("opt", "-", "-p", "cse,to-kernels", "--emit", "dot", text=GRAPH).stdout
    assert text.startswith("digraph") and text.count("{") == text.count("}")
    assert '"mlircx.kernel exp' in text and "graph_arg0 -> graph_0;" in text and "graph_0 -> graph_1;" in text


GPU = GRAPH.replace(X, 'tensor<4x8xf32, {device = "cuda:0"}>')


def test_triton():
    text = good("opt", "-", "--pipeline", "gpu", "--emit", "triton", text=GPU).stdout
    assert "@triton.jit" in text and "tl.store" in text


def test_a_graph_of_a_cpu_is_moved_to_a_gpu():
    moved = good("opt", "-", "-p", "move-to-gpu", text=GRAPH).stdout
    on_gpu = good("opt", "-", "-p", "canonicalize", text=GPU).stdout
    assert moved.split("\n")[1:] == on_gpu.split("\n")[1:]  # but for the target
    assert "-p move-to-gpu" in bad("opt", "-", "--pipeline", "gpu", "--emit", "triton", text=GRAPH)
    text = good("opt", "-", "--pipeline", "gpu", "--target", "gpu{arch=sm_90}", "--emit", "triton", text=moved).stdout
    assert "@triton.jit" in text
    loop = good("opt", "-", "-p", "move-to-gpu", text=LOOP.replace("X", X)).stdout
    assert re.search(r'"mlirc.copy".* : \(tensor<i1, {device = "cuda:0"}>\) -> tensor<i1>\n', loop), "asked for"
    text = good("opt", "-", "--pipeline", "gpu", "--target", "gpu{arch=sm_90}", "--emit", "triton", text=loop).stdout
    assert "def kernel_0_exp" in text and "def kernel_0_lt" in text
    moved = good("opt", "-", "-p", "move-to-gpu", text=DRAWN).stdout
    assert r"{\22device\22: {\22device\22: \22cuda:0\22}}" in moved


@pytest.mark.full
def test_ptx():
    pytest.importorskip("triton")
    assert ".target sm_90" in good("opt", "-", "--pipeline", "gpu", "--emit", "ptx", text=GPU).stdout


def test_a_kind_that_is_none():
    line = bad("opt", "--emit", "f.mlir", code=2)
    assert "no kind 'f.mlir'; did you mean 'mlir'? there are mlir, llvm" in line and "--emit asm" in line
    assert "no mlirc.triton" in bad("opt", "-", "--pipeline", "cpu", "--emit", "triton", text=GRAPH)


def test_text_of_a_file_is_not_run(tmp_path):
    evil = f'"mlirc.triton"() {{sym_name = "k", source = "open(\'{tmp_path}/x\', \'w\')", signature = [], constants = {{}}, '
    evil += 'grid = ["1", "1", "1"], divisible = [], num_warps = 4 : i64, num_stages = 1 : i64} : () -> ()\n'
    assert "no mlirc.triton" in bad("opt", "-", "-p", "", "--emit", "ptx", text=evil)
    bad("opt", "-", "-p", "", "--emit", "ptx", text=evil + GPU)
    assert not (tmp_path / "x").exists()


DRAWN = """func.func @graph() -> tensor<4xf32> {
  %0 = "mlircx.aten"() {op = "aten.rand.default", aliases = "-1",
    args = "[[4], {\\22kwargs\\22: {\\22device\\22: {\\22device\\22: \\22cpu\\22}}}]"} : () -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
LOOP = """func.func @graph(%i: tensor<i64>, %x: X) -> X {
  %r:2 = "mlircx.while_loop"(%i, %x) ({
    func.func @condition(%j: tensor<i64>, %y: X, %o: tensor<i1>) {
      %c = "mlirc.constant"() {value = "3"} : () -> tensor<i64>
      %l = "mlirc.lt"(%j, %c) : (tensor<i64>, tensor<i64>) -> tensor<i1>
      "mlirc.assign"(%o, %l) : (tensor<i1>, tensor<i1>) -> ()
      return
    }
  }, {
    func.func @body(%j: tensor<i64>, %y: X) {
      %e = "mlirc.exp"(%y) : (X) -> X
      "mlirc.assign"(%y, %e) : (X, X) -> ()
      return
    }
  }) {carried = 2 : i64} : (tensor<i64>, X) -> (tensor<i64>, X)
  return %r#1 : X
}""".replace("X", "tensor<8xf32>")


def test_stats_of_regions():
    """What a loop does stands in tables of its own: its graph's kernels are none of them."""
    stats = shown("-p", "to-kernels", "--stats", text=LOOP)
    graph, condition, body = stats.split("@")[1:]
    assert "kernels        0" in graph and "body, each time that mlircx.while_loop runs it" in body
    assert "lt: reads" in condition and "exp: reads 32, writes 32, 8 flops" in body


@pytest.mark.parametrize("passes", ["", "to-kernels,fuse-elementwise,plan-memory"])
def test_of_a_table_read_by_an_index_the_rows_that_are_read_count(passes):
    text = """func.func @graph(%i: tensor<3xi64>, %w: tensor<1000x16xf32>) -> tensor<3x16xf32> attributes {mlirc.results = ["g0"]} {
      %0 = "mlirc.index"(%w, %i) {dims = "0", message = "out of range", place = 0 : i64, wraps = false}
        : (tensor<1000x16xf32>, tensor<3xi64>) -> tensor<3x16xf32>
      return %0 : tensor<3x16xf32>
    }"""
    assert re.search(rf"read +{3 * 8 + 3 * 16 * 4}\b", shown("-p", passes, "--stats", text=text))
