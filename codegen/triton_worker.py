"""Compiles Triton kernels, in this process or in others: Triton holds the GIL while it compiles.

A worker is this file, run as a program: it has neither torch nor MLIR, and starts in a fraction of a second. It takes a
kernel from its standard input, gives what it made of it on its standard output, and ends with the process that started it.
"""

import contextlib
import hashlib
import linecache
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

FEW = 3  # kernels that are compiled here: starting a worker takes as long as compiling one or two
MOST_WORKERS = 16
MOST_SHARED = {80: 166912, 90: 232448, 100: 232448}  # bytes of shared memory that a block can have, by capability
LEAST_SHARED = 101376


class TritonError(RuntimeError):
    """Triton did not compile a kernel: says why, and holds the kernel's text."""


def compile_all(
    kernels: Sequence[dict[str, Any]], capability: int, skip_failures: bool = False
) -> list[dict[str, Any] | None]:
    """Each kernel (a KernelSource's fields) as a CompiledKernel's fields. Raises TritonError, or gives None for such a kernel."""
    count = min(len(os.sched_getaffinity(0)), len(kernels) // 2, MOST_WORKERS)
    here = len(kernels) <= FEW or count < 2

    def compiled(kernel: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return compile_one(kernel, capability) if here else _in_worker(kernel, capability)
        except TritonError:
            if not skip_failures:
                raise
            return None

    if here:
        return list(map(compiled, kernels))
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(compiled, kernels))


def compile_one(kernel: dict[str, Any], capability: int) -> dict[str, Any]:
    """Compiles a kernel in this process."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    name = kernel["name"]
    function = load_function(kernel["source"], name)
    constants = dict(kernel["constants"])
    signature = dict(zip(function.arg_names, [*kernel["signature"], *("constexpr" for _ in constants)], strict=True))
    aligned = {(k,): [["tt.divisibility", 16]] for k in kernel["divisible"]}
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=aligned)
    try:
        for stages in range(kernel["num_stages"], 0, -1):  # fewer where they do not fit into shared memory
            options = {"num_warps": kernel["num_warps"], "num_stages": stages}
            with _own_cache():
                made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
            if made.metadata.shared <= MOST_SHARED.get(capability, LEAST_SHARED):
                break
    except Exception as error:
        raise TritonError(f"Triton does not compile {name} for sm_{capability}: {error}\n{kernel['source']}") from error
    if made.metadata.global_scratch_size > kernel["scratch"]:
        raise TritonError(
            f"{name} needs {made.metadata.global_scratch_size} bytes a program, and is lent {kernel['scratch']}"
        )
    return {
        "name": made.metadata.name,
        "cubin": made.asm["cubin"],
        "shared": made.metadata.shared,
        "num_warps": made.metadata.num_warps,
    }


def load_function(source: str, name: str) -> Any:
    """The `@triton.jit` function `name` of a kernel's text.

    Triton reads a function's lines from its file; linecache has them for a file that there is not.
    """
    filename = f"<mlirc {name} {hashlib.sha256(source.encode()).hexdigest()[:12]}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": filename}
    exec(compile(source, filename, "exec"), namespace)
    return namespace[name]


@contextlib.contextmanager
def _own_cache():
    """Triton's cache, in a folder that goes away: our own keeps what it makes."""
    from triton import knobs

    with tempfile.TemporaryDirectory(prefix="mlirc-triton-") as folder, knobs.cache.scope():
        knobs.cache.dir = folder
        yield


# ---- the other side of workers

_idle: list[subprocess.Popen] = []
_lock = threading.Lock()
os.register_at_fork(after_in_child=_idle.clear)  # the parent's


def _in_worker(kernel: dict[str, Any], capability: int) -> dict[str, Any]:
    with _lock:
        worker = _idle.pop() if _idle else None
    if worker is None or worker.poll() is not None:
        worker = _started()
    assert worker.stdin and worker.stdout
    try:
        pickle.dump((kernel, capability), worker.stdin)
        worker.stdin.flush()
        made, error = pickle.load(worker.stdout)
    except (EOFError, OSError) as died:
        worker.kill()
        raise TritonError(f"the process that compiled {kernel['name']} ended: {died}") from died
    with _lock:
        _idle.append(worker)
    if error:
        raise TritonError(error)
    return made


def _started() -> subprocess.Popen:
    path = os.pathsep.join(p for p in sys.path if p)
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what Triton prints is no answer
    while True:
        try:
            kernel, capability = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (compile_one(kernel, capability), "")
        except TritonError as error:
            answer = (None, str(error))
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    _serve()
