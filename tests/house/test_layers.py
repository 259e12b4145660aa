"""What each layer may know: lowering asks no machine, codegen runs no pass of its own, dialects know nothing of libtorch's ABI."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What says something of the machine that runs this, and of nothing else.
ASKS = re.compile(
    r"^(torch\.(cuda|backends|cpu|get_num_threads|__config__|ops\.mkldnn\._is\w*)|os\.(environ|getenv|cpu_count|sched_getaffinity|uname)"
    r"|platform|multiprocessing|psutil|contextvars|llvmlite)(\.|$)"
)
HOST = "lowering/host.py"  # the one file that asks
WRITES_HOST = "lowering/module/target_attribute.py"  # the one that writes the answer into modules


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def names(text: str) -> set[str]:
    """What a text imports, by full name, and what it reaches for by dots, from the name of a module on."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
    return found


def test_lowering_asks_no_machine():
    """It reads the target of the module (test_target.py runs it so)."""
    for file in files("lowering"):
        place = str(file.relative_to(ROOT))
        read = names(file.read_text())
        asked = {name for name in read if ASKS.match(name)}
        assert place == HOST or not asked, f"{place} asks {sorted(asked)}: read target_of(function) instead"
        imported = {name for name in read if name.startswith("mlirc.lowering.host")}
        assert not imported or place == WRITES_HOST, f"{place}: a pass reads target_of(function), not the host"


@pytest.mark.parametrize(
    "text",
    [
        "from contextvars import ContextVar",
        "import os\nos.environ.get('A')",
        "import torch\ntorch.backends.mkldnn.enabled",
        "import torch\ntorch.cuda.get_device_capability(0)",
        "import torch\ntorch.ops.mkldnn._is_mkldnn_bf16_supported()",
        "def f():\n    import platform",
    ],
)
def test_a_question_to_the_machine_is_seen(text):
    assert any(ASKS.match(name) for name in names(text))


def test_codegen_imports_no_pass():
    """It runs them by name, as text."""
    for file in files("codegen"):
        assert not {name for name in names(file.read_text()) if name.startswith("mlirc.lowering.passes")}, file


# C++ of libtorch: its symbols, its C shim, C itself.
ABI = re.compile(r"\b_ZN|\bctypes\b|\bcffi\b|aoti_torch|AtenTensorHandle")


def test_dialects_know_nothing_of_libtorchs_abi():
    for file in files("dialects"):
        assert not [line for line in file.read_text().splitlines() if ABI.search(line)], file
