"""The command `mlirc run`: what it executes, prints and refuses."""

import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.execution.accuracy import compared
from mlirc.execution.random_inputs import random_inputs
from tests.commands.command import bad, good

X = "tensor<4x8xf32>"
GRAPH = f"""func.func @graph(%x: {X}, %y: {X}) -> {X} attributes {{mlirc.results = ["g0"]}} {{
  %0 = "mlirc.exp"(%x) : ({X}) -> {X}
  %1 = "mlirc.sub"(%0, %y) : ({X}, {X}) -> {X}
  return %1 : {X}
}}
"""
STAGES = ("simplify", "fuse", "plan", "lower")


@pytest.fixture
def inputs(tmp_path):
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    save_file({"arg0": x, "arg1": y}, tmp_path / "in.safetensors")
    return x, y, tmp_path / "in.safetensors"


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.parametrize("stage", [None, *STAGES])
def test_every_stage_is_executed(stage, target, inputs, tmp_path):
    x, y, path = inputs
    text = GRAPH if stage is None else good("opt", "-", "--pipeline", "cpu", "--stop-after", stage, text=GRAPH).stdout
    out = tmp_path / "out.safetensors"
    done = good("run", "-", "--inputs", path, "--target", target, "-o", out, text=text)
    assert re.fullmatch(r"result0: float32 \[4, 8\], from \S+ to \S+, mean \S+\n", done.stdout)
    torch.testing.assert_close(load_file(out)["result0"], x.exp() - y)


@pytest.mark.parametrize("passes", ["", "cse", "to-kernels", "to-kernels,fuse-elementwise", "to-kernels,plan-memory"])
@pytest.mark.parametrize("stage", [None, "fuse", "plan", "lower"])
def test_passes_and_what_is_left(passes, stage, inputs, tmp_path):
    x, y, path = inputs
    text = GRAPH if stage is None else good("opt", "-", "--pipeline", "cpu", "--stop-after", stage, text=GRAPH).stdout
    if stage is not None and passes not in ("", "cse"):
        return
    out = tmp_path / "out.safetensors"
    good("run", "-", "-p", passes, "--inputs", path, "-o", out, text=text)
    torch.testing.assert_close(load_file(out)["result0"], x.exp() - y)


def test_values_are_printed(inputs):
    x, _, path = inputs
    text = good(
        "run", "-", "--inputs", path, "--target", "interpreter", "--print", "%0", "--print", "arg1", text=GRAPH
    ).stdout
    numbers = [float(n) for n in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text.split("\n")[1])]
    torch.testing.assert_close(torch.tensor(numbers), x.exp().flatten())
    assert "arg1 = float32 [4, 8]" in text


def test_strides_are_those_of_the_argument(tmp_path):
    t = 'tensor<4x8xf32, {stride = "1, 4"}>'
    text = f'func.func @graph(%x: {t}) -> {t} {{\n  %0 = "mlirc.neg"(%x) : ({t}) -> {t}\n  return %0 : {t}\n}}'
    x = torch.randn(4, 8)
    save_file({"arg0": x}, tmp_path / "in.safetensors")
    good("run", "-", "--inputs", tmp_path / "in.safetensors", "-o", tmp_path / "out.safetensors", text=text)
    torch.testing.assert_close(load_file(tmp_path / "out.safetensors")["result0"], -x)


def test_calls_are_timed():
    assert re.fullmatch(r"\d+\.\d us, the median of 5 calls\n", good("run", "-", "--repeat", "5", text=GRAPH).stderr)


# ---- random inputs


def dumped(function, *args, folder, **options):
    with torch.no_grad():
        torch.compile(function, backend="mlirc", options={"dump": folder, "cache": False}, **options)(*args)
    (path,) = folder.glob("*_import.mlir")
    return path


def test_random_inputs_agree_and_repeat(tmp_path):
    path = dumped(lambda x, y: (x @ y).softmax(0), torch.randn(5, 7), torch.randn(7, 3), folder=tmp_path, dynamic=True)
    with context():
        module = ir.Module.parseFile(str(path))
        first, again, other = (random_inputs(module, seed) for seed in (1, 1, 2))
    tensors = [x for x in first if isinstance(x, torch.Tensor)]
    assert tensors[0].shape[1] == tensors[1].shape[0]
    assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(first, other, strict=True))
    assert good("run", path, "--check-each-pass").stdout.startswith("right")


