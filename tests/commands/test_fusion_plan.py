"""`mlirc opt --save-plan` and `--fusion-plan`."""

import json

from tests.commands.command import bad, good, run

X = "tensor<4x8xf32>"
GRAPH = f"""func.func @graph(%x: {X}) -> {X} attributes {{mlirc.results = ["g0"]}} {{
  %0 = "mlirc.exp"(%x) : ({X}) -> {X}
  %1 = "mlirc.neg"(%0) : ({X}) -> {X}
  return %1 : {X}
}}
"""
PASSES = ("-p", "to-kernels,fuse-elementwise")


def test_saved_edited_and_replayed(tmp_path):
    file, plan = tmp_path / "003_forward_1_simplify.mlir", tmp_path / "plan.json"
    file.write_text(GRAPH)
    fused = good("opt", file, *PASSES, "--save-plan", plan).stdout
    text = plan.read_text()
    assert json.loads(text)["graphs"][0]["kind"] == "forward" and text.count('"decision": "taken"') == 1
    assert good("opt", file, *PASSES, "--fusion-plan", plan).stdout == fused and fused.count("mlircx.kernel") == 1
    plan.write_text(text.replace('"taken"', '"forbid"'))
    done = good("opt", file, *PASSES, "--fusion-plan", plan, "--ledger")
    assert done.stdout.count("mlircx.kernel") == 2 and "refused, PLAN" in done.stderr
    plan.write_text(text.replace('"taken"', '"force"'))
    assert good("opt", file, "-p", "to-kernels,fuse-elementwise{max-ops=1}", "--fusion-plan", plan).stdout == fused


def test_what_is_wrong_is_one_line(tmp_path):
    plan = tmp_path / "plan.json"
    good("opt", "-", *PASSES, "--emit", "none", "--save-plan", plan, text=GRAPH)
    text = plan.read_text()
    plan.write_text(text.replace("exp@-:2", "exq@-:2"))
    line = bad("opt", "-", *PASSES, "--fusion-plan", plan, text=GRAPH)
    assert "entry 0 (taken exq@-:2 -> neg@-:3): @graph has no kernel 'exq@-:2'; did you mean 'exp@-:2'?" in line
    plan.write_text(text.replace('"taken"', '"force"'))
    assert "no pass that ran fuses" in bad("opt", "-", "-p", "to-kernels", "--fusion-plan", plan, text=GRAPH)
    plan.write_bytes(text.encode()[:-9] + b"\xff")
    assert f"{plan}: byte" in bad("opt", "-", *PASSES, "--fusion-plan", plan, text=GRAPH)
    assert "no regular file" in bad("opt", "-", *PASSES, "--fusion-plan", tmp_path, text=GRAPH)
    assert "No such file" in bad("opt", "-", *PASSES, "--fusion-plan", tmp_path / "none", text=GRAPH, code=2)
    both = ("--split-input-file", "--fusion-plan", plan)
    assert "is of one module" in bad("opt", "-", *PASSES, *both, text=GRAPH, code=2)
    kept = plan.read_bytes()
    done = run("opt", "-", "-p", "nothing", "--save-plan", plan, text=GRAPH)
    assert done.exit_code == 2 and plan.read_bytes() == kept  # what failed writes over nothing
