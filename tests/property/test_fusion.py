"""Random programs give the same results after every pass of simplify and fuse as in eager."""

from collections.abc import Callable
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.interpreter import run
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.pipeline.pipelines import FUSE, SIMPLIFY
from tests.compare_stages import compare, prepare
from tests.property.random_programs import as_promised, random_program

STEPS = f"{SIMPLIFY},{FUSE}"


def check(program: Callable, inputs: list[torch.Tensor], dynamic: bool) -> None:
    expected = as_promised(program, inputs)
    with context():
        _, imported = prepare(program, *inputs, dynamic=dynamic)

        def after_pass(step: str, module) -> None:
            function = module.body.operations[0]
            try:
                compare(run(function, inputs, imported.objects), expected, rtol=1e-3, atol=1e-3)
            except Exception as error:
                raise AssertionError(f"after {step}:\n{module}") from error

        run_pipeline(imported.module, STEPS, after_pass)


@pytest.mark.parametrize("dynamic", [False, True])
def test_strides_are_those_that_pytorch_promises(dynamic):
    """Its fake tensors have others than eager's where an operand is broadcast to a new first dimension of size 1."""

    def program(x):
        return [x.unsqueeze(1).expand(2, 2, 1).permute(2, 1, 0) + x]

    x = torch.randn(2, 1)
    assert program(x)[0].stride() == (1, 1, 2) and as_promised(program, [x])[0].stride() == (4, 2, 1)
    check(program, [x], dynamic)


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(st.randoms(use_true_random=False), st.integers(2, 14), st.booleans())
def test_every_pass_keeps_the_results(rng, steps, dynamic):
    check(*random_program(rng, steps), dynamic)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2000))
def test_every_pass_keeps_the_results_of_long_programs(seed):
    check(*random_program(Random(seed), 40), seed % 2 == 0)
