"""Worker process that compiles Triton kernels, because Triton holds the GIL while it compiles.

This file, run as a program, is the *fork server*: a process with Triton and without torch and MLIR, which loads Triton, compiles a
few small kernels to warm up, and forks a worker for each socket that it is sent. A worker compiles the kernels that come through its
socket, one after another, until the socket is closed: it ends with the process that has the other end (triton_processes.py).
"""

import contextlib
import hashlib
import linecache
import os
import pickle
import re
import signal
import socket
import sys
import tempfile
from typing import Any

MOST_SHARED = {80: 166912, 90: 232448, 100: 232448}  # bytes of shared memory that a block can have, by capability
LEAST_SHARED = 101376
MEMORY = re.compile(
    r"^\s*(?:@%p\d+\s+)?(?:ld|st|atom|red|cp|tensormap|prefetch|ldmatrix|mbarrier)\.(?!param)", re.MULTILINE
)
# As eager has it: libdevice's functions keep subnormal numbers, where Triton's default gives log(1e-40) as -inf; and a product is
# rounded before it is added, as where each op is a kernel of its own. With contraction a * b - c * d of equal products is not 0.
EXACT = {"enable_reflect_ftz": False, "enable_fp_fusion": False}
SCRATCH_POINTERS = 2  # after a kernel's own parameters, as Triton 3.6 to 3.8 have them: scratch, and the profiler's
GLUON_REGISTERS = 168  # of a thread in Gluon's kernels, whose programs have 384: what their warps then share out


class TritonError(RuntimeError):
    """Triton did not compile a kernel: says why, and holds the kernel's text."""


def compile_one(kernel: dict[str, Any], capability: int) -> dict[str, Any]:
    """Compiles a kernel (a KernelSource's fields) in this process; gives a CompiledKernel's fields. Raises TritonError."""
    made = triton_code(kernel, capability)
    return {
        "name": made.metadata.name,
        "cubin": made.asm["cubin"],
        "shared": made.metadata.shared,
        "num_warps": made.metadata.num_warps,
        "waits": capability >= 90 and waits_first(made.asm["ptx"]),
    }


def ptx_of(kernel: dict[str, Any], capability: int) -> str:
    """The PTX of a kernel (a KernelSource's fields), compiled in this process. Raises TritonError."""
    return triton_code(kernel, capability).asm["ptx"]


def triton_code(kernel: dict[str, Any], capability: int) -> Any:
    """What Triton made of a kernel, in this process. Raises TritonError."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    name = kernel["name"]
    function = load_function(with_wait(kernel["source"], name) if capability >= 90 else kernel["source"], name)
    constants = dict(kernel["constants"])
    signature = dict(zip(function.arg_names, [*kernel["signature"], *("constexpr" for _ in constants)], strict=True))
    aligned = {(k,): [["tt.divisibility", 16]] for k in kernel["divisible"]}
    source = (GluonASTSource if function.is_gluon() else ASTSource)(function, signature, constants, aligned)
    try:
        for stages in range(kernel["num_stages"], 0, -1):  # fewer where they do not fit into shared memory
            options = {"num_warps": kernel["num_warps"], "num_stages": stages, **EXACT}
            options |= {"maxnreg": GLUON_REGISTERS} if function.is_gluon() else {}
            with _own_cache():
                made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
            if made.metadata.shared <= MOST_SHARED.get(capability, LEAST_SHARED):
                break
    except Exception as error:
        raise TritonError(f"Triton does not compile {name} for sm_{capability}: {error}\n{kernel['source']}") from error
    if made.metadata.global_scratch_size > kernel["scratch"]:
        raise TritonError(
            f"{name} needs {made.metadata.global_scratch_size} bytes a program, and gets {kernel['scratch']}"
        )
    check_parameters(made.asm["ptx"], len(kernel["signature"]))
    return made


def check_parameters(ptx: str, own: int) -> None:
    """Raises TritonError unless the kernel takes its own parameters and the scratch pointers, which is what a launch passes."""
    taken = ptx.partition(".entry")[2].partition(")")[0].count(".param")
    if taken != own + SCRATCH_POINTERS:
        raise TritonError(
            f"this Triton appends {taken - own} parameters to a kernel's {own}; mlirc passes {SCRATCH_POINTERS}"
        )


def with_wait(source: str, name: str) -> str:
    """The kernel's text, in which it first waits for what runs before it in its stream, and may be launched before that ends."""
    head = re.search(rf"^def {name}\(.*\):\n", source, re.MULTILINE)
    assert head, source
    return f"{source[: head.end()]}    tl.extra.cuda.gdc_wait()\n{source[head.end() :]}"


def waits_first(ptx: str) -> bool:
    """Whether nothing touches memory before the wait."""
    before, wait, _ = ptx.partition("griddepcontrol.wait")
    return bool(wait) and not MEMORY.search(before)


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


# ---- the fork server

WARM_UP = """import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def fold_sum(a, b):
    return a + b


@triton.jit
def warm_up(p0, p1, XBLOCK: tl.constexpr):
    x = tl.arange(0, XBLOCK)
    mask = x < 100
    v0 = tl.where(mask, tl.load(p0 + x, mask).to(tl.float32), 0.0)
    v1 = tl.reduce(v0, 0, fold_sum)
    tl.store(p1 + x, libdevice.exp(v0) * v1, mask)
"""


def warm_up(capability: int) -> None:
    """Compiles a kernel of each kind of thing that kernels are made of, once."""
    compile_one(
        {
            "name": "warm_up",
            "source": WARM_UP,
            "signature": ["*bf16", "*fp32"],
            "constants": [("XBLOCK", 128)],
            "divisible": [0, 1],
            "num_warps": 4,
            "num_stages": 3,
            "scratch": 0,
        },
        capability,
    )


def _raise_workers(control: socket.socket, capability: int) -> None:
    """Forks a worker for each socket that comes, until there is nobody to send one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which is meant for the process that asks
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no worker is waited for
    with contextlib.suppress(Exception):  # a worker says what is wrong
        warm_up(capability)
    while True:
        message, fds, *_ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # Triton waits for its assembler
            _serve(socket.socket(fileno=fds[0]))
            os._exit(0)
        os.close(fds[0])


def _serve(connection: socket.socket) -> None:
    """Answers (a CompiledKernel's fields or None, an error's text) for each (kernel, capability), until who asks has closed or is gone."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError), connection.makefile("rwb") as file:
        while True:
            try:
                kernel, capability = pickle.load(file)
            except EOFError:
                return
            try:
                answer = (compile_one(kernel, capability), "")
            except Exception as error:
                answer = (None, str(error) if isinstance(error, TritonError) else f"{type(error).__name__}: {error}")
            pickle.dump(answer, file)
            file.flush()


if __name__ == "__main__":
    os.dup2(2, 1)  # what Triton prints is no result of the program that it works for
    _raise_workers(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
