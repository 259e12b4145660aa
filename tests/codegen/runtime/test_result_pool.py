"""Memory of large results: used again once nobody holds it, and never before."""

import copy
import ctypes
import itertools
import pickle
import random
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from mlirc.codegen.abi import storage_layout
from mlirc.codegen.abi.reach import Reach
from mlirc.codegen.host import program
from mlirc.codegen.runtime import native_runtime, result_pool
from mlirc.codegen.runtime.result_pool import NoPool, ResultPool

pytestmark = pytest.mark.thinned

NO_PROGRAM = 0  # the identity of no object
N = result_pool.SMALLEST // 4  # float32 elements: the smallest result that the pool serves


@pytest.fixture
def pool():
    """The process's pool, open, and nothing in it kept.

    It closes with the last program, which the collector may find at any moment. Here one more counts as alive.
    """
    found = native_runtime.pool()
    assert found is not None
    program._live.add(NO_PROGRAM)
    found.set_limit(0)
    found.set_limit(result_pool.limit())
    yield found
    program._live.discard(NO_PROGRAM)


@pytest.fixture(scope="module")
def double():
    """x -> 2*x, of any size, compiled."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * 2, backend="mlirc", dynamic=True, options={"fallback": "error"})
    return torch.no_grad()(compiled)


def in_pool(pool: ResultPool, x: torch.Tensor) -> bool:
    return pool.start <= x.data_ptr() < pool.end


def test_memory_is_used_again_when_the_result_is_gone(pool, double):
    first, x = double(torch.ones(N)), torch.arange(N, dtype=torch.float32)
    address, gone = first.data_ptr(), weakref.ref(first)
    assert in_pool(pool, first) and pool.bytes("live") >= first.nbytes
    first.fill_(torch.nan)
    del first
    again = double(x)
    assert gone() is None and again.data_ptr() == address
    assert torch.equal(again, x * 2)
    assert again._version == 0 and again._base is None and again.is_leaf
    small = double(torch.ones(N - 1))
    assert not in_pool(pool, small)


def lazily_free() -> int:
    """Bytes that the system may take without asking."""
    with open("/proc/self/smaps") as maps:
        return sum(int(line.split()[1]) << 10 for line in maps if line.startswith("LazyFree:"))


def test_idle_memory_is_offered_to_the_system_now_and_then(pool, double):
    x = torch.ones(16 * N)
    y, z = double(x), double(x)
    pool._slot("offered_at").value = 0  # long ago
    before = lazily_free()
    del y
    offered = lazily_free() - before
    assert offered >= x.nbytes // 2 and pool._slot("offered_at").value > 0
    moment = pool._slot("offered_at").value
    del z
    assert lazily_free() - before == offered or pool._slot("offered_at").value > moment
    assert torch.equal(double(x), x * 2)


HOLDERS = {
    "the result": lambda y: y,
    "a view": lambda y: y[5:].view(-1),
    "detach": lambda y: y.detach(),
    "data": lambda y: y.data,
    "numpy": lambda y: y.numpy(),
    "storage": lambda y: y.untyped_storage(),
    "DLPack": lambda y: np.from_dlpack(y),
    "a capsule": lambda y: y.__dlpack__(),
    "the autograd graph": lambda y: (y * torch.ones(N, requires_grad=True)).grad_fn,
    "set_": lambda y: torch.empty(0).set_(y),
    "a memoryview": lambda y: memoryview(y.numpy()),
    "many views": lambda y: [y.view(2, -1).t(), y.unfold(0, 4, 2)],
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_is_held_is_not_overwritten(holder, pool, double):
    x = torch.randn(N)
    held = HOLDERS[holder](result := double(x))
    address = result.data_ptr()
    del result
    others = [double(torch.full((N,), torch.nan)) for _ in range(3)]
    assert all(other.data_ptr() != address for other in others)
    memory = np.ctypeslib.as_array((ctypes.c_float * N).from_address(address))
    assert np.array_equal(memory, (x * 2).numpy())
    del held, memory
    assert double(x).data_ptr() == address


def test_gradients_and_saved_activations(pool):
    """Three forward calls before the first backward one, and every gradient held to the end."""

    def loss(x, w):
        return ((x @ w).relu() @ w).exp().sin().sum()

    compiled = torch.compile(loss, backend="mlirc", options={"fallback": "error"})
    weight = torch.randn(800, 800, dtype=torch.float64, requires_grad=True)
    inputs = [torch.randn(800, 800, dtype=torch.float64) / 800 for _ in range(3)]
    losses = [compiled(x, weight) for x in inputs]
    gradients = [[torch.autograd.grad(y, weight, retain_graph=True)[0] for _ in range(2)] for y in losses]
    for x, found in zip(inputs, gradients, strict=True):
        (want,) = torch.autograd.grad(loss(x, weight), weight)
        for gradient in found:
            torch.testing.assert_close(gradient, want)
            assert in_pool(pool, gradient)


def test_a_result_is_a_tensor_like_any_other(pool, double):
    x = torch.randn(N)
    y = double(x)
    storage = y.untyped_storage()
    assert (storage.nbytes(), storage.resizable(), y.is_shared(), y.is_pinned()) == (4 * N, True, False, False)
    live = pool.bytes("live")
    y.resize_(N + 3)  # eager's way: new memory, the old elements
    assert torch.equal(y[:N], x * 2) and not in_pool(pool, y) and pool.bytes("live") == live - 4 * N
    y = double(x)
    y.untyped_storage().resize_(0)
    assert pool.bytes("live") == live - 4 * N
    y.untyped_storage().resize_(4 * N)
    y.copy_(x)
    assert torch.equal(y, x)
    y = double(x).share_memory_()
    assert y.is_shared() and torch.equal(y, x * 2) and pool.bytes("live") == live - 4 * N
    y = double(x)
    for other in (pickle.loads(pickle.dumps(y)), copy.deepcopy(y), y.clone()):
        assert torch.equal(other, y) and not in_pool(pool, other)
    y.add_(1)
    assert y._version == 1
    with torch.inference_mode():
        assert double(x).is_inference()
    y.requires_grad_()
    y.square().sum().backward()
    assert torch.equal(y.grad, 2 * y.detach())


def test_a_random_sequence_of_results(pool):
    """No two results overlap, and memory in use and kept stays below the most that was in use, but for page rounding."""
    rng, held, x = random.Random(0), [], None
    live, most_before, written, most = pool.bytes("live"), pool.bytes("most"), 0, 0
    for step in range(400):
        if held and rng.random() < (0.3 if step % 100 < 50 else 0.7):
            number, x = held.pop(rng.randrange(len(held)))
            assert x[0] == x[-1] == x[len(x) // 2] == number
            x = None
        else:
            x = pool._new_bytes(rng.choice((4 << 20, 12 << 20, 20_000_001, (4 << 20) + rng.randrange(1 << 24))))
            x[0] = x[-1] = x[len(x) // 2] = number = step % 251
            held.append((number, x))
            written += 1
        spans = sorted((x.data_ptr(), x.data_ptr() + len(x)) for _, x in held)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        x = None
        rounded = sum(-(-len(y) // 4096) * 4096 for _, y in held)
        assert pool.bytes("live") == live + rounded
        most = max(most, rounded)
        assert live + rounded + pool.bytes("idle") <= most_before + most + 16 * result_pool.HUGE_PAGE
    assert written > 100
    held.clear()
    x = None
    assert pool.bytes("live") == live
    pool.set_limit(0)
    assert pool.bytes("idle") <= 4 * result_pool.HUGE_PAGE
    pool.set_limit(result_pool.limit())


def test_kept_memory_goes_back_to_the_system(pool):
    large = pool._new_bytes(64 << 20)
    large.fill_(1)
    address = large.data_ptr()
    del large
    assert pool.bytes("idle") >= 60 << 20 and resident(address, 64 << 20) > 60 << 20
    pool.set_limit(8 << 20)
    assert pool.bytes("idle") <= 12 << 20 and resident(address, 64 << 20) <= 12 << 20
    pool.set_limit(0)
    assert resident(address, 64 << 20) <= 4 << 20
    pool.set_limit(result_pool.limit())


@pytest.mark.parametrize("more", (0, 16, 32, 48))
def test_the_same_results_again_find_their_memory(more, pool):
    """As in training steps: many sizes, given back together; none of it goes to the system meanwhile."""
    pool._slot("writable_end").value = pool.start  # as in a process that had no results yet

    def new(megabytes: int) -> tuple[torch.Tensor, int]:
        result = pool._new_bytes(megabytes << 20)
        absent = result.nbytes - resident(result.data_ptr(), result.nbytes)
        return result.fill_(1), absent

    def step() -> int:
        """Bytes of new results that were not in memory."""
        logits = new(40)
        found = [new(5) for _ in range(4)]
        del logits
        found += [new(n) for n in (39, 9, 90 + more)]
        return sum(absent for _, absent in found)

    absent = [step() for _ in range(3)]
    assert absent[0] > 90 << 20
    assert max(absent[1:]) <= result_pool.HUGE_PAGE


def resident(address: int, bytes_: int) -> int:
    """Bytes of that memory that are in the resident set, by /proc/self/pagemap."""
    with open("/proc/self/pagemap", "rb") as file:
        file.seek(address // 4096 * 8)
        entries = np.frombuffer(file.read(bytes_ // 4096 * 8), np.uint64)
    return int((entries >> np.uint64(63)).sum()) * 4096


def test_threads_never_share_a_result(double):
    for k in range(4):  # torch 2.11 cannot trace in several threads at once
        double(torch.zeros(N + k))

    def run(k: int) -> None:
        x, before = torch.full((N + k,), float(k)), None
        for _ in range(40):
            y = double(x)
            assert y.eq(2 * k).all() and (before is None or before.eq(2 * k).all())
            before = y

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run, range(4)))


FORK = f"""
import os, torch
from mlirc.codegen.runtime import native_runtime
double = torch.compile(lambda x: x * 2, backend="mlirc", options={{"fallback": "error"}})
x = torch.randn({N})
pool = native_runtime.pool()
with torch.no_grad():
    held, dropped = double(x), double(x)
    want = held.clone()
    del dropped
    child = os.fork()
    assert pool.bytes("idle") < 4 << 20
    for _ in range(3):
        again = double(x)
        assert again.data_ptr() != held.data_ptr() and torch.equal(again, want) and torch.equal(held, want)
        again.fill_(torch.nan)
        del again
