"""`mlirc bisect SCRIPT.py`: of a user's program, which graph, which pass, which rewrite."""

import re
import subprocess
import sys

import pytest

from mlirc.commands.bisect_script import last_message
from tests.debugger.planted.patches import PATCHES
from tests.forked_programs import COMMANDS, python

SCRIPT = """
import sys
import torch


def right(x):
    return x.relu().sum(0)


def wrong(x, y):
    z = x.cos() * 2
    return z - y.exp()


if __name__ == "__main__":
    size = int(sys.argv[1])
    with torch.no_grad():
        for function, count in ((right, 1), (wrong, 2)):
            compiled = torch.compile(function)
            print(tuple(compiled(*(torch.randn(size, size) for _ in range(count))).shape))
"""


def bisect(folder, *arguments):
    return python("-m", "mlirc", "bisect", *arguments, cwd=folder, imported=COMMANDS)


def test_a_program_with_a_wrong_answer(tmp_path):
    """Whatever backend it names, and whatever its file is called."""
    script = "ünï cödé.py"
    (tmp_path / script).write_text(SCRIPT)
    (tmp_path / "patch.py").write_text(PATCHES["wrong fold"])
    done = bisect(tmp_path, script, "12", "--import", "patch.py", "--target", "interpreter", "--no-reduce")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"(12,)\n(12, 12)\nOf {script} it is graph 1, of "), done.stdout
    assert f"{script}:11 to 12\nThe answer is wrong" in done.stdout and "The pass is 'fold-constants'" in done.stdout
    assert re.search(rf"The rewrite is number 0 of 1: mlirc.mul \(.*{script}:11\)", done.stdout), done.stdout
    assert "nothing fails on graph 0" in done.stderr and (tmp_path / "bisected.mlir").exists()


def test_programs_without_a_graph(tmp_path):
    (tmp_path / "empty.py").write_text("print('nothing')")
    done = bisect(tmp_path, "empty.py")
    assert done.returncode == 1 and done.stderr.endswith(
        "empty.py: no graph was compiled; the script calls no function that torch.compile made\n"
    )
    (tmp_path / "raises.py").write_text("raise ValueError('no')")
    done = bisect(tmp_path, "raises.py")
    assert done.returncode == 1 and "ValueError: no" in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    (tmp_path / "ends.py").write_text("raise SystemExit('two\\nlines')")
    done = bisect(tmp_path, "ends.py")
    assert done.returncode == 1 and done.stderr.endswith(
        "ends.py: no graph was compiled, as it ended with 1: SystemExit: two lines\n"
    )
    done = bisect(tmp_path, "missing.py")
    assert done.returncode == 2 and "missing.py: No such file or directory" in done.stderr


RAISED = {
    "raise ValueError('first\\n  second\\nthird')": "ValueError: first second third",
    "try: 1 / 0\nexcept Exception as e: raise RuntimeError('a\\n    b') from e": "RuntimeError: a b",
    "def f(": "SyntaxError: '(' was never closed",
    "class E(Exception): pass\nraise E": "E",
    "raise ExceptionGroup('many\\nmore', [ValueError('a\\nb')])": "ExceptionGroup: many more (1 sub-exception)",
    "import sys; print('noise', file=sys.stderr); sys.exit('said')": "said",
    "import os; os._exit(3)": "",
}


@pytest.mark.parametrize("program", RAISED)
def test_what_a_program_raised_is_told_whole(program):
    done = subprocess.run([sys.executable, "-S", "-c", program], stderr=subprocess.PIPE, text=True)
    assert done.returncode and last_message(done.stderr) == RAISED[program], done.stderr
