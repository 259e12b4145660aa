"""Generators of lines, one file for each kind of work. Each adds one line, or raises NoLine."""

from importlib import import_module
from pathlib import Path

for _path in sorted(Path(__file__).parent.glob("*.py")):
    if _path.stem != "__init__":
        import_module(f"tests.fuzz.kinds.{_path.stem}")
