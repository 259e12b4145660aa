"""Measured kernels: what is chosen, kept, and left alone. The clock is a function here, and nothing is compiled."""

import hashlib

import pytest

from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.cuda.triton_compile import CompiledKernel
from mlirc.codegen.tuning import autotune
from mlirc.codegen.tuning.autotune import Request, Tuned, tune
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from tests.triton.test_lower_triton import GPU, launch, lowered, named


class Clock:
    """A GPU on which `time` says how long a kernel takes, `really` what it takes in turns with another one.

    Kernels of `refused` warps do not compile.
    """

    name = "a GPU"

    def __init__(self, time, refused=(), really=None):
        self.takes, self.refused, self.really = time, refused, really or time
        self.timed: list[Request] = []
        self.compared: list[tuple[Request, Request]] = []

    def compile(self, kernels):
        return [None if k.num_warps in self.refused else CompiledKernel(k.name, b"", 0, k.num_warps) for k in kernels]

    def time(self, request):
        self.timed.append(request)
        return self.takes(request.kernel)

    def compare(self, first, second):
        self.compared.append((first, second))
        return self.really(first.kernel), self.really(second.kernel)

    def __call__(self, index: int) -> "Clock":
        assert index == 0
        return self


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """And keys that are there also where a source file was changed after the process began."""
    monkeypatch.setattr(autotune, "_chosen", {})
    monkeypatch.setattr(autotune.environment, "key", lambda *parts: hashlib.sha256(repr(parts).encode()).hexdigest())


def block_of(op) -> int:
    return attribute_value(ir.DictAttr(op.attributes["constants"])["XBLOCK"])


def tuned(clock: Clock, seconds: float = 60, folder=None) -> tuple[list[Tuned], ir.Module]:
    module = lowered(launch("%x", "%y", GPU))
    return tune(module, clock, {"s0": 4096}, seconds, folder), module


def text(module: ir.Module) -> str:
    return str(named(module, "mlirc.triton")[0]).strip()


def far(kernel) -> float:
    """The faster the nearer the block is to 4096, three steps away, and the warps to 8."""
    return 100 * max(kernel.constants["XBLOCK"] / 4096, 4096 / kernel.constants["XBLOCK"]) + abs(kernel.num_warps - 8)


def test_the_fastest_is_written():
    with context():
        (found,), module = tuned(Clock(far))
        (kernel,) = named(module, "mlirc.triton")
        assert (block_of(kernel), attribute_value(kernel.attributes["num_warps"])) == (4096, 8)
        assert attribute_value(kernel.attributes["grid"])[0] == "((768*s0 + 4095)//4096)"
        assert found.how == "measured" and found.kernel == "neg"
        assert found.microseconds[found.chosen] == min(found.microseconds.values()) == 100
        (run,) = named(module, "mlircx.run")
        assert attribute_value(run.attributes["kernel"]) == attribute_value(kernel.attributes["sym_name"])


def test_noise_changes_nothing():
    with context():
        before = text(lowered(launch("%x", "%y", GPU)))
        clock = Clock(lambda kernel: 100.0 if kernel.num_warps == 4 else 98.0)
        (found,), module = tuned(clock)
        assert text(module) == before and found.chosen == next(iter(found.microseconds))


def test_what_is_not_faster_in_turns_is_not_chosen():
    """What is left of many candidates is the fastest that is faster than the cost model's choice when both are timed again."""
    with context():
        before = text(lowered(launch("%x", "%y", GPU)))
        lucky = Clock(lambda kernel: 100.0 - 5 * kernel.num_warps, really=lambda kernel: 100.0)
        (found,), module = tuned(lucky)
        assert text(module) == before and lucky.compared and found.chosen == next(iter(found.microseconds))
        assert found.microseconds[found.chosen] == 100
        (again,), module = tuned(lucky)
        assert text(module) == before and again.how == "from the cache"
        autotune._chosen.clear()
        seems, is_ = {8: 60.0, 2: 70.0}, {2: 80.0}
        some = Clock(lambda k: seems.get(k.num_warps, 100.0), really=lambda k: is_.get(k.num_warps, 100.0))
        (found,), module = tuned(some)
        (kernel,) = named(module, "mlirc.triton")
        assert attribute_value(kernel.attributes["num_warps"]) == 2 and found.microseconds[found.chosen] == 80


def test_a_choice_on_the_way_to_others_is_found_again():
    """What seemed faster, and was reached by what is chosen in the end, is no way to it."""
    with context():
        clock = Clock(far, really=lambda kernel: 10.0 if kernel.constants["XBLOCK"] == 2048 else 1000.0)
        (found,), module = tuned(clock)
        wanted = text(module)
        assert found.how == "measured" and "2048" in found.chosen
        (again,), module = tuned(clock)
        assert text(module) == wanted and again.how == "from the cache"


def test_what_is_known_of_other_choices_is_measured_anew():
    with context():
        (found,), _ = tuned(Clock(far))
        (key,) = autotune._chosen
        autotune._chosen[key] = (["no choice"], {})
        (again,), _ = tuned(Clock(far))
        assert again.how == "measured" and again.chosen == found.chosen


def test_what_does_not_compile_is_not_chosen():
    with context():
        (found,), module = tuned(Clock(far, refused=(8, 16)))
        (kernel,) = named(module, "mlirc.triton")
        assert attribute_value(kernel.attributes["num_warps"]) < 8 and found.how == "measured"


def test_a_second_run_measures_nothing_and_chooses_the_same(tmp_path, monkeypatch):
    folder = CacheFolder(tmp_path / "cache")
    with context():
        (first,), module = tuned(Clock(far), folder=folder)
        wanted = text(module)
        for known in (autotune._chosen, {}):  # of this process, then from the disk alone
            monkeypatch.setattr(autotune, "_chosen", known)
            clock = Clock(lambda kernel: 1.0)
            (again,), module = tuned(clock, folder=folder)
            assert text(module) == wanted and not clock.timed
            assert (again.chosen, again.microseconds, again.how) == (first.chosen, first.microseconds, "from the cache")
        other = Clock(far)
        other.name = "another GPU"
        tuned(other, folder=folder)
        assert other.timed


def test_no_time_is_left(tmp_path):
    folder = CacheFolder(tmp_path / "cache")
    with context():
        before = text(lowered(launch("%x", "%y", GPU)))
        clock = Clock(far)
        found, module = tuned(clock, seconds=0, folder=folder)
        assert (found, clock.timed) == ([], []) and text(module) == before
        assert tuned(clock, folder=folder)[0][0].how == "measured"  # nothing was kept that is not whole


def test_symbolic_sizes_are_what_they_were():
    with context():
        module = lowered(launch("%x", "%y", GPU))
        clock = Clock(far)
        tune(module, clock, {"s0": 1000}, 60)
        assert {r.symbols["s0"] for r in clock.timed} == {1000}
        clock = Clock(far)
        tune(lowered(launch("%x", "%y", GPU, op="exp")), clock, {}, 60)  # a symbol that no input has alone
        assert all(r.symbols["s0"] > 0 for r in clock.timed)
