"""Many forks from one thread while another compiles: no child waits for a thread or a lock that only its parent has.

The limits are of a wait that never ends: on a machine that computes for others, a child's compilation may take half a minute.
"""

import os

import pytest

from tests.forked_programs import COMMANDS, python

PROGRAM = """
import faulthandler, os, sys, threading, time, torch
import torch._dynamo.convert_frame as convert_frame

torch.set_num_threads(2)
torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 100_000
options, x, stop, failed, count = {"cache": False}, torch.randn(40, 40), threading.Event(), [], 0

def compiles():
    global count
    try:
        while not stop.is_set():
            count += 1
            fn = lambda x, k=float(count): (x * k).exp().sum(0) + k
            with torch.no_grad():
                torch.testing.assert_close(torch.compile(fn, backend="mlirc", options=options)(x), fn(x))
    except BaseException as error:
        failed.append(error)

def child(number):
    faulthandler.dump_traceback_later(120, exit=True)
    convert_frame.compile_lock = threading.RLock()  # Dynamo's, which the other thread held: PyTorch's own limit
    if not torch.equal(known(x), want):
        return 5
    if number % 3 == 0:
        fresh = lambda x: x.cos() * 3.25 + number
        ok = torch.allclose(torch.compile(fresh, backend="mlirc", options=options)(x), fresh(x), atol=1e-5)
        return 0 if ok else 4
    return 0

with torch.no_grad():
    known = torch.compile(lambda x: (x @ x).relu().sum(0), backend="mlirc", options=options)
    want = known(x)
    thread = threading.Thread(target=compiles)
    thread.start()
    end, forks, ended = time.monotonic() + float(sys.argv[1]), 0, []
    while (time.monotonic() < end or forks < 4) and not any(ended):
        time.sleep(0.002 * (forks % 7))
        pid = os.fork()
        if pid == 0:
            status = 3
            try:
                status = child(forks)
            finally:
                os._exit(status)
        ended.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        forks += 1
    stop.set()
    thread.join()
assert not failed, failed
assert not any(ended), f"the child of fork {forks - 1} ended with {ended[-1]}"
print(forks, "forks,", count, "compilations")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.parametrize("seconds", [3, pytest.param(20, marks=pytest.mark.full)])
def test_children_call_and_compile_whenever_they_were_forked(seconds):
    done = python("-c", PROGRAM, seconds, imported=COMMANDS)
    assert done.returncode == 0, done.stderr[-3000:]
    forks = int(done.stdout.split()[0])
    assert forks >= 4
