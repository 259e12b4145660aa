"""Six models, in inference and training, float32 and bfloat16, for one batch size and for any: as exact as eager."""

import copy

import pytest
import torch
from torch._dynamo.utils import counters

from benchmarks.error import error_of, reference_step, take_step
from benchmarks.models import MODELS, Model

ERROR_OPTIONS = {"fallback": "error"}

every_model = pytest.mark.parametrize("name", MODELS)
every_way = pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


def compiled(module: torch.nn.Module):
    return torch.compile(module, backend="mlirc", options=ERROR_OPTIONS)


def assert_as_exact_as_eager(model: Model, original, module, call, inputs, dtype, training) -> None:
    """`call` is a compiled form of `module`, a copy of `original`: batch-norm statistics advance on copies only."""
    reference = reference_step(model, original, inputs, training)
    plain = copy.deepcopy(original)
    eager = error_of(take_step(model, plain, plain, inputs, training), reference)
    ours = error_of(take_step(model, module, call, inputs, training), reference)
    assert ours.within(eager, dtype), f"{model.name}: error {ours}, eager {eager}"


@every_dtype
@every_way
@every_model
def test_static_batch(name, training, dtype):
    model = MODELS[name](small=True)
    original = model.build(dtype, training)
    module = copy.deepcopy(original)
    inputs = model.inputs(2, dtype, training)
    assert_as_exact_as_eager(model, original, module, compiled(module), inputs, dtype, training)
    statistics = {k: v for k, v in original.state_dict().items() if v.dtype == torch.int64}
    for key, before in statistics.items():
        assert module.state_dict()[key] == before + training, f"{key}: batches seen"


@every_dtype
@every_way
@every_model
def test_one_graph_for_every_batch(name, training, dtype):
    model = MODELS[name](small=True)
    original = model.build(dtype, training)
    module = copy.deepcopy(original)
    call = compiled(module)
    counters.clear()
    for batch in (2, 3, 5):
        inputs = model.inputs(batch, dtype, training)
        for value in inputs.values():
            torch._dynamo.mark_dynamic(value, 0)
        assert_as_exact_as_eager(model, original, module, call, inputs, dtype, training)
    assert counters["stats"]["unique_graphs"] == 1


@every_way
def test_the_second_batch_size_makes_the_graph_dynamic(training):
    model = MODELS["mlp"](small=True)
    original = model.build(torch.float32, training)
    module = copy.deepcopy(original)
    call = compiled(module)
    counters.clear()
    for batch in (2, 3, 5, 7):
        inputs = model.inputs(batch, torch.float32, training)
        assert_as_exact_as_eager(model, original, module, call, inputs, torch.float32, training)
    assert counters["stats"]["unique_graphs"] == 2


@pytest.mark.full
@every_dtype
@every_way
@every_model
def test_full_size(name, training, dtype):
    model = MODELS[name](small=False)
    original = model.build(dtype, training)
    module = copy.deepcopy(original)
    inputs = model.inputs(model.batch, dtype, training)
    assert_as_exact_as_eager(model, original, module, compiled(module), inputs, dtype, training)
