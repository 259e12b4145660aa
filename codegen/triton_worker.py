"""Compiles Triton kernels, in this process or in others.

A worker process has neither torch nor MLIR: it starts in 0.2 s and holds 100 MB. Workers are started at the first need,
stay for the process's life, and end with it.
"""

import contextlib
import linecache
import tempfile
from collections.abc import Sequence
from typing import Any


class TritonError(RuntimeError):
    """Triton did not compile a kernel: says why, and holds the kernel's text."""


def compile_all(kernels: Sequence[dict[str, Any]], capability: int) -> list[dict[str, Any]]:
    """Each kernel (a KernelSource's fields) as a CompiledKernel's fields. Raises TritonError."""
    return [compile_one(kernel, capability) for kernel in kernels]


def compile_one(kernel: dict[str, Any], capability: int) -> dict[str, Any]:
    """Compiles a kernel in this process."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    name = kernel["name"]
    function = load_function(kernel["source"], name)
    names = function.arg_names
    signature = dict(zip(names, kernel["signature"], strict=False))
    constants = dict(kernel["constants"])
    signature |= dict.fromkeys(constants, "constexpr")
    aligned = {(k,): [["tt.divisibility", 16]] for k in kernel["divisible"]}
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": kernel["num_warps"], "num_stages": kernel["num_stages"]}
    try:
        with _own_cache():
            made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    except Exception as error:
        raise TritonError(f"Triton does not compile {name} for sm_{capability}: {error}\n{kernel['source']}") from error
    return {
        "name": made.metadata.name,
        "cubin": made.asm["cubin"],
        "shared": made.metadata.shared,
        "num_warps": made.metadata.num_warps,
    }


def load_function(source: str, name: str) -> Any:
    """The `@triton.jit` function `name` of a kernel's text. Triton reads a function's lines from its file: here there is
    none, and linecache has them."""
    filename = f"<mlirc {name} {hash(source) & 0xFFFFFFFFFFFF:x}>"
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
