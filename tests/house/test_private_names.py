"""Private names of PyTorch are used in two folders alone, codegen/abi/ and frontend/torch_compat/: there each has a fallback."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("codegen/abi/", "frontend/torch_compat/")
SOURCES = sorted(
    file
    for folder in ("dialects", "lowering", "codegen", "frontend")
    for file in (ROOT / folder).rglob("*.py")
    if not str(file.relative_to(ROOT)).startswith(FOLDERS)
)
INTERNAL = re.compile(
    r"torch\.(fx\.experimental\.|_[a-zA-Z])"
)  # a name without an underscore in such a module is private, too

# What is used anywhere, and why.
ALLOWED = {
    "torch._ops": "the classes of operators have no other name; without them there is no graph to import",
    "?._schema": "what an operator takes and gives: likewise",
    "?._overloadname": "its name, likewise",
    "?._qualified_op_name": "its name, likewise",
    "?._parameters": "a module's members are put back by mlirc.explain as they are pickled",
    "?._buffers": "likewise",
    "os._exit": "is public",
    "torch._check": "is public, and documented: what a fake function tells of sizes",
    "?._at_fork_reinit": "a lock of Python's, anew in a forked child: as logging and concurrent.futures do",
    "?._Znwm": "operator new, of every C++ library",
}
MLIR = {"dialects/core/bindings.py", "dialects/core/dialect.py"}  # which speak to MLIR's own Python


def private_names(text: str, ours: frozenset[str] = frozenset()) -> Iterator[tuple[str, int]]:
    """Each private name that a text uses and its line: of a module of torch's, or of an object ("?._name"); `ours` are not."""
    for node in ast.walk(ast.parse(text)):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            found = [dotted(node)]
            if not found[0].startswith("torch.") and is_hidden(node.attr, ours):
                found = [found[0] if found[0].startswith("os.") else f"?.{node.attr}"]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and is_hidden(node.value, ours):
            found = [f"?.{node.value}"] if node.value.startswith("_Z") or hasattr_torch(node.value) else []
        for name in found:
            if name.startswith(("torch.ops.", "aten.", "torch.aten.")):
                continue
            if (
                INTERNAL.match(name)
                or (name.startswith("torch.") and re.search(r"\._[a-zA-Z]", name))
                or re.match(r"(\?|os)\._[a-zA-Z]", name)
            ):
                yield name, node.lineno  # type: ignore[attr-defined]


def is_hidden(name: str, ours: frozenset[str]) -> bool:
    return bool(re.fullmatch(r"_[a-zA-Z]\w*", name)) and name not in ours


@cache
def hasattr_torch(name: str) -> bool:
    """Whether a string is the name of an attribute of a tensor, a storage, a node or an operator."""
    import torch
    from torch.fx import Graph

    objects = torch.zeros(1), torch.zeros(1).untyped_storage(), Graph().placeholder("x"), torch.ops.aten.add.Tensor
    return any(hasattr(x, name) for x in objects)


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


@cache
def own_names() -> frozenset[str]:
    """Underscored names that our sources give to something."""
    found = {"_fields_", "_make", "_asdict", "_replace"}
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and dotted(node).startswith(("aten.", "torch.ops.")):
                found.add(node.attr)  # an operator's name
            elif isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
                found.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return frozenset(found)


def test_private_names_are_reached_for_in_two_folders():
    for file in SOURCES:
        if str(file.relative_to(ROOT)) in MLIR:
            continue
        for name, line in private_names(file.read_text(), own_names()):
            known = any(name == allowed or name.startswith(f"{allowed}.") for allowed in ALLOWED)
            place = f"{file.relative_to(ROOT)}:{line}"
            assert known, f"{place} uses {name}: make it a reach, in {' or '.join(FOLDERS)}"


@pytest.mark.parametrize(
    "text",
    [
        "from torch._guards import TracingContext",
        "def f():\n    import torch._dynamo",
        "import torch\ntorch._C._jit_set_profiling_mode(0)",
        "from torch.utils import _pytree",
        "from torch.fx.experimental.symbolic_shapes import ShapeEnv",
        "x._cdata",
        "getattr(x, '_cdata')",
        "library['_ZN2at4cuda6detail23getDefaultCUDAGeneratorEa']",
    ],
)
def test_a_private_name_is_seen(text):
    assert list(private_names(text))


@pytest.mark.parametrize(
    "text", ["torch.ops.aten._softmax", "import torch\ntorch.compiler.disable(f)", "self.__dict__", "torch.__version__"]
)
def test_a_public_name_is_none(text):
    assert not list(private_names(text))


# ---- our own


OURS = sorted(
    file for folder in ("dialects", "lowering", "codegen", "frontend") for file in (ROOT / folder).rglob("*.py")
)
OURS += sorted(file for file in (ROOT / "mlirc").rglob("*.py") if not file.is_symlink())


def private_imports(text: str) -> Iterator[str]:
    """What a text takes of another module of ours that is private there: by an import, or as an attribute of an imported module."""
    tree = ast.parse(text)
    imported = set()
    for node in ast.walk(tree):
        names = node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in names:
            if f"{module}{alias.name}".startswith("mlirc.") or module == "mlirc.":
                imported.add(alias.asname or alias.name)
                if alias.name.rpartition(".")[2].startswith("_"):
                    yield f"{module}{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and dotted(node.value) in imported and is_hidden(node.attr, frozenset()):
            yield dotted(node)


def test_what_another_module_needs_has_a_public_name():
    found = {str(file.relative_to(ROOT)): list(private_imports(file.read_text())) for file in OURS}
    assert not {file: names for file, names in found.items() if names}


@pytest.mark.parametrize(
    "text",
    [
        "from mlirc.lowering.cpu.loops.entry import _entry",
        "def f():\n    from mlirc.lowering.cpu.loops import entry\n    entry._entry()",
        "from mlirc.lowering import host as h\nh._cpu",
        "import mlirc.lowering.host\nmlirc.lowering.host._cpu",
    ],
)
def test_a_private_name_of_ours_is_seen(text):
    assert list(private_imports(text))
