"""Documents and examples write against mlirc, mlirc.ops, mlirc.passes and mlirc.ir alone: names that do not move with the files."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.house.test_docs import DOCUMENTS, blocks

ROOT = Path(__file__).parents[2]
PUBLIC = ("mlirc", "mlirc.ops", "mlirc.passes", "mlirc.ir")
TEXTS = {
    f"{document.name}:{block.line}": block.code
    for document in [*DOCUMENTS, ROOT / "CONTRIBUTING.md"]
    for block in blocks(document.read_text())
    if block.language == "python"
} | {file.name: file.read_text() for file in (ROOT / "examples").glob("*.py")}


def imported(code: str) -> dict[str, set[str]]:
    """Names of ours that a program imports, by module; an empty set where it imports the module itself."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name: set() for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return {module: names for module, names in found.items() if module.split(".")[0] == "mlirc"}


@pytest.mark.parametrize("place", TEXTS)
def test_what_is_shown_uses_public_names(place):
    for module, names in imported(TEXTS[place]).items():
        assert module in PUBLIC
        assert names <= set(importlib.import_module(module).__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_is_there_and_told_of(name):
    module = importlib.import_module(name)
    assert module.__doc__ is not None
    for public in module.__all__:
        assert getattr(module, public) is not None
        assert re.search(rf"\b{public}\b", module.__doc__), f"{name}.__doc__ says nothing of {public}"


def test_a_private_module_would_be_seen():
    assert imported("import torch\nfrom mlirc.lowering.x import y\nimport mlirc.ops") == {
        "mlirc.lowering.x": {"y"},
        "mlirc.ops": set(),
    }


def test_names_are_in_the_modules_that_adding_says():
    """Rows `| Unary, Binary, ... | mlirc.dialects.core.dialect |` of docs/adding.md."""
    rows = re.findall(r"^\| (\w.*) \| (mlirc\.[\w.]+) \|$", (ROOT / "docs/adding.md").read_text(), re.MULTILINE)
    assert len(rows) >= 10
    for text, module in rows:
        for name in re.findall(r"(?:^|[,;] )(\w+)\b(?=[,;(]|$)", text):
            assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"
