"""KernelBuilder: what the kernels that it makes look like."""

import pytest
import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.symbols import symbol
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of


@pytest.fixture
def module():
    with context():
        made = ir.Module.create()
        with ir.InsertionPoint(made.body):
            yield made


def tensor(dtype, *shape):
    return create("iota", [], [type_of(TensorInfo(dtype, shape))], {"expr": "0"}).out


def body(value):
    return [op.operation.name.split(".")[1] for op in value.owner.regions[0].blocks[0].operations]


def test_one_operand_for_each_tensor_and_one_read_for_equal_ones(module):
    x, y = tensor(torch.float32, 4, 8), tensor(torch.float32, 8)
    k = KernelBuilder((4, 8), label="test")
    total = k.add(k.mul(k.read(x, k.dims), k.read(x, k.dims)), k.read(y, k.dims[1:]))
    (result,) = k.finish([(total, k.dims, info_of(x))])
    assert list(result.owner.operands) == [x, y]
    assert body(result) == ["read", "mul", "read", "add", "yield"]
    module.operation.verify()


def test_half_types_are_computed_in_float32(module):
    x = tensor(torch.bfloat16, 8)
    k = KernelBuilder((8,))
    value = k.mul(k.read(x, k.dims), 2.0)
    assert info_of(value).dtype == torch.float32
    (result,) = k.finish([(value, k.dims, info_of(x))])
    assert body(result) == ["read", "cast", "constant", "mul", "cast", "yield"]
    casts = [op for op in result.owner.regions[0].blocks[0].operations if op.operation.name == "mlirc.cast"]
    assert all(ir.BoolAttr(op.attributes["implicit"]).value for op in casts)


def test_dimensions_are_parallel_then_inner(module):
    x = tensor(torch.float32, 4, 8)
    k = KernelBuilder((4,), (8,))
    assert (k.parallel_dims, k.inner_dims) == ((symbol("d0"),), (symbol("d1"),))
    place = k.reduce("argmax", k.read(x, k.dims))
    assert info_of(place).dtype == torch.int64
    k.finish([(place, k.parallel_dims, TensorInfo(torch.int64, (4,)))])
    module.operation.verify()


def test_an_abandoned_kernel_leaves_nothing(module):
    x = tensor(torch.float32, 8)
    k = KernelBuilder((8,))
    k.exp(k.read(x, k.dims))
    del k
    assert len(list(module.body.operations)) == 1
    assert next(iter(x.uses), None) is None


def test_a_value_of_another_dtype_cannot_be_written(module):
    k = KernelBuilder((8,))
    with pytest.raises(AssertionError, match="cast it"):
        k.finish([(k.constant(1, torch.int64), k.dims, TensorInfo(torch.float32, (8,)))])


def test_an_unknown_op_is_named(module):
    with pytest.raises(AttributeError, match=r"no elementwise op mlirc\.frobnicate"):
        KernelBuilder(()).frobnicate(1)


@pytest.mark.parametrize(
    ("operands", "results", "message"),
    [
        ([None], [], "operand None of 'mlirc.add' is no value"),
        ([], ["f32"], "result 'f32' of 'mlirc.add' is no type"),
    ],
)
def test_what_is_no_value_or_no_type_is_named(module, operands, results, message):
    with pytest.raises(TypeError, match=message):
        create("add", operands, results)
