"""Programs in processes that may have little: what runs under aot_eager there runs here too, compiled or in eager."""

import _thread
import errno
import sys
import threading

import pytest

from mlirc.codegen.process import background
from mlirc.codegen.process import limits as process_limits
from tests.forked_programs import python

PROGRAM = """
import warnings; warnings.simplefilter("ignore")
import sys, threading, resource, torch
import torch._dynamo.config
from torch import nn
import torch.nn.functional as F
import mlirc.frontend.entry.backend
from mlirc.frontend import statistics

def attend(q):
    mask = (torch.arange(32)[:, None] >= torch.arange(32))[None, None]
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sin()

torch.manual_seed(0)
mlp = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 4))
x, q = torch.randn(4, 16), torch.randn(1, 2, 32, 16)

def gradients():
    found = [p.grad for p in mlp.parameters()]
    mlp.zero_grad()
    return found

def program(backend):
    torch._dynamo.reset()
    with torch.no_grad():
        results = [torch.compile(attend, backend=backend)(q)]
        dynamic = torch.compile(mlp, backend=backend, dynamic=True)
        results += [dynamic(x[:n]) for n in (2, 3, 4)]
    torch.compile(mlp, backend=backend)(x).sum().backward()
    return results + gradients()

want = program("aot_eager")
what, number = sys.argv[1], int(sys.argv[2])
found = []
if what == "thread":
    threading.stack_size(number << 10)
    thread = threading.Thread(target=lambda: found.extend(program("mlirc")))
    thread.start()
    thread.join()
else:
    if what == "addresses":
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (number << 20),) * 2)
    elif what == "files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
    elif what == "stack":
        resource.setrlimit(resource.RLIMIT_STACK, (number << 10, number << 10))
    found = program("mlirc")
torch.testing.assert_close(found, want)
print(sum(statistics.fallbacks.values()), "fallbacks")
"""


def fallbacks(tmp_path, what: str, number: int) -> int:
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "MLIRC_CACHE_DIR": "off",
        "PYTHONPATH": ":".join(sys.path),
    }
    done = python("-c", PROGRAM, what, number, env=environment)
    assert done.returncode == 0, f"{done.returncode} {done.stderr[-3000:]}"
    return int(done.stdout.split()[0])


@pytest.mark.parametrize("what, number", [("thread", 128), pytest.param("stack", 128, marks=pytest.mark.full)])
def test_compiles_where_stacks_are_small(tmp_path, what, number):
    assert fallbacks(tmp_path, what, number) == 0


@pytest.mark.parametrize(
    "number", [128, *(pytest.param(n, marks=pytest.mark.full) for n in (64, 320, 450, 512, 576, 640, 704, 768, 900))]
)
def test_few_addresses_are_left(tmp_path, number):
    """LLVM would end the process."""
    fallbacks(tmp_path, "addresses", number)


def test_no_file_can_be_opened(tmp_path):
    assert fallbacks(tmp_path, "files", 3) > 0


def test_work_with_room_gives_what_it_gives_without(monkeypatch):
    """And Python's stack size for new threads, which the process shares, stays: asking for it would reset it."""
    monkeypatch.setattr(_thread, "stack_size", None)

    def inner():
        return process_limits.stack_here()

    found: list[int] = []
    before = threading.stack_size(128 << 10)
    try:
        thread = threading.Thread(target=lambda: found.extend([inner(), process_limits.with_room(inner)]))
        thread.start()
        thread.join()
        started = background.detach(inner)
        assert started is not None and started.result() >= process_limits.ENOUGH
        assert threading.stack_size(128 << 10) == 128 << 10
        with pytest.raises(ZeroDivisionError):
            process_limits.with_room(divmod, 1, 0)
    finally:
        threading.stack_size(before)
    assert found[0] < 256 << 10 and found[1] >= process_limits.ENOUGH and not process_limits._waiting


def test_a_thread_that_c_refuses_is_an_error(monkeypatch):
    """As one that Python refuses: its work is then done by who waits for it."""
    monkeypatch.setattr(process_limits._library(), "pthread_create", lambda *args: errno.EAGAIN)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        process_limits.start_thread(print, "never")
    assert background.WorkQueue(lambda: 1).submit(divmod, 7, 2).result() == (3, 1)
    assert not process_limits._waiting


@pytest.mark.parametrize("work", [lambda: None, sys.exit])
def test_threads_come_and_go(capfd, work):
    """Python forgets them, and an exit in one is its own."""
    ended = threading.Semaphore(0)

    def ends():
        ended.release()
        work()

    for _ in range(50):
        process_limits.start_thread(ends)
    for _ in range(50):
        ended.acquire()
    assert not process_limits._waiting and capfd.readouterr() == ("", "")
