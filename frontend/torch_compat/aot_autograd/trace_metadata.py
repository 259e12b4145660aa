"""Converts AOTAutograd's metadata of a traced graph (ViewAndMutationMeta) to JSON data and back; nothing is pickled.

    ["object", "InputAliasInfo", {"is_leaf": true, ...}]   ["enum", "OutputType", "non_alias"]   ["tuple", 3, 4]

Objects are dataclasses of torch's schemas and descriptors alone, made without running code of theirs.
"""

from copy import copy
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import torch

from mlirc.codegen.abi.reach import reach
from mlirc.frontend.errors import NoText
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor, FunctionalTensor

LISTS = {kind.__name__: kind for kind in (list, tuple, set, torch.Size)}
TYPES = {
    kind.__name__: kind for kind in (torch.Tensor, torch.nn.Parameter, FakeTensor, FunctionalTensor, int, type(None))
}
OF_TORCH = {kind.__name__: kind for kind in (torch.dtype, torch.memory_format)}


def without_tokens(known: Any) -> Any:
    """The metadata without the tensors that stood for the order of effects while the graph was traced."""
    made = copy(known)  # dataclasses.replace would compute the rest anew
    made.tokens = {}
    return made


def to_data(x: Any) -> Any:
    """Raises NoText for what has no such form: a subclass's metadata, a symbolic size, a view that is replayed."""
    if x is None or type(x) in (bool, int, str):
        return x
    kind = type(x)
    if LISTS.get(kind.__name__) is kind:
        return [kind.__name__, *map(to_data, sorted(x) if kind is set else x)]
    if kind is dict:
        return ["dict", *([to_data(key), to_data(value)] for key, value in x.items())]
    if _named(kind.__name__) is kind:
        if isinstance(x, Enum):
            return ["enum", kind.__name__, x.name]
        return ["object", kind.__name__, {name: to_data(value) for name, value in vars(x).items()}]
    if OF_TORCH.get(kind.__name__) is kind:
        return [kind.__name__, str(x).removeprefix("torch.")]
    if isinstance(x, type) and TYPES.get(x.__name__) is x:
        return ["type", x.__name__]
    raise NoText(f"a {kind.__name__} in what is known of its inputs and outputs")


def from_data(data: Any) -> Any:
    """Raises AttributeError, LookupError, TypeError or ValueError for data that `to_data` did not give."""
    if not isinstance(data, list):
        return data
    kind, *rest = data
    if kind in LISTS:
        return LISTS[kind](map(from_data, rest))
    if kind == "dict":
        return {from_data(key): from_data(value) for key, value in rest}
    if kind == "type":
        (name,) = rest
        return TYPES[name]
    if kind in OF_TORCH:
        (name,) = rest
        found = getattr(torch, name)
        if not isinstance(found, OF_TORCH[kind]):
            raise ValueError(f"{name} is no {kind}")
        return found
    name, value = rest
    cls: Any = _named(name)
    if kind == "enum" and issubclass(cls, Enum):
        return cls[value]
    if kind != "object" or not is_dataclass(cls):
        raise ValueError(f"no {kind} has the name {name}")
    made: Any = object.__new__(cls)  # type: ignore[arg-type]
    for field, content in value.items():
        object.__setattr__(made, field, from_data(content))  # some are frozen
    return made


@reach("trace-metadata", instead="each process traces each graph")
def modules() -> tuple[Any, ...]:
    """The modules of AOTAutograd that define the classes of a trace's metadata."""
    from torch._functorch._aot_autograd import descriptors, schemas

    return schemas, descriptors


def _named(name: str) -> Any:
    """The dataclass or enum of torch's with that name, or None."""
    for module in modules() or ():
        found = vars(module).get(name)
        if isinstance(found, type) and found.__module__ == module.__name__:
            return found if is_dataclass(found) or issubclass(found, Enum) else None
    return None
