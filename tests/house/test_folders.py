"""Folders: each is small, says what it is for, and stands in docs/architecture.md."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP = ("dialects", "lowering", "codegen", "frontend")
FOLDERS = sorted(file.parent for top in TOP for file in (ROOT / top).rglob("__init__.py")) + [
    ROOT / "mlirc" / "commands",
    ROOT / "mlirc" / "execution",
    ROOT / "mlirc" / "measurement",
]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_folder_is_one_idea(folder):
    assert len([file for file in folder.glob("*.py") if file.name != "__init__.py"]) <= 20
    line = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    assert line and len(line.splitlines()) == 1, "its __init__.py says in one line what the folder is for"
    text = (ROOT / "docs" / "architecture.md").read_text()
    name = f"{folder.relative_to(ROOT)}/"
    assert f"**{name}**: {line}" in text or f"`{name}`: {line}" in text


def test_every_folder_of_code_is_a_package():
    for top in TOP:
        for file in (ROOT / top).rglob("*.py"):
            assert (file.parent / "__init__.py").exists(), file
