"""The command `mlirc opt`: what it runs, prints, refuses, and how it exits."""

import os
import re
import subprocess
import sys
import textwrap

import pytest
from click.testing import CliRunner

from mlirc import cli
from mlirc.lowering.pipeline.pass_manager import passes

X = "tensor<4x8xf32>"
GRAPH = f"""func.func @graph(%x: {X}) -> {X} attributes {{mlirc.results = ["g0"]}} {{
  %0 = "mlirc.exp"(%x) : ({X}) -> {X}
  %1 = "mlirc.exp"(%x) : ({X}) -> {X}
  %2 = "mlirc.add"(%0, %1) : ({X}, {X}) -> {X}
  return %2 : {X}
}}
"""


def run(*arguments, text=GRAPH, command=cli.opt):
    return CliRunner().invoke(command, [str(a) for a in arguments], input=text)


def good(*arguments, text=GRAPH):
    done = run(*arguments, text=text)
    assert done.exit_code == 0, done.stderr
    return done


def bad(*arguments, text=GRAPH, code=1):
    """The one line that it fails with."""
    done = run(*arguments, text=text)
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    assert done.stderr.endswith("\n") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "graph.mlir"
    path.write_text(GRAPH)
    return path


# ---- what runs


def test_passes_of_ours_and_upstream_run_in_order(file):
    text = good(file, "-p", "cse, to-kernels").stdout
    assert text.count('"mlircx.kernel"') == 2 and text.count('"mlirc.exp"') == 1


def test_a_dash_is_standard_input(file):
    assert good("-", "-p", "cse").stdout == good(file, "-p", "cse").stdout


def test_no_passes_print_the_module(file):
    done = good(file, "-p", "")
    assert done.stdout == good("-", "-p", "", text=done.stdout).stdout
    assert "the pipeline is empty" in done.stderr


def test_options_of_passes_have_an_effect(file):
    fused = good(file, "-p", "to-kernels,fuse-elementwise").stdout
    limited = good(file, "-p", "to-kernels,fuse-elementwise{max-ops=1}").stdout
    assert fused.count('"mlircx.kernel"') < limited.count('"mlircx.kernel"')
    chain = GRAPH.replace("(%x)", "(%0)").replace("(%0)", "(%x)", 1).replace("%0, %1", "%1, %1")
    reused, apart = (
        good("-", "-p", f"to-kernels,plan-memory{{reuse={reuse}}}", text=chain).stdout for reuse in ("true", "false")
    )
    assert 'mlirc.arena = "128"' in reused and 'mlirc.arena = "256"' in apart


def test_options_of_upstream_passes(file):
    assert "mlirc.add" in good(file, "-p", "canonicalize{max-iterations=3 top-down=false},cse").stdout
    nested = good(file, "-p", "func.func(cse,canonicalize{top-down=true})").stdout
    assert nested == good(file, "-p", "cse").stdout


@pytest.mark.parametrize(
    ("stage", "has", "has_not"),
    [
        ("simplify", "mlirc.exp", "mlircx.kernel"),
        ("fuse", "mlircx.kernel", "mlirc.arena"),
        ("plan", "mlircx.launch", "mlircx.run"),
        ("lower", "mlircx.run", "mlircx.launch"),
    ],
)
@pytest.mark.parametrize("pipeline", ["cpu", "strict"])
def test_standard_pipelines_stop_after_a_stage(pipeline, stage, has, has_not):
    text = good("-", "--pipeline", pipeline, "--stop-after", stage).stdout
    assert has in text and has_not not in text


def test_a_pipeline_runs_in_full_and_emits(file):
    assert "func.func @kernel_0" in good(file, "--pipeline", "cpu").stdout
    code = good(file, "--pipeline", "cpu", "--emit", "asm").stdout
    assert "# ----- kernel_0 -----" in code and "# ----- graph -----" in code and "ret" in code


def test_output_goes_to_a_file(file, tmp_path):
    out = tmp_path / "out.mlir"
    assert good(file, "-p", "cse", "-o", out).stdout == ""
    assert out.read_text() == good(file, "-p", "cse").stdout


def test_ir_is_printed_after_each_pass(file):
    done = good(file, "-p", "cse,to-kernels", "--print-ir-after-all")
    parts = re.split(r"// ----- after (\S+) -----\n", done.stderr)
    assert parts[1::2] == ["cse", "to-kernels"]
    assert '"mlirc.exp"(%arg0)' in parts[2] and "mlircx.kernel" not in parts[2]
    assert parts[4].rstrip() == done.stdout.rstrip()


