"""Which of cuBLASLt's algorithms a product takes: the model's choices where an H200's times are known."""

from types import SimpleNamespace

import pytest

from mlirc.codegen.libraries import cublas_choice
from mlirc.codegen.libraries.cublas_choice import fastest
from mlirc.codegen.libraries.cublas_problem import CublasMatrix, Problem


def problem(m: int, n: int, k: int) -> Problem:
    """m rows by n columns, as the library computes it transposed: d has n rows."""
    a, b, d = CublasMatrix(n, k, n, 0), CublasMatrix(k, m, k, 0), CublasMatrix(n, m, n, 0)
    return Problem(False, False, a, b, d, d, swapped=True, bias=False, batch=1)


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.setattr(cublas_choice, "config", lambda algorithm: algorithm.config)


def algorithm(tile: int, custom: int, family: int = 66):
    return SimpleNamespace(config=(family, tile, custom))


# the tile that the library names first, and what took the least time of those that it named: microseconds of both
@pytest.mark.parametrize(
    ("sizes", "first", "best"),
    [
        ((8192, 2304, 768), 209, 20),  # 46.5, 41.6
        ((8192, 3072, 768), 24, 20),  # 63.6, 55.8
        ((4096, 11264, 2048), 24, 201),  # 280, 265
        ((8192, 50304, 768), 209, 201),  # 1052, 882
        ((4096, 32000, 2048), 248, 197),  # 827, 758
        ((4096, 2048, 5632), 24, 24),  # 136.9; 136.7 by 20
        ((512, 768, 768), 32, 32),  # fewer tiles than multiprocessors
    ],
)
def test_choices(sizes, first, best):
    turns = [algorithm(best if best != first else 20, 1), algorithm(999, 1)]
    named = [algorithm(first, 7), *turns]
    assert fastest(problem(*sizes), named, named[0], 132).config[1] == best


def test_what_the_model_does_not_know_stays():
    sizes, turns = problem(8192, 3072, 768), algorithm(20, 1)
    for first in (algorithm(999, 7), algorithm(201, 2)):
        assert fastest(sizes, [first, turns], first, 132) is first
    first = algorithm(24, 7)
    assert fastest(sizes, [first, algorithm(20, 1, family=5), algorithm(20, 4)], first, 132) is first
    assert fastest(sizes, [first, turns], first, 132) is turns
