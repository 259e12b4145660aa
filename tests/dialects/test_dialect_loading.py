"""Loading the dialect, interrupted at any line, then again: every op is there once."""

from tests.forked_programs import python

SCRIPT = """
import sys
from collections import Counter

every = int(sys.argv[1])  # lines more before each next interrupt
interrupts = 0


def load():
    from mlirc.dialects.core.bindings import ir
    from mlirc.dialects.core.context import context
    with context():
        return ir.Module.parse("func.func @graph(%x: tensor<2xf32>) { return }")


def interrupted():
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if not frame.f_globals.get("__name__", "").startswith("mlirc."):
            return None
        lines += event == "line" and frame.f_code.co_name == "<module>"
        if lines > every * (1 + interrupts):
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        load()
        return False
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)


import torch
if every:
    while interrupted():
        interrupts += 1
load()
from mlirc.dialects.core.dialect import IMPORTS, OPS, Mlirc, Mlircx, load_ops
load_ops()
for dialect in (Mlirc, Mlircx):
    names = Counter(cls.OPERATION_NAME for cls in dialect.operations)
    assert set(names.values()) == {1}, names
assert all(getattr(sys.modules[cls.__module__], cls.__name__) is cls for cls in OPS.values())
print(interrupts, len(OPS), len(IMPORTS), len(Mlirc.operations), len(Mlircx.operations))
"""


def counts(every: int) -> list[int]:
    done = python("-c", SCRIPT, every)
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split()))


def test_an_interrupted_load_is_made_up_for():
    _, *whole = counts(0)
    interrupts, *found = counts(17)
    assert interrupts > 3
    assert found == whole


CONSTRUCTOR = """
import inspect
from mlirc.dialects.core.context import context
with context():
    from mlirc.dialects.core.bindings import ir
    from mlirc.dialects.core.dialect import OPS
    module = ir.Module.parse("func.func @graph(%x: tensor<2xf32>, %y: tensor<2xf32>) { return }")
    block = module.body.operations[0].regions[0].blocks[0]
    x, y = block.arguments
    with ir.InsertionPoint.at_block_begin(block), ir.Location.unknown():
        for _ in range(2):
            made = OPS["add"](x, y, x.type)
            assert (made.x, made.y, made.out.type) == (x, y, x.type)
            try:
                OPS["add"](x)
            except TypeError:
                pass
            else:
                raise AssertionError("too few operands")
    assert str(module).count("mlirc.add") == 2
    assert list(inspect.signature(OPS["add"].__init__).parameters)[1:3] == ["x", "y"]
"""


def test_an_op_is_made_by_its_class():
    done = python("-c", CONSTRUCTOR)
    assert done.returncode == 0, done.stderr
