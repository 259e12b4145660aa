"""What a rule or a pass asks a GraphBuilder for, and gets: an error that names what there is; constants."""

import pytest

from mlirc.dialects.core.context import context
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.ir import ir
from mlirc.passes import constant_like, number_of

MODULE = "func.func @graph(%x: tensor<4xbf16>) -> tensor<4xbf16> { return %x : tensor<4xbf16> }"


def read(body):
    """`body(x)`, for the argument of a graph, where ops are built in it."""
    with context():
        module = ir.Module.parse(MODULE)
        block = module.body.operations[0].regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(block), ir.Location.unknown():
            return body(block.arguments[0])


def test_an_unknown_reduction_is_told_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"no reduction 'max'; there are .*amax"):
        read(lambda x: GraphBuilder().reduce("max", x, (0,)))


@pytest.mark.parametrize("number", [0.5, float("inf"), -0.0])
def test_a_constant_is_read_as_it_was_made(number):
    def body(x):
        made = constant_like(x, number)
        return str(made.type), number_of(x), number_of(made)

    type_, none, found = read(body)
    assert "bf16" in type_ and none is None
    assert str(found) == str(number)


def test_bits_of_no_dtype_are_not_built():
    """No operand says the dtype of the bits, and that of the operand is what an elementwise op would get."""
    with pytest.raises(AttributeError, match="no 'bitcast'"):
        read(lambda x: GraphBuilder().bitcast(x))
