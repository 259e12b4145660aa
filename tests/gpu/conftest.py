"""Tests that need an NVIDIA GPU; benchmarks/gpu.sh runs them on a machine that has one."""

import pytest
import torch


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="this machine has no NVIDIA GPU")
        for item in items:
            if "gpu" in item.path.parts:
                item.add_marker(skip)


@pytest.fixture
def second_gpu():
    if torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    return torch.device("cuda:1")
