"""A fork while another thread has any lock of ours: the child calls what was compiled, and compiles."""

import ast
import os
import threading
import time
from pathlib import Path

import pytest

from mlirc.dialects.core import fork_locks
from mlirc.dialects.core.fork_locks import fork_lock
from tests.forked_programs import python

ROOT = Path(__file__).parents[3]

PROGRAM = """
import os, sys, threading, time, faulthandler, torch
from mlirc.dialects.core import fork_locks

options, x = {"cache": False, "fallback": "error"}, torch.randn(8, 8)
f, late = (lambda x: (x @ x).relu().sum(0)), (lambda x: x.exp().sum(1) * 3)
compiled = torch.compile(f, backend="mlirc", options=options)
with torch.no_grad():
    want, wanted = compiled(x), late(x)

for lock in list(fork_locks._all())[:: int(sys.argv[1])]:
    held = threading.Event()

    def holds():
        with lock:
            held.set()
            time.sleep(0.05)

    thread = threading.Thread(target=holds)
    thread.start()
    held.wait()
    pid = os.fork()
    if pid == 0:
        faulthandler.dump_traceback_later(120, exit=True)
        status = 3
        try:
            for other in fork_locks._all():
                assert other.acquire(blocking=False)
                other.release()
            assert torch.equal(compiled(x), want)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    thread.join()
pid = os.fork()
if pid == 0:
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(late, backend="mlirc", options=options)(x), wanted)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(len(fork_locks._all()), [type(x).__name__ for x in fork_locks._adopted])
"""


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.full)])
def test_a_fork_while_a_lock_is_held(every):
    """Every so many-th lock, the same in each run."""
    done = python("-c", PROGRAM, every)
    assert done.returncode == 0, done.stderr[-3000:]
    count, adopted = done.stdout.split(maxsplit=1)
    assert int(count) > 15 and adopted.strip() == "['RLock']"  # llvmlite's is where it was


def test_every_lock_of_ours_is_one_of_these():
    made = {"Lock", "RLock", "Semaphore", "BoundedSemaphore", "allocate_lock"}
    for folder in ("dialects", "lowering", "codegen", "frontend", "mlirc"):
        for file in (ROOT / folder).rglob("*.py"):
            names = {
                x.func.attr
                for x in ast.walk(ast.parse(file.read_text()))
                if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute)
            }
            assert not names & made or file == ROOT / "dialects" / "core" / "fork_locks.py", file


def fork_and_take(*locks) -> int:
    child = os.fork()
    if child == 0:
        ok = all(lock.acquire(timeout=10) for lock in locks)
        os._exit(0 if ok else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_who_has_one_lock_and_wants_another_is_not_waited_for_with_that_one():
    """A thread has the first, and takes the second soon: a fork that kept the second would wait for ever."""
    first, second, held = fork_lock(), fork_lock(), threading.Event()

    def nested():
        with first:
            held.set()
            time.sleep(0.1)
            with second:
                time.sleep(0.1)

    for _ in range(3):
        held.clear()
        thread = threading.Thread(target=nested)
        thread.start()
        held.wait()
        assert fork_and_take(first, second) == 0
        thread.join()
    assert first.acquire(blocking=False) and second.acquire(blocking=False)  # and the parent has given them back


def test_a_lock_that_the_forking_thread_has_itself():
    lock = fork_lock()
    with lock:
        assert fork_and_take(lock) == 0
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore")
def test_a_lock_that_is_never_given_back_is_anew_in_the_child(monkeypatch, caplog):
    monkeypatch.setattr(fork_locks, "SECONDS", 0.3)
    lock, end = fork_lock(), threading.Event()
    thread = threading.Thread(target=lambda: lock.acquire() and end.wait() and lock.release())
    thread.start()
    assert fork_and_take(lock) == 0 and "1 locks are still taken" in caplog.text
    end.set()
    thread.join()


def test_two_threads_fork_at_once():
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(fork_and_take(fork_lock()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 4
