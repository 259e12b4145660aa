"""Whether a product is a kernel or the library's, where both are measured. The clock is a function here."""

import hashlib
from collections.abc import Sequence

import pytest

from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.tuning import matmul_tuning
from mlirc.codegen.tuning.matmul_tuning import PASS, MatmulTuning, better
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from tests.triton.matmul.test_matmul_passes import text

X, W, B, Y = "tensor<8192x768xbf16>", "tensor<768x3072xbf16>", "tensor<3072xbf16>", "tensor<8192x3072xbf16>"
BODY = f"""%0 = "mlirc.addmm"(%b, %x, %w) : ({B}, {X}, {W}) -> {Y}
%1 = "mlirc.gelu"(%0) : ({Y}) -> {Y}
%2 = "mlirc.neg"(%1) : ({Y}) -> {Y}
return %2 : {Y}"""
SOURCE = text(f"%x: {X}, %w: {W}, %b: {B}", BODY, Y)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(matmul_tuning, "_known", {})
    monkeypatch.setattr(
        matmul_tuning.environment, "key", lambda *parts: hashlib.sha256(repr(parts).encode()).hexdigest()
    )


class Clock:
    """How long each way takes; `seen` is what was timed, lowered."""

    def __init__(self, kernel: float, library: float):
        self.kernel, self.library, self.seen = kernel, library, []

    def __call__(self, modules: Sequence[ir.Module]) -> list[float]:
        self.seen += map(str, modules)
        return [self.kernel if "tl.dot" in text or "mma" in text else self.library for text in map(str, modules)]


def chosen(clock: Clock, folder=None, seconds: float = 60) -> tuple[str, MatmulTuning]:
    tuning = MatmulTuning(seconds, folder, clock)
    with context():
        module = ir.Module.parse(SOURCE)
        run_pipeline(module, PASS, given={PASS: {"chooser": tuning}})
        return str(module), tuning


@pytest.mark.parametrize(("kernel", "library", "taken"), [(50.0, 70.0, True), (70.0, 50.0, False), (70.0, 69.9, True)])
def test_the_faster_way_is_taken(kernel, library, taken, tmp_path):
    """Both are compiled with their epilogue, and without what follows it; what is known is not measured again."""
    clock = Clock(kernel, library)
    made, tuning = chosen(clock, CacheFolder(tmp_path))
    assert ("mlircx.kernel" in made) == taken and ("mlirc.addmm" in made) != taken
    ours, theirs = clock.seen
    assert "mlircx.call" not in ours and 'callee = "addmm"' in theirs
    assert all(module.count('"mlirc.triton"') == 1 and "neg" not in module for module in clock.seen)
    assert tuning.found[0].microseconds == {"kernel": kernel, "library": library} and tuning.found[0].how == "measured"
    matmul_tuning._known.clear()
    again, tuning = chosen(clock, CacheFolder(tmp_path))
    assert again == made and len(clock.seen) == 2 and tuning.found[0].how == "from the cache"


def test_the_cost_model_decides_when_the_time_is_spent():
    clock = Clock(70.0, 50.0)
    made, tuning = chosen(clock, seconds=0)
    assert "mlircx.kernel" in made and not clock.seen and not tuning.found


def test_what_is_hardly_faster_is_noise():
    assert better({"kernel": 100.0, "library": 98.0}, True) and not better({"kernel": 98.0, "library": 100.0}, False)
    assert not better({"kernel": 100.0, "library": 90.0}, True) and better({"kernel": 90.0, "library": 100.0}, False)