def test_timing_lists_each_pass_and_the_total(file):
    lines = good(file, "-p", "cse,to-kernels,fuse-elementwise{max-ops=8}", "--timing").stderr.splitlines()
    assert [line.split()[-1] for line in lines] == ["cse", "to-kernels", "fuse-elementwise{max-ops=8}", "total"]
    milliseconds = [float(line.split()[0]) for line in lines]
    assert sum(milliseconds[:-1]) == pytest.approx(milliseconds[-1], abs=0.05)


def test_locations_are_printed_when_asked_for(file):
    assert f'loc("{file}":2:8)' in good(file, "-p", "cse", "--locations").stdout
    assert "loc(" not in good(file, "-p", "cse").stdout


def test_passes_are_listed_in_a_line_each():
    text = good("--list-passes").stdout
    for name in passes():
        assert re.search(rf"^{name} +\w", text, re.MULTILINE), name
    assert len(text.splitlines()) == len(passes()) + 1


def test_a_pass_is_explained():
    text = good("--help-pass", "fuse-elementwise").stdout
    assert "before" in text and "after" in text and re.search(r"^  max-ops=64  \(int\)$", text, re.MULTILINE)
    assert "runs on the form kernel" in text
    for name in passes():
        assert good("--help-pass", name).stdout.startswith(f"{name}\n\n"), name
    assert bad("--help-pass", "fuse-elementwize", code=2).startswith(
        "opt: --help-pass: no pass 'fuse-elementwize'; did you mean 'fuse-elementwise'?\n"
    )


def test_ops_are_listed():
    text = good("--list-ops").stdout
    assert re.search(r"^mlirc.exp +aten.exp.default$", text, re.MULTILINE)
    assert "mlirc.slot" in text and "mlircx.kernel" in text


@pytest.mark.parametrize("again", [False, True])
def test_a_file_of_passes_can_be_imported(tmp_path, again):
    code = """
        from dataclasses import dataclass
        from mlirc.lowering.pipeline.pass_manager import register

        @register
        @dataclass(frozen=True)
        class Mark:
            "Marks the function."
            name = "mark-function"
            def run(self, function, ledger):
                function.attributes["mlirc.marked"] = function.attributes["sym_name"]
    """
    path = tmp_path / "mark.py"
    path.write_text(textwrap.dedent(code))
    assert "mark-function" not in passes()  # the other case's is gone
    assert 'mlirc.marked = "graph"' in good("-", "--import", path, "-p", "mark-function").stdout


# ---- what is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("csee", r"no pass 'csee', nor is it one of MLIR's; did you mean 'cse'\?$"),
        ("func.func(csee)", "no pass 'csee'"),
        ("to_kernels", r"no pass 'to_kernels', nor is it one of MLIR's; did you mean 'to-kernels'\?$"),
        (
            "fuse-elementwise{max-op=3}",
            "pass 'fuse-elementwise' has no option 'max-op'; did you mean 'max-ops'\\? its options: max-ops, max-reads",
        ),
        ("decompose{x=1}", "pass 'decompose' has no option 'x'; its options: none"),
        ("fuse-elementwise{max-ops=many}", "max-ops takes int, not 'many'"),
        ("plan-memory{reuse=1}", "reuse is true or false, not '1'"),
        ("plan-memory{reuse}", "'reuse' in 'plan-memory{reuse}' is not an option: name=value"),
        ("canonicalize{max-iter=3}", "no such option max-iter"),
        ("cse{", "'{' is not closed"),
        ("cse}", "'}' at column 4 of 'cse}' closes nothing"),
        ("cse{a=1)", "closes nothing"),
        ("cse{a=1}b", "goes on after the options"),
        ("cse,,cse", "'' in 'cse,,cse' is not a pass"),
        ("decompose(cse)", "no passes are nested in 'decompose'"),
    ],
)
def test_wrong_pipelines(text, message):
    assert re.search(message, bad("-", "-p", text, code=2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no FILE; - is standard input"),
        (("-",), "either -p PASSES or --pipeline NAME"),
        (("-", "-p", "cse", "--pipeline", "cpu"), "either -p PASSES or --pipeline NAME"),
        (("-", "-p", "cse", "--stop-after", "fuse"), "--stop-after goes with --pipeline"),
        (
            ("-", "--pipeline", "gpux"),
            "no pipeline 'gpux'; did you mean 'gpu'\\? there are cpu, gpu, gpu-frozen, strict",
        ),
        (("-", "--pipeline", "cpu", "--stop-after", "x"), "no stage 'x'; there are simplify, fuse, plan"),
        (("-", "--import", "no_such_module", "-p", "cse"), "--import no_such_module: No module named"),
        (("-", "--import", "no_such_file.py", "-p", "cse"), "--import no_such_file.py: .*No such file"),
    ],
)
def test_wrong_command_lines(arguments, message):
    assert re.search(message, bad(*arguments, code=2))


