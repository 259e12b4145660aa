"""Flattens nested lists, tuples and dicts as Dynamo and AOTAutograd do."""

import builtins
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mlirc.codegen.abi.reach import Missing, reach
from mlirc.frontend.errors import UnsupportedGraph


@reach("trees", instead="lists, tuples and dicts alone are taken apart, and mlirc.compile is not there")
def pytree() -> Any:
    """PyTorch's module."""
    from torch.utils import _pytree

    if _pytree.tree_leaves([1, (2, {"a": None})]) != [1, 2, None] or _pytree.tree_map(str, [1, (2,)]) != ["1", ("2",)]:
        raise Missing("it takes them apart in another way")
    return _pytree


def argument_trees() -> Any:
    """PyTorch's module, for the trees of torch.export. Raises UnsupportedGraph without it."""
    if (known := pytree()) is None:
        raise UnsupportedGraph("this PyTorch has no trees of arguments that mlirc knows")
    return known


def tree_from_text(text: str) -> Any:
    """The tree of what PyTorch's `treespec_dumps` gave. Nothing is imported for it: PyTorch would import the module of an enum or of a
    defaultdict's factory, whatever the text names. Raises what json and PyTorch raise, and ValueError for a module that is not there."""
    check_modules(json.loads(text))
    return argument_trees().treespec_loads(text)


def check_modules(x: Any) -> None:
    """Raises ValueError where something in a tree is of a module that this process has not imported."""
    if isinstance(x, str) and x[:1] in ("{", "["):  # what is beside a node's children is text in the text
        with suppress(json.JSONDecodeError):  # or a key that begins so
            x = json.loads(x)
    if isinstance(x, dict):
        if "__enum__" in x and x["fqn"].partition(":")[0] not in sys.modules:
            raise ValueError(f"it needs {x['fqn']}: import that before")
        if "default_factory_module" in x:
            factory = vars(builtins).get(x["default_factory_name"])
            if x["default_factory_module"] != "builtins" or not isinstance(factory, type):
                raise ValueError("it needs a defaultdict of something that is no type of Python's own")
        x = [*x.keys(), *x.values()]
    for one in x if isinstance(x, list) else ():
        check_modules(one)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    known = pytree()
    if known is not None:
        return known.tree_leaves(tree, is_leaf=is_leaf)
    found: list[Any] = []
    _map(found.append, tree, is_leaf)
    return found


def tree_map(function: Callable[..., Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    known = pytree()
    return _map(function, tree, is_leaf) if known is None else known.tree_map(function, tree, is_leaf=is_leaf)


def _map(function: Callable[..., Any], tree: Any, is_leaf: Callable[[Any], bool] | None) -> Any:
    if is_leaf is not None and is_leaf(tree):
        return function(tree)
    if isinstance(tree, dict):
        return {key: _map(function, x, is_leaf) for key, x in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_map(function, x, is_leaf) for x in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(_map(function, x, is_leaf) for x in tree)
    return function(tree)
