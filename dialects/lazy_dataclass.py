"""Dataclasses that write their `__init__` when the first object is made.

The standard library compiles the text of up to six methods for each class while its module is imported, and a small model's first
call imports some 140 classes. Here a class finds its fields alone. `__eq__`, `__hash__`, `__repr__` and
what refuses to set fields need no text of their own, and `__init__` gets it with the first object.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_NOT_GIVEN = object()  # stands for a default that is made anew for each object


def lazy_dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, slots: bool = False) -> Any:
    """A decorator that does what `dataclasses.dataclass` does with these options: what the class defines itself stays, and `fields`,
    `replace`, `asdict` and `is_dataclass` know it. Fields by keyword alone, and `InitVar`, are not for it."""
    if cls is None:
        return partial(lazy_dataclass, frozen=frozen, eq=eq, slots=slots)
    # the standard library lets a class be frozen only if those are that it extends, and the other way round
    extends = any(dataclasses.is_dataclass(base) for base in cls.__bases__)
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen and extends, slots=slots)(cls)
    own = vars(made)
    if "__init__" not in own:
        made.__init__ = _first_init(made, frozen)
    if "__repr__" not in own:
        made.__repr__ = _repr
    if eq:
        _add_equality(made, frozen)
    if frozen and not extends:
        made.__setattr__, made.__delattr__ = _refuse_setting, _refuse_deleting
        made.__dataclass_params__.frozen = True
    return made


# for whoever checks types it is the standard library's
if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = lazy_dataclass


def _first_init(cls: Any, frozen: bool) -> Callable[..., None]:
    """An `__init__` that writes the one of `cls` and gives it its place. Where two threads do so at once, either may stay."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = written = _written_init(cls, frozen)
        written(self, *args, **kwargs)

    return __init__


def _written_init(cls: Any, frozen: bool) -> Callable[..., None]:
    known: dict[str, Any] = {"_NOT_GIVEN": _NOT_GIVEN, "_set": object.__setattr__}
    parameters, lines = ["self"], []
    for field in dataclasses.fields(cls):
        name = value = field.name
        if field.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}() if {name} is _NOT_GIVEN else {name}" if field.init else f"_make_{name}()"
            default = "=_NOT_GIVEN"
        elif field.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = field.default
            value = name if field.init else f"_default_{name}"
            default = f"=_default_{name}"
        elif field.init:
            default = ""
        else:
            continue  # __post_init__ sets it
        if field.init:
            parameters.append(f"{name}{default}")
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(lines or ["pass"]), known)
    made = known["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


def _add_equality(cls: Any, frozen: bool) -> None:
    """Objects of one class are equal if their fields are. Those that do not change have a hash."""
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    # the fields as a tuple: two of them compare an element with itself as equal, a NaN too
    values: Any = attrgetter(*names) if len(names) > 1 else lambda x: tuple([getattr(x, name) for name in names])

    def __eq__(self: Any, other: Any) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    own = vars(cls)
    has_hash = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
    if "__eq__" not in own:
        cls.__eq__ = __eq__
    if not has_hash:
        cls.__hash__ = __hash__ if frozen else None


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_setting(self: Any, name: str, value: Any) -> None:
    if _stays(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_deleting(self: Any, name: str) -> None:
    if _stays(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _stays(x: Any, name: str) -> bool:
    """Whether an attribute of a frozen object may not be set. A subclass that is no dataclass may have attributes of its own."""
    return "__dataclass_fields__" in vars(type(x)) or any(field.name == name for field in dataclasses.fields(x))
