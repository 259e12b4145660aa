"""A scalar body that asks its builder for a method that there is not: told where it is written, with the names that were meant."""

import pytest
import torch

from mlirc.dialects.core.dialect import OPS, load_ops
from mlirc.dialects.core.scalar_builder import METHODS, TorchBuilder, check_body
from mlirc.lowering.cpu.math.builder import VectorBuilder
from mlirc.lowering.gpu.triton.builder import TritonBuilder
from mlirc.ops import Unary


def test_at_the_class():
    with pytest.raises(AttributeError, match=r"test_unknown_methods\.py:\d+: .*no b\.multiply; did you mean 'mul'"):

        class Wrong(Unary, name="wrong_method"):
            @staticmethod
            def scalar(b, x):
                if not b.dtype.is_floating_point:
                    return b.multiply(x, x)  # no float comes here
                return b.mul(x, x)

    assert "wrong_method" not in OPS


@pytest.mark.parametrize("builder", [TorchBuilder, VectorBuilder, TritonBuilder])
def test_at_the_call(builder):
    with pytest.raises(AttributeError, match=r"no b\.logarithm; did you mean 'log'"):
        builder.__new__(builder).logarithm  # noqa: B018


def test_each_method_is_everywhere():
    for builder in (TorchBuilder, VectorBuilder, TritonBuilder):
        assert not [name for name in METHODS if not hasattr(builder, name)]


def test_bodies_of_ours_pass():
    load_ops()
    bodies = [cls.scalar for cls in OPS.values() if hasattr(cls, "scalar")]
    assert len(bodies) > 100
    for body in bodies:
        check_body(body)


@pytest.mark.parametrize("body", [lambda b, x: b.where(x, x), lambda b, x: b.add(x, b.where(x, x))])
def test_in_a_lambda(body):
    with pytest.raises(AttributeError, match=r"no b\.where"):
        check_body(body)


def test_what_has_no_builder_passes():
    check_body(torch.sin)
    check_body(lambda *values: values[0].anything)
