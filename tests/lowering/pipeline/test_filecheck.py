"""Runs tests/filecheck/STAGE/PASS.mlir: the RUN line's pipeline on the file, its output against the file's CHECK lines.

The output is the module, and after it a line for each entry of the ledger: `// NO CYCLE: fuse exp -> neg, refused`.
"""

import re
import shlex
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.target import parse_target

FOLDER = Path(__file__).parents[2] / "filecheck"
FILES = sorted(FOLDER.glob("*/*.mlir"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_filecheck(file, capsys):
    text = file.read_text()
    with context():
        module = ir.Module.parse(text)
        options = options_of(text)
        if "--target" in options:
            set_target(module, parse_target(options["--target"]))
        record = run_pipeline(module, options["-p"])
        output = str(module)
    for entry in record.ledger.entries:
        output += f"// {entry.rule}: {entry.action} {entry.subject}, {'taken' if entry.taken else 'refused'}\n"
    options = Options(match_filename=str(file))
    with file.open() as checks:
        parser = Parser(options, checks, *pattern_for_opts(options))
        code = Matcher(options, FInput("output", output), parser).run()
    assert code == 0, f"{capsys.readouterr().err}\nthe output:\n{output}"


def options_of(text: str) -> dict[str, str]:
    """What follows -p and --target in the RUN line."""
    command = re.search(r"// RUN: mlirc[- ]opt %s ([^|\n]*)", text)
    assert command, 'the file has no line `// RUN: mlirc-opt %s -p "PIPELINE"`'
    words = shlex.split(command[1])
    assert len(words) % 2 == 0 and "-p" in words, command[0]
    return dict(zip(words[::2], words[1::2], strict=True))
