"""What is wrong with a command line or a file: one line that says what and where, exit code 1 or 2, no traceback, nothing written.

Every subcommand and every option that takes a value is held: one that is new needs an entry here.
"""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest
import torch

from mlirc.cli import main
from tests.commands.command import run

X = "tensor<4xf32>"
GRAPH = f'func.func @graph(%x: {X}) -> {X} {{\n  %0 = "mlirc.exp"(%x) : ({X}) -> {X}\n  return %0 : {X}\n}}\n'
FILES = {
    "good.mlir": GRAPH,
    "good.py": "print()\n",
    "truncated.mlir": GRAPH[:60],
    "bytes.mlir": b"\xff\xfe\x00\x01" * 40,
    "zeros.mlir": GRAPH + "\0",
    "deep.mlir": "module attributes {x = " + "[" * 100_000,
    "other.mlir": GRAPH.replace("mlirc.exp", "mlirc.exp_of_another_version"),
    "newer.mlir": "module attributes {mlirc.stage = 7} {\n" + GRAPH + "}\n",
    "empty.mlir": "",
    "no_graph.mlir": GRAPH.replace("@graph", "@one") + GRAPH.replace("@graph", "@two"),
    "device.mlir": GRAPH.replace(X, 'tensor<4xf32, {device = "tpu:9"}>'),
    "wrong_type.mlir": GRAPH.replace(f"-> {X} {{", "-> tensor<5xf32> {"),
    "raises.py": "raise ValueError('two\\nlines')\n",
    "syntax.py": "def f(\n",
    "exits.py": "import sys; sys.exit(0)\n",
    "no_pass.py": "from mlirc.passes import register\n\n@register\nclass Mine:\n    name = 'cse'\n    run = print\n",
    "not.safetensors": "no tensors",
    "not.json": "{",
    "list.json": "[1]",
}
MODULES = [
    name for name in FILES if name.endswith(".mlir") and name not in ("good.mlir", "empty.mlir", "no_graph.mlir")
]
WRITES = ["missing/x", "folder", "a\0b", "good.mlir/x", ""]
OPTIONS = {  # values that are wrong for any command
    "--passes": ["nowhere", "cse{", "cse{max=1}", "canonicalize,,", "fuse-elementwise{max-ops=x}", "\0"],
    "--pipeline": ["nowhere", "cpu-nowhere"],
    "--start-after": ["nowhere", "cse#9"],
    "--stop-after": ["nowhere"],
    "--omit": ["nowhere", "to-kernels", "cse,,", "\x00"],
    "--passes-after": ["nowhere=cse", "fuse", "fuse=nowhere", "="],
    "--passes-before": ["nowhere=cse", "fuse", "fuse=nowhere", "="],
    "--rewrites": ["nowhere=1", "cse", "cse=-1", "cse=2-1", "cse=" + "9" * 40 + "x"],
    "--import": ["raises.py", "syntax.py", "exits.py", "no_pass.py", "gone.py", "no.such.module", "", "folder", "\0"],
    "--inputs": ["gone", "folder", "not.safetensors", "good.mlir", ""],
    "--random": ["x", "9" * 30],
    "--target": ["nowhere", "cpu{vector-bytes=3}", "", "\0"],
    "--repeat": ["0", "x", "-1"],
    "--print": ["result9", "nowhere"],
    "--emit": ["nowhere", ""],
    "--print-ir-before": ["nowhere"],
    "--print-ir-after": ["nowhere"],
    "--ledger-json": WRITES,
    "--save-plan": WRITES,
    "--fusion-plan": ["gone", "folder", "not.json", "list.json", "good.mlir"],
    "--help-pass": ["nowhere", ""],
    "--help-op": ["nowhere", ""],
    "--measure-most": ["0", "x"],
    "--rounds": ["0", "x"],
    "--compilations": ["1", "11", "x"],
    "--check": [],  # any command
    "--slower-than": ["-1", "x"],
    "--timeout": ["0", "x"],
    "--models": ["nowhere", ""],
    "--ways": ["nowhere"],
    "--dtypes": ["nowhere"],
    "--captures": ["gone", "folder", "good.mlir"],
    "--threads": ["0", "x"],
    "--json": WRITES,
    "--out": ["good.mlir", "full", "good.mlir/x", "a\0b"],
    "--profile": ["gone", "folder", "not.json", "list.json"],
    "--seconds": ["-1", "x"],
    "--missing": ["gone.py", "folder", "raises.py", "syntax.py"],
    "--ops": [],  # test_ops.py: it takes seconds to import
    "-o": WRITES,
}
LINES = {  # a command line that is right, but for what is asked of it; {} is the output
    "opt": ["good.mlir", "--pipeline", "cpu"],
    "run": ["good.mlir", "--pipeline", "cpu"],
    "bisect": ["good.mlir", "--pipeline", "cpu", "--target", "interpreter"],
    "compare": ["cpu", "strict", "good.py"],
    "profile": ["good.py"],
    "capture": ["good.py", "--out", "kept"],
    "report": ["full"],
    "ops": ["--missing", "good.py"],
    "cache info": [],
    "cache clear": [],
    "doctor": [],
}
INSTEAD = {  # of the right line, for options that exclude a part of it
    ("opt", "--passes"): ["good.mlir"],
    ("run", "--passes"): ["good.mlir"],
    ("bisect", "--passes"): ["good.mlir"],
    ("bisect", "--target"): ["good.mlir"],
    ("opt", "--measure-most"): ["good.mlir", "--pipeline", "cpu", "--ledger-json", "-", "--measure"],
    ("opt", "--rounds"): ["good.mlir", "--pipeline", "cpu", "--ledger-json", "-", "--measure"],
    ("opt", "--inputs"): ["good.mlir", "--pipeline", "cpu", "--ledger-json", "-", "--measure"],
    ("compare", "--models"): ["cpu", "strict"],
    ("compare", "--captures"): ["cpu", "strict"],
    ("compare", "--ways"): ["cpu", "strict", "--models", "mlp", "--small"],
    ("compare", "--dtypes"): ["cpu", "strict", "--models", "mlp", "--small"],
    ("ops", "--missing"): [],
    ("capture", "--out"): ["good.py"],
}
SUBJECTS = {  # what stands for FILE, DIR or SCRIPT.py, wrong
    "opt": (["gone", "folder", "a\0b", *MODULES], ["--pipeline", "cpu"]),
    "run": (["gone", "folder", "a\0b", "empty.mlir", "no_graph.mlir", *MODULES], ["--pipeline", "cpu"]),
    "bisect": (
        ["gone", "folder", "a\0b", "empty.mlir", "no_graph.mlir", "gone.py", *MODULES],
        ["--target", "interpreter"],
    ),
    "compare": (["gone.py", "folder", "syntax.py", "raises.py", "good.py"], []),
    "profile": (["gone.py", "folder", "syntax.py", "raises.py", "good.mlir"], []),
    "capture": (["gone.py", "folder", "a\0b"], ["--out", "kept"]),
    "report": (["gone", "folder", "good.mlir", "a\0b"], []),
}


