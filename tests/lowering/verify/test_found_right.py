"""What the verifier remembers as right is told apart by its attributes, whatever ops it looked at before."""

import pytest

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.verify import graph
from mlirc.lowering.verify.stage import verify_stage

X = "tensor<4x8xf32>"
OPS = {  # attributes that are right, and those that are not
    "softmax": ("{dim = 1 : i64}", ["{dim = 2 : i64}", "{dim = -1 : i64}"]),
    "cumsum": ("{dim = 0 : i64}", ["{dim = 3 : i64}"]),
}


def verified(name, *attributes):
    lines = [f'%{k} = "mlirc.{name}"(%x) {given} : ({X}) -> {X}' for k, given in enumerate(attributes)]
    text = f"func.func @graph(%x: {X}) -> {X} {{\n{chr(10).join(lines)}\nreturn %0 : {X}\n}}"
    module = ir.Module.parse(text)
    verify_stage(module.body.operations[0], "graph")


@pytest.mark.parametrize("count", [1, 2, 3, 40])
@pytest.mark.parametrize("name", OPS)
def test_equal_types_and_other_attributes(name, count):
    right, wrong = OPS[name]
    with context():
        for attributes in wrong:
            with pytest.raises(StageError, match=f"mlirc.{name}"):
                verified(name, *[right] * count, attributes)


def test_equal_ops_are_looked_at_once(monkeypatch):
    looked, build = [], graph.build
    monkeypatch.setattr(graph, "_right", set())
    monkeypatch.setattr(graph, "build", lambda cls, op: looked.append(cls) or build(cls, op))
    with context():
        verified("softmax", *["{dim = 1 : i64}"] * 20)
        verified("softmax", "{dim = 1 : i64}", "{dim = 0 : i64}")
    assert [cls.mnemonic for cls in looked].count("softmax") == 2
