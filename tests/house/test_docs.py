"""What the documents show, runs: README.md and docs/*.md, each from top to bottom.

Every ```python block runs, one after the other in one namespace; every ```sh block that starts with mlirc or mlirc-opt
runs too. Files that they name are there. The current folder is a scratch one that holds links to everything in the repository. A fragment that cannot
run by itself is fenced as ```text, or as what it is (```mlir, ```make). Commands that need no shell start without one, and without importing PyTorch
each time (tests/forked_programs.py); so do those of Python blocks.
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.forked_programs import COMMANDS, lent, python

ROOT = Path(__file__).parents[2]
OF_A_SHELL = re.compile(r"[|&;<>()$`*?~!]")
MODULES = {"mlirc": ("-m", "mlirc"), "mlirc-opt": ("-c", "from mlirc.cli import opt_main; opt_main()")}
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"[\w*/-]+\.(?:py|mlir|md|sh|svg)\b")
STAND_INS = {
    *("my_pass.py", "model.py", "SCRIPT.py", "tests/filecheck/STAGE/NAME.mlir"),
    *("000_inference_0_import.mlir", "000_inference_aten.py", "dynamo_000_graph.py"),
}


@dataclass(frozen=True)
class Block:
    language: str
    line: int
    code: str

    @property
    def runs(self) -> bool:
        if self.language == "sh":
            return re.match(r"mlirc(-opt)?\s", self.code) is not None
        return self.language == "python"


def blocks(text: str) -> list[Block]:
    """The fenced blocks in order; `line` counts from 1 and is that of the first line of code."""
    return [Block(m[1], text.count("\n", 0, m.start()) + 2, m[2]) for m in BLOCK.finditer(text)]


def run_python(block: Block, document: Path, namespace: dict) -> None:
    # The blank lines make a traceback, and the compiler's source locations, point into the document.
    exec(compile("\n" * (block.line - 1) + block.code, str(document), "exec"), namespace)


def run_commands(block: Block, document: Path) -> None:
    for line in block.code.replace("\\\n", " ").splitlines():
        name, *words = shlex.split(line, comments=True)
        done = python(*MODULES[name], *words, imported=COMMANDS)
        assert done.returncode == 0, f"{document.name}:{block.line}: {line}\n{done.stdout}\n{done.stderr}"


def is_plain(code: str) -> bool:
    """Whether no line needs a shell: commands and their words, quoted or not."""
    return all(not OF_A_SHELL.search(re.sub(r"\".*?\"|'.*?'", "", line)) for line in code.splitlines())


def run_shell(block: Block, document: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", "-euo", "pipefail", "-c", block.code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{document.name}:{block.line}\n{done.stdout}\n{done.stderr}"


def run_document(document: Path) -> None:
    namespace = {"__name__": "__main__"}
    for block in blocks(document.read_text()):
        if block.language == "python":
            run_python(block, document, namespace)
        elif block.runs and is_plain(block.code):
            run_commands(block, document)
        elif block.runs:
            run_shell(block, document)


def run_of_python(command: Any, **how: Any) -> Any:
    """subprocess.run in a document's Python."""
    if command[:3] == [sys.executable, "-m", "mlirc"]:
        return python(*command[1:], imported=COMMANDS)
    return started(command, **how)


started = subprocess.run


RUNNING = [document for document in DOCUMENTS if any(block.runs for block in blocks(document.read_text()))]


@pytest.mark.parametrize("document", RUNNING, ids=lambda document: str(document.relative_to(ROOT)))
def test_document(document, tmp_path, monkeypatch):
    for entry in ROOT.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    # a process of its own: a document may define ops, which must happen before the dialect is loaded
    done = python(__file__, document, env=os.environ | lent(COMMANDS))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def unknown_files(text: str) -> set[str]:
    """Files of ours that a document names, with or without their folder, and that are not there."""
    prose = BLOCK.sub("", text)
    return {name for name in FILE.findall(prose) if name not in STAND_INS and not is_file(name)}


def is_file(name: str) -> bool:
    return bool(files_called(name))


@cache
def files_called(name: str) -> list[Path]:
    folders = ("dialects", "lowering", "codegen", "frontend", "mlirc", "benchmarks", "tests", "docs")
    return [*ROOT.glob(name)] or [file for folder in folders for file in (ROOT / folder).rglob(name)]


def unknown_names(text: str) -> set[str]:
    """Names that are said to be in a file, "`name` in folder/file.py", and are in none that is called so."""
    said = re.findall(r"`([A-Za-z_]\w*)`(?:,[^`.]{0,40})? in ([\w/]+\.py)", BLOCK.sub("", text))
    return {f"{name} in {file}" for name, file in said if not any(has_name(path, name) for path in files_called(file))}


def has_name(file: Path, name: str) -> bool:
    return re.search(rf"\b{name}\b", file.read_text()) is not None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_files_that_a_document_names_are_there(document):
    assert not unknown_files(document.read_text())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_names_are_in_the_files_that_a_document_says(document):
    assert not unknown_names(document.read_text())


def test_a_name_that_is_gone_is_found():
    text = "`run_document`; and `no_such_name` in house/test_words.py"
    assert unknown_names(text) == {"no_such_name in house/test_words.py"}
    assert not unknown_names("(`run_document` in house/test_docs.py)")


def test_a_file_that_is_gone_is_found():
    text = "loops/loops.py, lowering/cpu/loops/loops.py, *_text.py\n```sh\nmlirc opt gone.mlir\n```\n(kernel_gone.py), codegen/kernel_loops.py"
    assert unknown_files(text) == {"kernel_gone.py", "codegen/kernel_loops.py"}


def test_which_blocks_run():
    text = "# T\n```python\nx = 1\n```\n```sh\nmlirc opt a.mlir\n```\n```sh\nmake demo\n```\n```text\n1 +\n```\n"
    found = blocks(text)
    assert [(b.language, b.line, b.runs) for b in found] == [
        ("python", 3, True),
        ("sh", 6, True),
        ("sh", 9, False),
        ("text", 12, False),
    ]


def test_an_error_points_into_the_document():
    with pytest.raises(ZeroDivisionError) as error:
        run_python(Block("python", 40, "x = 1\nx / 0\n"), Path("README.md"), {})
    assert (error.traceback[-1].path.name, error.traceback[-1].lineno + 1) == ("README.md", 41)


def test_which_lines_need_a_shell():
    assert is_plain("mlirc compare cpu \"cpu + a,b after fuse\" x.py --rounds 3  # so\nmlirc opt -p 'a{k=2}'\n")
    assert not is_plain("mlirc opt a.mlir | head") and not is_plain('mlirc opt "a" *.mlir')


def test_a_shell_finds_the_commands():
    run_shell(Block("sh", 1, "mlirc --help | grep -q bisect\nmlirc-opt --help | grep -q stop-after\n"), Path("a.md"))
    with pytest.raises(AssertionError, match=r"a.md:1\n"):
        run_shell(Block("sh", 1, "mlirc opt gone.mlir | cat\n"), Path("a.md"))


if __name__ == "__main__":
    subprocess.run = run_of_python
    run_document(Path(sys.argv[1]))
