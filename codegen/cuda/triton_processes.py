"""Starts the worker processes that compile Triton kernels (triton_worker.py), and sends them kernels.

Triton takes a second to load and to compile its first kernel. `prefetch` starts one process that does so while the graph is traced: the
fork server. Each worker is a fork of it, so it starts with Triton loaded. Threads that call `compile_kernel` get a worker each, and
kernels of a graph are compiled in parallel.
"""

import os
import pickle
import socket
import subprocess
import sys
from io import BufferedRWPair
from typing import Any

from mlirc.codegen.cuda import triton_worker
from mlirc.codegen.cuda.triton_worker import TritonError
from mlirc.dialects.core.fork_locks import fork_lock

_idle: list[BufferedRWPair] = []  # the sockets of workers that have nothing to do
_fork_server: socket.socket | None = None
_children: list[subprocess.Popen] = []
_lock = fork_lock()


def prefetch(capability: int) -> None:
    """Starts the fork server, which loads Triton, unless it runs. `capability` is the GPU's compute capability, 90 for 9.0."""
    with _lock:
        _start(capability)


def compile_kernel(kernel: dict[str, Any], capability: int) -> dict[str, Any]:
    """The fields of a CompiledKernel, from those of a KernelSource. Waits until a worker has compiled it. Raises TritonError."""
    with _lock:
        worker = _idle.pop() if _idle else None
    try:
        worker = worker or _new_worker(capability)
        pickle.dump((kernel, capability), worker)
        worker.flush()
        made, error = pickle.load(worker)
    except (EOFError, OSError) as died:
        raise TritonError(f"the process that compiled {kernel['name']} ended: {died}") from died
    with _lock:
        _idle.append(worker)
    if error:
        raise TritonError(error)
    return made


def _new_worker(capability: int) -> BufferedRWPair:
    """The socket of a new worker, for pickles in both directions. Raises OSError."""
    with _lock:
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(_start(capability), [b"w"], [theirs.fileno()])
            except OSError:  # the fork server ended
                _forget()
                socket.send_fds(_start(capability), [b"w"], [theirs.fileno()])
    with mine:
        return mine.makefile("rwb")


def _start(capability: int) -> socket.socket:
    """The fork server's socket; starts the server where none runs. The caller holds the lock."""
    global _fork_server
    if _fork_server is None:
        mine, theirs = socket.socketpair()
        path = os.pathsep.join(p for p in sys.path if p)
        command = [sys.executable, "-P", triton_worker.__file__, str(theirs.fileno()), str(capability)]
        with theirs:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": path},
            )
        _children.append(child)
        _fork_server = mine
    return _fork_server


def _forget() -> None:
    """Forgets the fork server and its workers: they ended, or they belong to the process that this one is a fork of."""
    global _fork_server
    if _fork_server is not None:
        _fork_server.close()
    _fork_server = None
    _idle.clear()


def _in_child() -> None:
    _forget()


os.register_at_fork(after_in_child=_in_child)