def test_indices_are_within_and_roots_are_taken_of_positive_numbers(tmp_path):
    def function(t, i, v):
        return torch.nn.functional.embedding(i, t) * v.sqrt() + v.log()

    path = dumped(function, torch.randn(3, 8), torch.tensor([0, 2, 1, 2]), torch.rand(8) + 1, folder=tmp_path)
    with context():
        drawn = random_inputs(ir.Module.parseFile(str(path)), 0)
    (index,) = (x for x in drawn if x.dtype == torch.int64)
    assert index.max() <= 2 and all((x > 0).all() for x in drawn if x.shape == (8,))
    out = tmp_path / "out.safetensors"
    good("run", path, "-o", out)
    assert load_file(out)["result0"].isfinite().all()


LOOP = """func.func @graph(%i: tensor<i64>, %x: tensor<4xf32>) -> tensor<i64> {
  %r:2 = "mlircx.while_loop"(%i, %x) ({
    func.func @condition(%j: tensor<i64>, %y: tensor<4xf32>, %o: tensor<i1>) {
      %c = "mlirc.constant"() {value = "LAST"} : () -> tensor<i64>
      %l = "mlirc.ne"(%j, %c) : (tensor<i64>, tensor<i64>) -> tensor<i1>
      "mlirc.assign"(%o, %l) : (tensor<i1>, tensor<i1>) -> ()
      return
    }
  }, {
    func.func @body(%j: tensor<i64>, %y: tensor<4xf32>) {
      %c = "mlirc.constant"() {value = "1"} : () -> tensor<i64>
      %n = "mlirc.add"(%j, %c) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      "mlirc.assign"(%j, %n) : (tensor<i64>, tensor<i64>) -> ()
      return
    }
  }) {carried = 2 : i64} : (tensor<i64>, tensor<4xf32>) -> (tensor<i64>, tensor<4xf32>)
  return %r#0 : tensor<i64>
}
"""


def test_a_loop_whose_counter_is_drawn_ends():
    """Seed 1 draws 5 first, from which a loop that counts up to 1 does not end."""
    drawn = torch.randint(0, 10, [], generator=torch.Generator().manual_seed(1))
    assert drawn > 1
    assert "result0: int64 [], from 1 to 1" in good("run", "-", "--random", "1", text=LOOP.replace("LAST", "1")).stdout
    line = bad("run", "-", text=LOOP.replace("LAST", "-1"))
    assert "give --inputs" in line and "a loop does not end soon with them" in line


def test_a_private_operator_that_looks_at_its_operands_is_called(tmp_path):
    path = dumped(
        lambda x: torch.linalg.det(x) + torch.linalg.svdvals(x).sum(-1), torch.randn(3, 4, 4), folder=tmp_path
    )
    assert "_linalg_det" in path.read_text() and "_linalg_svd" in path.read_text()
    assert good("run", path, "--check-each-pass").stdout.startswith("right")


# ---- what is right


def test_the_limit_is_twice_the_given_error_and_some_roundings():
    exact = torch.ones(4, dtype=torch.float64)
    own = torch.tensor([1.0, 1.0, 1.0, 1.001])
    assert compared("r", 0, own, exact, torch.tensor([1.0015, 1.0, 1.0, 1.0])) is None
    wrong = compared("r", 0, own, exact, torch.tensor([1.0, 1.0, 0.99, 1.0]))
    assert (
        wrong.index == (2,)
        and wrong.error == pytest.approx(0.01, rel=1e-5)
        and wrong.limit == pytest.approx(0.002, rel=0.01)
    )
    assert compared("r", 0, own, exact, torch.tensor([1.0, torch.nan, 1.0, 1.0])).index == (1,)
    assert compared("r", 0, own, exact, torch.tensor([1.0, 1.0, 1.0])).error == float("inf")
    inf = torch.tensor([torch.inf])
    assert compared("r", 0, inf, inf.double(), inf) is None
    assert compared("r", 0, inf, inf.double(), -inf) is not None
    assert compared("r", 0, torch.tensor([3]), torch.tensor([3]), torch.tensor([4])) is not None
    assert compared("r", 0, torch.tensor([3]), torch.tensor([4]), torch.tensor([4])) is None


