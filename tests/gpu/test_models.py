"""Small variants of the models on a GPU, in bfloat16: outputs and gradients within twice eager's error against float64."""

import pytest
import torch

from benchmarks.models import MODELS
from benchmarks.step import reference_step, take_step
from mlirc.measurement.error import error_of


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", MODELS)
def test_model(name, training):
    model = MODELS[name](small=True)
    module = model.build(torch.bfloat16, training).cuda()
    inputs = {k: v.cuda() for k, v in model.inputs(2, torch.bfloat16, training).items()}
    reference = reference_step(model, module, inputs, training)
    eager = error_of(take_step(model, module, module, inputs, training), reference)
    call = torch.compile(module, backend="mlirc", options={"fallback": "error"})
    error = error_of(take_step(model, module, call, inputs, training), reference)
    assert error.outputs <= 2 * eager.outputs
    assert error.gradients <= 2 * eager.gradients
