"""Folders: each is small; one of code says what it is for, and stands in docs/architecture.md."""

import ast
import subprocess
from collections import Counter
from pathlib import Path, PurePath

import pytest

ROOT = Path(__file__).parents[2]
TOP = ("dialects", "lowering", "codegen", "frontend", "mlirc")
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
# What stands directly in mlirc/ is the front door, and says itself what it is for.
FOLDERS = sorted(
    file.parent for top in TOP for file in (ROOT / top).rglob("__init__.py") if file.parent.name != "mlirc"
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_folder_is_one_idea(folder):
    line = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    assert line and len(line.splitlines()) == 1, "its __init__.py says in one line what the folder is for"
    text = (ROOT / "docs" / "architecture.md").read_text()
    name = f"{folder.relative_to(ROOT)}/"
    assert f"**{name}**: {line}" in text or f"`{name}`: {line}" in text


def test_a_folder_has_twenty_files_at_most():
    """Of code, of tests, of benchmarks and of examples."""
    files = [PurePath(name) for name in TRACKED if name.endswith((".py", ".sh"))]
    sizes = Counter(str(file.parent) for file in files if file.name != "__init__.py")
    assert len(sizes) > 50 and not {folder: size for folder, size in sizes.items() if size > 20}


def test_a_file_has_five_hundred_lines_at_most():
    """A longer one is two ideas."""
    sizes = {name: len((ROOT / name).read_text().splitlines()) for name in TRACKED if name.endswith(".py")}
    assert len(sizes) > 500 and not {name: size for name, size in sizes.items() if size > 500}


def test_every_folder_of_code_is_a_package():
    for name in TRACKED:
        if name.endswith(".py") and name.split("/")[0] in TOP:
            assert (ROOT / name).with_name("__init__.py").exists(), name
