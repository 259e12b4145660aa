"""Imports go one way: dialects <- lowering <- codegen <- frontend; and one module alone imports MLIR's bindings."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A folder may import itself and those before it.
ORDER = ["dialects", "lowering", "codegen", "frontend"]
FILES = sorted(file for folder in ORDER for file in (ROOT / folder).rglob("*.py"))


def files(folder: str) -> list[Path]:
    return [file for file in FILES if file.relative_to(ROOT).parts[0] == folder]


@cache
def imported_modules(file: Path, root: Path = ROOT) -> set[str]:
    """The full names of what a file imports anywhere in it, also inside functions; `from a import b` counts as a.b."""
    package = ["mlirc", *file.relative_to(root).parts[:-1]]
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names.update(f"{module}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize("folder", ORDER)
def test_imports_go_one_way(folder):
    allowed = ORDER[: ORDER.index(folder) + 1]
    for file in files(folder):
        for name in imported_modules(file):
            top, _, rest = name.partition(".")
            imported = rest.partition(".")[0]
            place = file.relative_to(ROOT)
            assert top not in ORDER, f"{place}: import mlirc.{name}, not {name}"
            # the package itself imports none of them
            assert name == "mlirc" or top != "mlirc" or imported in allowed, (
                f"{place}: {name} is above {allowed[-1]}/, which may import {allowed}"
            )


@pytest.mark.parametrize("folder", ORDER)
def test_only_one_module_imports_the_bindings(folder):
    for file in files(folder):
        bindings = {name for name in imported_modules(file) if name.split(".")[0] in ("torch_mlir", "mlir")}
        assert not bindings or file == ROOT / "dialects" / "core" / "bindings.py", file


def test_imports_inside_functions_and_relative_ones_are_seen(tmp_path):
    file = tmp_path / "dialects" / "ops" / "cast.py"
    file.parent.mkdir(parents=True)
    file.write_text("def f():\n    from ..symbols import Size\n    import torch_mlir.ir\n")
    assert imported_modules(file, tmp_path) == {"mlirc.dialects.symbols.Size", "torch_mlir.ir"}


def test_no_modules_import_each_other():
    modules = {f"mlirc.{'.'.join(file.relative_to(ROOT).with_suffix('').parts)}": file for file in FILES}
    imports = {
        name: {x for x in resolved(imported_modules(file), modules) if x != name} for name, file in modules.items()
    }
    assert not cycles(imports)


def test_a_cycle_is_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [{"a", "b", "c"}]


def resolved(names: set[str], modules: dict[str, Path]) -> set[str]:
    """The modules of ours among imported names, which may be of something in a module."""
    return {x for name in names for x in (name, name.rpartition(".")[0]) if x in modules}


def cycles(imports: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules, of two or more, each of which imports every other one, directly or not."""
    reached = {name: closure(name, imports) for name in imports}
    found = [{other for other in reached[name] if name in reached[other]} for name in imports]
    return [x for k, x in enumerate(found) if len(x) > 1 and x not in found[:k]]


def closure(name: str, imports: dict[str, set[str]]) -> set[str]:
    seen, left = set(), [name]
    while left:
        left += (new := imports[left.pop()] - seen)
        seen |= new
    return seen


def folder_imports() -> dict[str, set[str]]:
    """The folders that each folder imports from, beside itself. A folder imports what its modules do."""
    modules = {f"mlirc.{'.'.join(file.relative_to(ROOT).with_suffix('').parts)}": file for file in FILES}
    folders = {name: str(file.parent.relative_to(ROOT)) for name, file in modules.items()}
    found: dict[str, set[str]] = {folder: set() for folder in folders.values()}
    for name, file in modules.items():
        found[folders[name]] |= {folders[x] for x in resolved(imported_modules(file), modules)} - {folders[name]}
    return found


def test_no_folders_import_each_other():
    assert not cycles(folder_imports())
