"""tests/freed_memory.py notices programs that write to memory of Python's that was freed."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

WRITES = """
import ctypes, threading
from tests.freed_memory import changed, watch

def word(address):
    return ctypes.c_int64.from_address(address)

def reference_dropped_twice():
    made = [{} for _ in range(300)]  # Python keeps 80 of them for the next ones
    freed = id(made[0])
    made.clear()
    word(freed).value -= 1

def write_through_a_stale_buffer():
    array = (ctypes.c_int64 * 8)()
    address = ctypes.addressof(array)
    del array
    word(address + 16).value = 7

def write_where_another_thread_freed():
    found = []
    thread = threading.Thread(target=lambda: found.append(id(object())))
    thread.start()
    thread.join()
    word(found[0]).value = 1

def freed_without_the_gil():
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(("PyObject_Free", ctypes.pythonapi))
    free(ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("PyObject_Malloc", ctypes.pythonapi))(40))

def nothing():
    kept = [{k: str(k)} for k in range(10000)]
    kept[0], kept[1:] = bytearray(100), [x.copy() for x in kept[:10]]

watch()
before = changed()
for function in (reference_dropped_twice, nothing, write_through_a_stale_buffer, write_where_another_thread_freed, nothing, freed_without_the_gil):
    function()
    now = changed()
    print(function.__name__, now - before)
    before = now
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONMALLOC": "malloc", "MLIRC_CACHE_DIR": "off", "PYTHONFAULTHANDLER": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)


def test_writes_are_noticed():
    done = python("-c", WRITES)
    assert done.stdout.splitlines() == [
        "reference_dropped_twice 1",
        "nothing 0",
        "write_through_a_stale_buffer 1",
        "write_where_another_thread_freed 1",
        "nothing 0",
        "freed_without_the_gil 1",
    ], done.stderr[-3000:]