if child == 0:
    held.fill_(1)
    del held
    with torch.no_grad():  # else Dynamo would trace again, which no child can do where a GPU is in use
        double(x)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0 and torch.equal(held, want)
import builtins
builtins.held = held  # outlives every module
del double
"""


def test_a_fork_and_the_end_of_the_process():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", storage_layout.OFFSETS)
def test_a_pytorch_with_other_storages_is_refused(name, monkeypatch):
    read, known = storage_layout.slots_at, storage_layout.storage_offsets()
    assert known is not None
    place, count = known[name] // 8, 8 if name == "storage_at" else 10

    def moved(address: int, n: int) -> list[int]:
        return [0 if n == count and k == place else word for k, word in enumerate(read(address, n))]

    monkeypatch.setattr(storage_layout, "slots_at", moved)
    again = Reach("storage-layout", "none", storage_layout.storage_offsets._find, apart=True)
    assert again() is None and "lays out storages in another way" in again.why


def test_no_pool_where_there_are_no_addresses(monkeypatch):
    monkeypatch.setattr(result_pool, "_physical_bytes", lambda: 1 << 60)
    with pytest.raises(NoPool, match="could not be reserved"):
        ResultPool(native_runtime._code())


def test_without_a_pool(pool, double, monkeypatch):
    monkeypatch.setenv(result_pool.LIMIT_VARIABLE, "0")
    y = double(torch.ones(N))  # compiles, which reads the variable
    assert not in_pool(pool, y) and y.eq(2).all()
    monkeypatch.delenv(result_pool.LIMIT_VARIABLE)
    pool.set_limit(result_pool.limit())
    assert in_pool(pool, double(torch.ones(N)))
