"""What was found to be the fastest algorithm: kept on disk, where what runs is what the files of mlirc say."""

import contextlib
import hashlib

import pytest
import torch

from mlirc.codegen.cache import environment
from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.frame.gpu_calls import CublasMatmul
from mlirc.codegen.libraries import cublas_tuning
from mlirc.codegen.libraries.cublas import Algorithm
from mlirc.codegen.libraries.cublas_problem import problem_of
from mlirc.dialects.core.tensor_info import TensorInfo


def matrix(rows: int, columns: int) -> TensorInfo:
    return TensorInfo(torch.float16, (rows, columns), device="cuda:0")


PRODUCT = CublasMatmul((matrix(64, 32), matrix(32, 16), matrix(64, 16)), ())
ALGORITHMS = [Algorithm((1,) * 8), Algorithm((2,) * 8)]


@pytest.fixture
def measured(monkeypatch, tmp_path) -> list[int]:
    """Stands for a GPU on which the second algorithm is the faster one; grows by one at each measurement."""
    times: list[int] = []
    monkeypatch.setattr(cublas_tuning, "_known", {})
    monkeypatch.setattr(cublas_tuning, "measured", lambda *_: times.append(1) or 1)
    monkeypatch.setattr(cublas_tuning.cache_folder, "folder", lambda: CacheFolder(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    return times


def fastest() -> Algorithm:
    return cublas_tuning.fastest(None, PRODUCT, problem_of(PRODUCT, ()), 256, ALGORITHMS)


def test_a_second_process_measures_nothing(measured, monkeypatch):
    monkeypatch.setattr(environment, "key", lambda *parts: hashlib.sha256(repr(parts).encode()).hexdigest())
    assert fastest() is ALGORITHMS[1] and len(measured) == 1
    cublas_tuning._known.clear()
    assert fastest() is ALGORITHMS[1] and len(measured) == 1


def test_changed_sources_are_measured_once_and_not_kept(measured, monkeypatch, tmp_path, recwarn):
    """Their key cannot be made: it was once the text of all that it is made of, a file name too long for any disk."""

    def changed(*parts):
        raise environment.ChangedSources("a.py was changed after this process started")

    monkeypatch.setattr(environment, "key", changed)
    assert fastest() is fastest() is ALGORITHMS[1] and len(measured) == 1
    assert not list(tmp_path.iterdir()) and not recwarn.list