def test_files_that_cannot_be_read_or_written(tmp_path, file):
    assert f"{tmp_path}/none.mlir: No such file or directory" in bad(tmp_path / "none.mlir", "-p", "cse", code=2)
    assert f"{tmp_path}: Is a directory" in bad(tmp_path, "-p", "cse")
    assert "No such file or directory" in bad(file, "-p", "cse", "-o", tmp_path / "no" / "out.mlir")
    binary = tmp_path / "binary"
    binary.write_bytes(bytes(range(256)))
    assert f"{binary}: byte 128 is not UTF-8" in bad(binary, "-p", "cse")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (f") -> {X}\n  return", ") -> tensor<4x8xf32\n  return", r":4:82: expected '>' in tensor type"),
        ('"mlirc.add"', '"mlirc.addd"', r":4:8: unregistered operation 'mlirc.addd'.*; did you mean 'mlirc.add'\?"),
        ("%0, %1", "%0, %7", r":4:24: use of undeclared SSA value name"),
        (f"return %2 : {X}", "return %2 : tensor<4xf32>", r":5:10: use of value '%2' expects different type"),
        (f"return %2 : {X}", "return", r":5:3: 'func.return' op has 0 operands, but enclosing function .* returns 1"),
        ('"g0"', '"h0"', r"func.return .*:5:3\): \"h0\" is no alias group"),
        ('"mlirc.add"(', '"mlirc.slot"(', r"mlirc.slot"),
    ],
)
def test_wrong_modules(tmp_path, old, new, message):
    assert GRAPH.count(old) == 1
    path = tmp_path / "wrong.mlir"
    path.write_text(GRAPH.replace(old, new))
    line = bad(path, "-p", "cse")
    assert re.search(message, line) and str(path) in line
    assert re.search(message.replace(re.escape(str(path)), "-"), bad("-", "-p", "cse", text=path.read_text()))


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ("", "fuse-elementwise", r"takes the kernel form, and mlirc.exp \(-:3:10\) .*: run to-kernels first"),
        ("", "plan-memory", "takes the kernel form, .*: run to-kernels first"),
        ("", "lower-kernels", "takes the memory form, .*: run to-kernels, plan-memory first"),
        ("to-kernels", "lower-kernels", "takes the memory form, and mlircx.kernel .*: run plan-memory first"),
        (
            "to-kernels,plan-memory",
            "to-kernels",
            "takes the graph form, .*: the function is past it, in the memory form",
        ),
        ("to-kernels,plan-memory", "plan-memory", "takes the kernel form, .*is past it, in the memory form"),
        (
            "to-kernels,plan-memory,lower-kernels",
            "lower-kernels",
            "takes the memory form, .*is past it, in the lowered",
        ),
    ],
)
def test_a_pass_says_which_comes_first(first, then, message):
    given = good("-", "-p", first).stdout
    assert re.search(f"pass '{then}' {message}", bad("-", "-p", then, text=given))


def test_a_function_of_another_dialect_is_no_form_of_ours():
    text = f"func.func @graph(%x: {X}) -> {X} {{\n  %0 = math.exp %x : {X}\n  return %0 : {X}\n}}"
    assert "math.exp" in good("-", "-p", "canonicalize,cse", text=text).stdout
    assert re.search(r"takes the graph form, and math.exp \(-:2:8\)", bad("-", "-p", "to-kernels", text=text))


def test_emit_needs_a_lowered_module(file):
    for kind in ("asm", "llvm"):
        assert bad(file, "--emit", kind).endswith(
            f"--emit {kind}: the module is in the graph form, and code is made of the lowered one: --pipeline cpu\n"
        )


def test_the_traceback_of_a_failure(file):
    done = run(file, "-p", "plan-memory", "--traceback")
    assert done.exit_code == 1 and "run to-kernels first" in str(done.exception)
    assert done.exception.__cause__ is not None


# ---- as commands


@pytest.fixture(scope="module")
def scripts():
    return os.path.dirname(sys.executable)


def test_commands(scripts):
    done = subprocess.run([f"{scripts}/mlirc", "opt", "-", "-p", "cse"], input=GRAPH, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("mlirc.exp") == 1, done.stderr
    done = subprocess.run([f"{scripts}/mlirc-opt", "none.mlir", "-p", "cse"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mlirc-opt: none.mlir: No such file or directory\n"


def test_a_reader_that_goes_away_is_no_crash(scripts):
    command = f"{scripts}/mlirc opt --list-ops | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
