"""One class name, one thing: no two classes of the code share a name."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("dialects", "lowering", "codegen", "frontend", "mlirc")


def test_no_two_classes_have_one_name():
    places = defaultdict(list)
    for top in TOP:
        for file in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert not {name: found for name, found in places.items() if len(found) > 1}