def commands(group=main, path=()):
    for name, command in group.commands.items():
        yield from (
            commands(command, (*path, name))
            if isinstance(command, click.Group)
            else [(" ".join((*path, name)), command)]
        )


COMMANDS = dict(commands())


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "folder").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/000.json").write_text(json.dumps({"format": 1, "number": 0, "kind": "inference", "stages": {}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLIRC_CACHE_DIR", "off")
    return tmp_path


def state(folder: Path):
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and "__pycache__" not in p.parts}


def refused(folder, *arguments):
    """Why the command is wrong, or "" where it fails as it should."""
    before = state(folder)
    done = run(*arguments)
    if not isinstance(done.exception, SystemExit):
        return f"raised {done.exception!r}"
    if done.exit_code not in (1, 2):
        return f"exit code {done.exit_code}: {done.output[-300:]}"
    lines = [line for line in done.stderr.splitlines() if not line.startswith("  ")]
    if len(list(filter(None, lines))) != 1 or "Traceback" in done.stderr:
        return f"{len(lines)} lines: {done.stderr[-500:]}"
    return "" if state(folder) == before else "wrote files"


def test_every_command_and_option_is_held():
    assert LINES.keys() == COMMANDS.keys()
    for name, command in COMMANDS.items():
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag and option.name != "help":
                assert option.opts[-1] in OPTIONS, f"{name} {option.opts[-1]}: which values are wrong?"
        if any(isinstance(p, click.Argument) and p.nargs == 1 for p in command.params):
            assert name in SUBJECTS, name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_value_is_one_line(name, here):
    wrong = {}
    words = name.split()
    cases = [[*LINES[name], "--no-such-option"]] if name not in ("bisect", "capture", "ops") else []
    for option in COMMANDS[name].params:
        for value in OPTIONS.get(option.opts[-1], ()) if isinstance(option, click.Option) else ():
            cases.append([*INSTEAD.get((name, option.opts[-1]), LINES[name]), option.opts[-1], value])
    for case in cases:
        if why := refused(here, *words, *case):
            wrong[" ".join(case)] = why
    assert not wrong, "\n".join(f"{name} {case}: {why}" for case, why in wrong.items())


