"""The error of `mlirc compare`: what is equal is no error, NaN and infinities too, and what differs in one element is seen beside them."""

import math

import pytest
import torch

from mlirc.measurement.error import CallResults, error_of, relative_distance

REFERENCE = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 3.0, 4.0], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_the_reference_has_is_no_error(dtype):
    assert relative_distance([REFERENCE.to(dtype)], [REFERENCE]) == 0.0


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 7.0])
def test_one_wrong_element_beside_nan_is_an_error(at, wrong):
    actual = REFERENCE.float()
    actual[at] = wrong
    right = error_of(CallResults([REFERENCE.float()], []), CallResults([REFERENCE], []))
    error = error_of(CallResults([actual], []), CallResults([REFERENCE], []))
    same = torch.equal(actual.nan_to_num(5.0), REFERENCE.float().nan_to_num(5.0))
    assert error.within(right, torch.float32) == same, error


def test_finite_elements_have_their_error_beside_nan():
    actual = REFERENCE.float()
    actual[5] = 9.0
    assert relative_distance([actual], [REFERENCE]) == 1.0  # 5 of the size of (3, 4)
