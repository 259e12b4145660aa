"""For pyright: MLIR's bindings have no types, so everything in them is Any, but for what dialects/ext.pyi says."""

from typing import Any

def __getattr__(name: str) -> Any: ...