def test_a_device_that_there_is_not_is_told_in_the_same_words(here):
    lines = {
        run(name, "device.mlir", *words).stderr.partition(": ")[2] for name, *words in (("opt", "-p", "cse"), ("run",))
    }
    assert len(lines) == 1 and "no device 'tpu:9'; tensors are on cpu or on cuda:0" in lines.pop()


def test_an_empty_module_says_so(here):
    done = run("opt", "empty.mlir", "--pipeline", "cpu")
    assert done.exit_code == 0 and done.stderr == "empty.mlir: the module is empty: passes have nothing to run on\n"


def test_a_module_without_a_graph_says_so(here):
    done = run("opt", "no_graph.mlir", "--pipeline", "cpu")
    said = "no_graph.mlir: the module has no function @graph; it has one, two: passes run on what is there, and `mlirc run` runs none\n"
    assert done.exit_code == 0 and done.stderr == said and "@kernel_" in done.stdout
    done = run("opt", "empty.mlir", "-p", "", "--emit", "llvm")
    assert done.exit_code == 1 and "no function that machine code is made of" in done.stderr


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("words", [("opt", "-p", ""), ("run",)])
def test_a_full_disk_leaves_no_half_a_file(here, words, there):
    """What was there stays; what was not is not there."""
    if there:
        (here / "out").write_text("as it was")
    good = state(here)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60, limits[1]))
    try:
        done = run(words[0], "good.mlir", *words[1:], "-o", "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.exit_code == 1 and done.stderr.splitlines()[-1].endswith("out: File too large"), done.stderr
    assert state(here) == good


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_wrong_file_is_one_line(name, here):
    files, rest = SUBJECTS[name]
    before = ["cpu", "strict"] if name == "compare" else []
    wrong = {file: why for file in files if (why := refused(here, name, *before, file, *rest))}
    assert not wrong, "\n".join(f"{name} {file!r}: {why}" for file, why in wrong.items())


OVER = (
    "run good.mlir --pipeline cpu -o good.mlir",
    "bisect good.mlir --pipeline cpu -o good.mlir",
    "opt good.mlir --pipeline cpu --emit none --save-plan good.mlir",
    "opt good.mlir --pipeline cpu --emit none --ledger-json good.mlir",
    "opt good.mlir --pipeline cpu -o new --save-plan ./new",
    "report full -o full/000.json",
    "report full --profile rows.json -o rows.json",
    "profile full --json full/000.json",
    "compare cpu strict --captures full --json full/000.json",
    "compare cpu strict good.py --json good.py",
    "profile good.py --json good.py",
    "ops --missing good.py --json good.py",
)


@pytest.mark.parametrize("line", OVER)
def test_no_input_is_written_over(line, here):
    """But by `opt FILE -o FILE`, which reads it whole before."""
    (here / "rows.json").write_text(json.dumps({"graphs": [{"name": "000_inference", "rows": []}]}))
    assert not refused(here, *line.split())
    assert run(*line.split()).exit_code == 2


def test_rows_of_another_capture(here):
    (here / "rows.json").write_text(json.dumps({"graphs": [{"name": "003_forward", "rows": []}]}))
    assert not refused(here, "report", "full", "--profile", "rows.json")


@pytest.mark.parametrize("line", ["opt good.mlir -p cse --import stops.py", "profile stops.py"])
def test_a_file_that_raises_keyboard_interrupt(line, here):
    (here / "stops.py").write_text("raise KeyboardInterrupt")
    done = run(*line.split())
    assert (done.exit_code, done.stderr) == (130, "mlirc: interrupted\n")


def test_a_pass_that_ends_the_process(here):
    Path("ends.py").write_text(
        "from dataclasses import dataclass\nfrom mlirc.passes import register\n\n\n@register\n@dataclass(frozen=True)\n"
        "class Ends:\n    name = 'ends'\n\n    def run(self, function, ledger):\n        raise SystemExit(0)\n"
    )
    done = run("opt", "good.mlir", "-p", "cse,ends", "--import", "ends.py", "-o", "ended.mlir")
    assert (done.exit_code, done.stderr) == (1, "main opt: pass 'ends' failed: SystemExit: 0\n")
    assert not Path("ended.mlir").exists()


@pytest.mark.parametrize("words", [["--repeat", "2"], ["--print", "result0"], ["-o", "results.safetensors"]])
def test_a_check_has_no_results(words, here):
    done = run("run", "good.mlir", "--check-each-pass", *words)
    assert (
        done.exit_code == 2 and f"no results for {words[0]}" in done.stderr and not Path("results.safetensors").exists()
    )


def test_an_unknown_op_says_the_nearest(here):
    assert "no op 'sigmoit'; did you mean 'mlirc.sigmoid'?" in run("opt", "--help-op", "sigmoit").stderr
    assert "no op 'no.where'; --list-ops has them all" in run("opt", "--help-op", "no.where").stderr


@pytest.mark.parametrize(("command", "running"), [("opt", "pass 'erase-used'"), ("run", "--import abort.py")])
def test_a_crash_of_native_code_is_one_line(command, running, here):
    Path("used.mlir").write_text(
        "func.func @graph(%x: tensor<8xf32>) -> tensor<8xf32> {\n"
        '  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>\n  return %0 : tensor<8xf32>\n}\n'
    )
    Path("erase.py").write_text(
        "from dataclasses import dataclass\nfrom mlirc.passes import register\n\n\n@register\n@dataclass(frozen=True)\n"
        "class EraseUsed:\n    name = 'erase-used'\n\n    def run(self, function, ledger):\n"
        "        list(function.regions[0].blocks[0].operations)[0].operation.erase()\n"
    )
    Path("abort.py").write_text("import os\n\nos.abort()\n")
    file = "erase.py" if command == "opt" else "abort.py"
    words = [command, "used.mlir", "-p", "cse,erase-used,cse", "--import", file]
    done = subprocess.run([sys.executable, "-m", "mlirc", *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"mlirc {command}: {running} crashed: SIG[A-Z]+\n", done.stderr)


def test_ctrl_c_is_one_line(here):
    (here / "slow.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, "-m", "mlirc", "opt", "good.mlir", "-p", "cse", "--import", "slow.py", "-o", "out.mlir"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mlirc: interrupted in --import slow.py\n")
    assert not (here / "out.mlir").exists()


@pytest.mark.parametrize("name", ["marked.mlir", "-"])
def test_a_byte_order_mark_is_read_over(name, here):
    """Editors of Windows write one. Lines are counted as they are."""
    for text, said in (
        (GRAPH, ""),
        (GRAPH.replace("mlirc.exp", "mlirc.exq"), f"{name}:2:8: unregistered operation 'mlirc.exq'"),
    ):
        (here / "marked.mlir").write_text(text, encoding="utf-8-sig")
        done = run("opt", name, "-p", "cse", text=(here / "marked.mlir").read_bytes())
        assert ("mlirc.exp" in done.stdout) == (not said) and said in done.stderr, done.output


@pytest.mark.parametrize("module", ["no.such.module", "folder.gone", "two words", ".relative"])
def test_a_module_to_capture_that_is_not_there(module, here):
    assert not refused(here, "capture", "-m", module, "--out", "kept")
    assert not (here / "kept").exists()


def inputs(**tensors):
    from safetensors.torch import save

    return save(tensors)


WRONG_INPUTS = {
    "no arg0; it has arg1": inputs(arg1=torch.ones(4)),
    "no arg0; it has nothing": inputs(),
    "arg1: the module takes 1 argument": inputs(arg0=torch.ones(4), arg1=torch.ones(4)),
    "arg0 is torch.float32 [5]; the module takes torch.float32 [4]": inputs(arg0=torch.ones(5)),
    "arg0 is torch.float32 [1, 4]; the module takes torch.float32 [4]": inputs(arg0=torch.ones(1, 4)),
    "arg0 is torch.float32 []; the module takes torch.float32 [4]": inputs(arg0=torch.ones(())),
    "arg0 is torch.float64 [4]; the module takes torch.float32 [4]": inputs(arg0=torch.ones(4).double()),
    "no safetensors file: ": inputs(arg0=torch.ones(4))[:-7],
}


@pytest.mark.parametrize("said", WRONG_INPUTS)
@pytest.mark.parametrize("name", ["run", "bisect"])
def test_inputs_that_the_module_does_not_take(name, said, here):
    (here / "given.safetensors").write_bytes(WRONG_INPUTS[said])
    assert not refused(here, name, "good.mlir", "--target", "interpreter", "--inputs", "given.safetensors")
    done = run(name, "good.mlir", "--target", "interpreter", "--inputs", "given.safetensors")
    assert f"given.safetensors: {said}" in done.stderr


MLIRC = f"{sys.executable} -m mlirc"
PLACES = {  # a command line of a shell, its exit code, and what standard error has
    f"{MLIRC} opt --list-passes >/dev/full": (1, r"mlirc: standard output: No space left on device\n"),
    f"{MLIRC} opt --list-ops | head -1 >/dev/null; exit 0": (0, ""),
    f"LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {MLIRC} run größe.mlir": (
        2,
        r"mlirc run: .*: No such file or directory\n",
    ),
    f"env -u HOME {MLIRC} opt gone.mlir -p cse": (2, r"mlirc opt: gone.mlir: No such file or directory\n"),
    f"{MLIRC} run good.mlir >/dev/full": (1, r"mlirc: standard output: No space left on device\n"),
    f"{MLIRC} doctor >/dev/full": (1, r"mlirc: standard output: No space left on device\n"),
    f"{MLIRC} opt good.mlir -p cse --emit none >&-": (0, ""),
    f"{MLIRC} opt - -p cse <&-": (2, "mlirc opt: -: standard input is closed\n"),
    f"TERM=dumb NO_COLOR=1 {MLIRC} opt good.mlir -p nowhere": (2, "mlirc opt: .*\n"),
}


@pytest.mark.parametrize(
    "line", [pytest.param(x, id=x[-40:], marks=pytest.mark.full if k else ()) for k, x in enumerate(PLACES)]
)
def test_where_a_command_runs(line, here):
    """Standard output that takes nothing, or is closed; no home; other locales."""
    good = state(here)
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, errors="replace")
    code, said = PLACES[line]
    assert done.returncode == code and re.fullmatch(said, done.stderr), (done.returncode, done.stderr)
    assert state(here) == good
