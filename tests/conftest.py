"""What holds for every test: benchmarks and tests are importable, and no test sees another's compiled code."""

import gc
import logging
import os
import sys
import zlib
from pathlib import Path

import hypothesis
import pytest
import torch

from tests import quick_capture, sampling

ROOT = Path(__file__).parents[1]
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # each worker has a core; a test about threads sets their number itself
sys.path.insert(0, str(ROOT))
os.environ["MLIRC_CACHE_DIR"] = "off"  # a test of the disk cache names a folder of its own
os.environ["MLIRC_VERIFY"] = "stages"
# The same examples in every run: what fails fails for everybody. HYPOTHESIS_RANDOM=1 draws others.
# How long it takes to draw them says how busy the machine is.
too_slow = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("fixed", derandomize=True, suppress_health_check=too_slow)
if "HYPOTHESIS_RANDOM" not in os.environ:
    hypothesis.settings.load_profile("fixed")
# Torch's structured trace: pytest would print thousands of its empty lines under each failed test.
logging.getLogger("torch.__trace").addFilter(lambda record: False)


def pytest_configure(config):
    sampling.EVERYTHING = bool(config.option.markexpr)


def pytest_pycollect_makeitem(name, obj):
    """A function that is `full` with all of its cases has tens of thousands: no items are made of them where none would run."""
    if not sampling.EVERYTHING and name.startswith("test") and any(x.name == "full" for x in _marks(obj)):
        return []
    return None


def _marks(obj):
    marks = getattr(obj, "pytestmark", ())
    return marks if isinstance(marks, list) else ()


def pytest_collection_modifyitems(config, items):
    """`full` tests, and all cases of `thinned` ones, run when a marker expression asks for them (`make test-all`), and never
    by accident. SHARD=i/n: a part."""
    if config.option.markexpr:
        index, shards = map(int, os.environ.get("SHARD", "0/1").split("/"))
        keep = [item for item in items if zlib.crc32(item.nodeid.encode()) % shards == index]
    else:
        keep = sampling.thinned([item for item in items if not item.get_closest_marker("full")])
    if len(keep) < len(items):
        kept = set(keep)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = keep


def pytest_collection_finish():
    """Tens of thousands of collected tests live to the end: the garbage collector need not walk them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(
        50_000, 20, 50
    )  # a compilation makes a million objects: collecting takes 8% of it with Python's own


@pytest.fixture(autouse=True)
def fresh_compiler_state():
    """Compiled code of earlier tests is Dynamo's global state: it would count as recompiles. So is whether sizes are static:
    before PyTorch 2.12 threads that call with `dynamic=True` leave that to all, by putting back what another one had set."""
    torch.manual_seed(0)
    if "torch._dynamo" not in sys.modules:  # a test of the dialect need not wait seconds for its import
        yield
        return
    quick_capture.leave_out()
    torch._dynamo.reset()
    with torch._dynamo.config.patch(assume_static_by_default=True, automatic_dynamic_shapes=True):
        yield


@pytest.fixture(autouse=True)
def registered_passes_go():
    """A pass that a test registers, itself or by `--import` in this process, is unknown to the next test."""
    name = "mlirc.lowering.pipeline.pass_manager"
    manager = sys.modules.get(name)
    before = dict(manager.passes()) if manager and manager.passes.cache_info().currsize else None
    yield
    manager = sys.modules.get(name)
    if manager and before is not None:
        manager.passes().clear()
        manager.passes().update(before)
    elif manager:
        manager.passes.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def compilers_pages_stay():
    """The next graph would map them again: 20 ms for each. tests/frontend/performance/test_compiler_pages.py gives them back."""
    from mlirc.frontend.performance import compiler_pages

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler_pages, "give_back", lambda: None)
        yield


@pytest.fixture(scope="session")
def made_poison():
    """What could be poison in the LLVM IR of all kernels that this session lowers."""
    from mlirc.codegen.llvm import translation as mlir_translation
    from tests.llvm_poison import poison

    found, translate = [], mlir_translation.translate

    def reviewed(source):
        text = translate(source)
        found.extend(poison(text))
        return text

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlir_translation, "translate", reviewed)
        yield found


@pytest.fixture(autouse=True)
def no_poison(made_poison):
    made_poison.clear()
    yield
    assert not made_poison


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A disk cache of the test's own, empty; this process knows no kernels of it."""
    from mlirc.codegen.cache import folder as cache_folder
    from mlirc.frontend import statistics

    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path))
    cache_folder.warn.cache_clear()
    statistics.reset()
    found = cache_folder.folder()
    assert found is not None
    return found
