"""What a command says of names that there are not: of commands, passes and files. All files that are not there are told alike."""

import pytest

from tests.commands.command import bad

GRAPH = "func.func @graph(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}"


@pytest.mark.parametrize(
    ("name", "said"),
    [("profil", "; did you mean 'profile'? there are "), ("print", "there are bisect, cache, capture, ")],
)
def test_commands(name, said):
    line = bad(name, code=2)
    assert line.startswith(f"main: no command '{name}'; ") and said in line and line.endswith("; -h is help\n")


MISSING = [
    "opt gone -p cse",
    "opt - -p cse --fusion-plan gone",
    "run gone",
    "run - --inputs gone",
    "bisect gone -p cse",
    "bisect gone.py",
    "bisect gone.mlir --inputs gone",
    "compare cpu cpu gone.py",
    "compare cpu cpu --captures gone",
    "profile gone.py",
    "profile gone",
    "report gone",
    "report . --profile gone",
    "ops --missing gone.py",
    "capture gone.py --out made",
]


@pytest.mark.parametrize("line", MISSING)
def test_files_that_are_not_there(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = bad(*line.split(), text=GRAPH, code=2)
    assert told.startswith(f"main {line.split()[0]}: gone") and told.endswith(": No such file or directory\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [("opt", "-p", "cse"), ("run",)])
def test_a_script_in_place_of_a_module(command, tmp_path):
    script = tmp_path / "model.py"
    script.write_text("import torch\n")
    line = bad(*command, script, code=2)
    assert line.endswith(f"{script} is a Python script; `mlirc capture --out DIR {script}` makes the MLIR\n")


def test_the_help_of_a_pass_of_mlir():
    assert "'canonicalize' is MLIR's own pass" in bad("opt", "--help-pass", "canonicalize", code=2)
    assert "no pass 'canonicalise'" in bad("opt", "--help-pass", "canonicalise", code=2)


@pytest.mark.parametrize("command", ["opt", "run"])
def test_rewrites_of_a_pass_that_does_not_run(command):
    given = ["--target", "interpreter"] if command == "run" else []  # else `run` adds the rest of the way down
    line = bad(command, "-", "-p", "cse,canonicalize", *given, "--rewrites", "to-kernels=0", text=GRAPH, code=2)
    assert line.endswith("rewrites of 'to-kernels': no such pass runs; the pipeline is cse,canonicalize\n")


def test_a_side_with_a_pass_that_there_is_not():
    line = bad("compare", "cpu", "cpu + nowhere after simplify", "--models", "mlp", code=2)
    assert ": 'cpu + nowhere after simplify': no pass 'nowhere'" in line and "--import FILE.py adds passes" in line
    assert "can be passes separated" not in line
