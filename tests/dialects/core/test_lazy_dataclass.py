"""Dataclasses that write their `__init__` late do what those of the standard library do, and all of ours are such."""

import ast
import copy
import dataclasses
import math
import pickle
import threading
from dataclasses import FrozenInstanceError, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mlirc.dialects.lazy_dataclass import dataclass, lazy_dataclass

ROOT = Path(__file__).parents[3]
OPTIONS = [{}, {"frozen": True}, {"eq": False}, {"eq": False, "slots": True}, {"slots": True}]
CALLS: list[tuple[tuple, dict[str, Any]]] = [
    ((1, "a"), {}),
    ((1,), {"text": "a", "more": [2]}),
    ((1, "a", [2], 3.0), {}),
    ((1, "b"), {"number": math.nan}),
]
WRONG_CALLS: list[tuple[tuple, dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, "a", [], 0.0, 4, 5), {}),
    ((1, "a"), {"x": 2}),
]


def point(decorator: Any) -> Any:
    class Point:
        """A point."""

        kinds: ClassVar[tuple] = (1, 2)
        x: int
        text: str
        more: list = field(default_factory=list)
        number: float = 0.5
        unseen: int = field(default=7, repr=False, compare=False)
        length: int = field(init=False)
        fixed: str = field(init=False, default="f")
        new: list = field(init=False, default_factory=list)

        def __post_init__(self):
            object.__setattr__(self, "length", len(self.text))

    return decorator(Point)


def outcome(work: Any) -> Any:
    try:
        return work()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_objects_are_those_of_the_standard_library(options):
    ours, theirs = (point(decorator(**options)) for decorator in (lazy_dataclass, dataclasses.dataclass))
    for args, kwargs in CALLS:
        a, b = ours(*args, **kwargs), theirs(*args, **kwargs)
        assert repr(a) == repr(b) and dataclasses.asdict(a).keys() == dataclasses.asdict(b).keys()
        assert repr(dataclasses.asdict(a)) == repr(dataclasses.asdict(b))
        for change in ({}, {"x": 2}, {"unseen": 1}, {"number": 1.0}):
            changed_a, changed_b = dataclasses.replace(a, **change), dataclasses.replace(b, **change)
            assert (a == changed_a, a != changed_a) == (b == changed_b, b != changed_b)
        assert (a == copy.copy(a), a == b, a == 1) == (b == copy.copy(b), False, False)
        assert outcome(lambda x=a: hash(x) == hash(copy.copy(x))) == outcome(lambda x=b: hash(x) == hash(copy.copy(x)))
        assert ours(*args, **kwargs).more is not ours(*args, **kwargs).more or "more" in kwargs or len(args) > 2
        for name in ("x", "other"):
            assert outcome(partial(setattr, a, name, 3)) == outcome(partial(setattr, b, name, 3))
            assert outcome(partial(delattr, a, name)) == outcome(partial(delattr, b, name))
    assert ours.__match_args__ == theirs.__match_args__ and ours.__doc__ == theirs.__doc__


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_wrong_arguments_are_refused(options):
    for args, kwargs in WRONG_CALLS:
        fresh = point(lazy_dataclass(**options))
        for _ in range(2):  # by what writes `__init__`, and by what it wrote
            with pytest.raises(TypeError):
                fresh(*args, **kwargs)


@pytest.mark.parametrize("decorator", [lazy_dataclass, dataclasses.dataclass])
def test_what_a_class_defines_stays(decorator):
    @decorator(frozen=True)
    class Own:
        """Has methods of its own."""

        x: Any

        def __init__(self, x):
            object.__setattr__(self, "x", x + 1)

        def __repr__(self):
            return "own"

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 5

    a = Own(1)
    assert (a.x, repr(a), a == 3, hash(a)) == (2, "own", True, 5)

    class Identity:
        """Its hash is that of the object."""

        x: int
        __hash__ = object.__hash__

    made: Any = decorator(Identity)
    b = made(1)
    assert hash(b) == object.__hash__(b) and b == made(1)


@pytest.mark.parametrize("further", [lazy_dataclass, dataclasses.dataclass])
@pytest.mark.parametrize("decorator", [lazy_dataclass, dataclasses.dataclass])
def test_subclasses(decorator, further):
    base = point(decorator(frozen=True))

    class Plain(base):  # no dataclass itself
        pass

    @further(frozen=True)
    class Longer(base):
        """One field more."""

        last: int = 3

    a, b = Plain(1, "a"), Longer(1, "a", last=4)
    assert (a.length, b.length, b.last) == (1, 1, 4)
    assert a != base(1, "a") and a == Plain(1, "a") and b != Longer(1, "a")
    a.own = 3  # type: ignore[attr-defined]
    for x, name in ((a, "x"), (b, "last"), (b, "own")):
        with pytest.raises(FrozenInstanceError):
            setattr(x, name, 1)
    assert "Plain(x=1" in repr(a) and "last=4" in repr(b)
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):
        further(type("Unfrozen", (base,), {"__doc__": "May not be."}))
    with pytest.raises(TypeError, match="cannot inherit frozen"):
        further(frozen=True)(type("Frozen", (point(decorator),), {"__doc__": "May not be."}))


def with_fields(**annotations: type) -> Any:
    return lazy_dataclass(frozen=True)(type("Made", (), {"__annotations__": annotations, "__doc__": "Made here."}))


def test_elements_are_compared_by_identity_first():
    one, none = with_fields(x=float), with_fields()
    assert one(math.nan) == one(math.nan) and one(math.nan) != one(float("nan"))
    assert none() == none() and hash(none()) == hash(none())


def test_threads_may_make_the_first_object_together():
    for _ in range(20):
        fresh, found = point(lazy_dataclass(frozen=True)), []
        start = threading.Barrier(4)

        def make(fresh=fresh, found=found, start=start):
            start.wait()
            found.append(fresh(1, "a"))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(map(repr, found))) == 1 and len(found) == 4


@dataclass(frozen=True)
class Pickled:
    """May be read by a process that has made no object of it."""

    x: int


def test_an_object_of_another_process():
    text = pickle.dumps(Pickled(3))
    assert pickle.loads(text) == Pickled(3)


@pytest.mark.parametrize("folder", ["dialects", "lowering", "codegen", "frontend"])
def test_all_of_ours_are_such(folder):
    """One of the standard library compiles six texts while it is imported (docs/decisions.md)."""
    for file in (ROOT / folder).rglob("*.py"):
        names = {
            alias.name
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
            for alias in node.names
        }
        assert "dataclass" not in names or file.name == "lazy_dataclass.py", file