# ---- what is refused


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (("run",), "no FILE; - is standard input", 2),
        (("run", "-", "--target", "cpuu"), r"no target 'cpuu'; did you mean 'cpu'\?", 2),
        (("run", "-", "--target", "gpu"), "no tensor of - is on a GPU", 2),
        (("run", "-", "--inputs", "a", "--random", "1"), "one of them", 2),
        (("run", "-", "--inputs", "none.safetensors"), "none.safetensors: No such file", 2),
        (("run", "-", "--pipeline", "cpuu"), r"no pipeline 'cpuu'; did you mean 'cpu'\?", 2),
        (("run", "-", "-p", "csee"), r"no pass 'csee'.*did you mean 'cse'\?", 2),
        (("run", "-", "-p", "plan-memory"), "takes the kernel form", 1),
        (("run", "-", "--print", "result1"), r"no value 'result1'; did you mean 'result0'\?", 2),
        (("run", "-", "--print", "%0"), "--target interpreter has values", 2),
        (("run", "-", "--repeat", "3", "--print", "arg0", "--print", "arg9"), r"^\w+ run: --print: no value 'arg9'", 2),
        (("run", "-", "--import", "no_such.py"), "--import no_such.py: .*No such file", 2),
        (("run", "-", "--repeat", "3", "--target", "interpreter"), "--repeat measures machine code", 2),
    ],
)
def test_wrong_command_lines(arguments, message, code):
    assert re.search(message, bad(*arguments, text=GRAPH, code=code))


@pytest.mark.parametrize("text", ["", "module {}", "func.func private @f()", "garbage", "func.func @graph() { return"])
def test_files_without_a_graph(text):
    bad("run", "-", text=text)


def test_inputs_that_do_not_fit(tmp_path):
    path = tmp_path / "in.safetensors"
    save_file({"arg0": torch.randn(4, 8)}, path)
    assert f"{path}: no arg1; it has arg0" in bad("run", "-", "--inputs", path, text=GRAPH)
    save_file({"arg0": torch.randn(4, 8), "arg1": torch.randn(4, 9)}, path)
    assert "arg1 is torch.float32 [4, 9]; the module takes torch.float32 [4, 8]" in bad(
        "run", "-", "--inputs", path, text=GRAPH
    )
    for junk in (b"", b"\xff" * 100, (10**9).to_bytes(8, "little") + b"{}", path.read_bytes()[:40]):
        path.write_bytes(junk)
        assert str(path) in bad("run", "-", "--inputs", path, text=GRAPH)
    assert "regular file" in bad("run", "-", "--inputs", tmp_path, text=GRAPH)


def test_inputs_that_the_module_does_not_take(tmp_path):
    path = tmp_path / "in.safetensors"
    save_file({f"arg{k}": torch.randn(4, 8) for k in range(3)}, path)
    assert f"{path}: arg2: the module takes 2 arguments" in bad("run", "-", "--inputs", path, text=GRAPH)


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_arguments_that_are_written(target, tmp_path):
    """They are shown and kept beside the results; those that keep their bits, NaN among them, are not."""
    x, y = torch.randn(4, 8), torch.full((4, 8), float("nan"))
    path, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save_file({"arg0": x, "arg1": y}, path)
    text = GRAPH.replace("return %1", f'"mlirc.assign"(%x, %0) : ({X}, {X}) -> ()\n  return %1')
    done = good("run", "-", "--inputs", path, "--target", target, "-o", out, text=text)
    assert (
        re.search(r"^arg0, written: float32 \[4, 8\], from ", done.stdout, re.MULTILINE) and "arg1" not in done.stdout
    )
    assert load_file(out).keys() == {"result0", "arg0"}
    torch.testing.assert_close(load_file(out)["arg0"], x.exp())


def test_what_is_wrong_with_a_file_names_the_file_and_the_source_line(tmp_path):
    path = tmp_path / "a.mlir"
    path.write_text(
        GRAPH.replace("mlirc.exp", "mlirc.expp").replace(f"-> {X}\n  %1", f'-> {X} loc("model.py":3:0)\n  %1')
    )
    assert f"{path}: model.py:3: unregistered operation 'mlirc.expp'" in bad("run", path)
    path.write_text(f'module attributes {{mlirc.target = "cpu{{vector-bytes=63}}"}} {{\n{GRAPH}}}')
    assert f"{path}: mlirc.target: cpu: vector-bytes is 64" in bad("run", path)


def test_an_operator_of_a_stranger_is_not_called(tmp_path):
    call = '"mlircx.aten"(%x) {op = "aten.save.default", args = "[]", aliases = "-1"}'
    bad("run", "-", text=GRAPH.replace('"mlirc.exp"(%x)', call))


def test_a_value_that_no_op_gives():
    line = bad("run", "-", "--target", "interpreter", "--print", "%9", text=GRAPH, code=2)
    assert "--print: no op that ran gives '%9'" in line


def test_the_only_function_stands_for_the_graph_and_says_so():
    done = good("run", "-", text=GRAPH.replace("@graph", "@one"))
    assert done.stdout.startswith("result0: ") and done.stderr == "-: no @graph: its only function @one was called\n"
    done = good("run", "-", text="func.func @graph() { return }")
    assert (done.stdout, done.stderr) == ("", "@graph returns nothing\n")
