"""Runs modules that may be wrong, each with its buffers between pages that nobody may touch (tests/property/test_wrong_modules.py).

Reads a pickled list of texts with the sizes of inputs from standard input. Writes a line for each text: what became of it.
"""

import ctypes
import json
import mmap
import sys
from typing import Any

import torch

PAGE, NO_ACCESS = mmap.PAGESIZE, 0
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Guarded:
    """Memory of `size` bytes with a page on each side that may not be touched: flush with the end, or with the start."""

    def __init__(self, size: int, at_end: bool):
        self.length = (max(size, 1) + PAGE - 1) // PAGE * PAGE
        self.base = libc.mmap(None, self.length + 2 * PAGE, NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        libc.mprotect(self.base + PAGE, self.length, mmap.PROT_READ | mmap.PROT_WRITE)
        self.address = self.base + PAGE + (self.length - size if at_end else 0)

    def free(self) -> None:
        libc.munmap(self.base, self.length + 2 * PAGE)


class ArenaRecord(ctypes.Structure):
    """As native_runtime_text.py lays an arena out."""

    _fields_ = [("next", ctypes.c_void_p), ("memory", ctypes.c_void_p), ("bytes", ctypes.c_int64)]


class Guards:
    """Takes the place of the allocators that a host program calls: arenas and results lie between guard pages."""

    def __init__(self) -> None:
        self.at_end = True
        self.held: list[Any] = []
        self.take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(self.take_arena)

    def tensor(self, shape: list[int], stride: list[int], dtype: torch.dtype) -> torch.Tensor:
        """Guarded, and filled with small numbers."""
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if 0 not in shape else 0
        size = extent * dtype.itemsize
        memory = Guarded(size, self.at_end)
        self.held.append(memory)
        if not size:
            return torch.empty_strided(shape, stride, dtype=dtype)
        raw = (ctypes.c_char * size).from_address(memory.address)
        x = torch.frombuffer(raw, dtype=dtype).as_strided(shape, stride)
        flat = torch.frombuffer(raw, dtype=dtype)
        flat.copy_(torch.arange(extent).remainder(3).to(dtype))
        return x

    def take_arena(self, size: int) -> int:
        memory = Guarded((size + 63) // 64 * 64, self.at_end)
        record = ArenaRecord(None, memory.address, size)
        self.held += [memory, record]
        return ctypes.addressof(record)

    def end(self) -> None:
        for x in self.held:
            if isinstance(x, Guarded):
                x.free()
        self.held.clear()


def main() -> None:
    from mlirc.codegen import native_runtime
    from mlirc.codegen.checked_program import CheckedProgram, InputError
    from mlirc.dialects import symbols
    from mlirc.dialects.bindings import context
    from mlirc.dialects.graph_signature import bind_symbols  # noqa: F401
    from mlirc.lowering.kernel_verifier import StageError
    from mlirc.lowering.module_text import TextError, parse_module
    from mlirc.lowering.pass_manager import PassError, functions, run_pipeline
    from mlirc.lowering.stage_forms import stage_of
    from mlirc.lowering.verify_file import verify_file

    guards = Guards()
    plain = native_runtime.functions

    def guarded() -> dict[str, int]:
        return plain() | {"take_arena": ctypes.cast(guards.take, ctypes.c_void_p).value or 0}

    native_runtime.functions = guarded
    rest = {
        "graph": "decompose,choose-attention,to-kernels,plan-memory,lower-kernels",
        "kernel": "plan-memory,lower-kernels",
        "memory": "lower-kernels",
        "lowered": "",
    }
    torch.set_num_threads(1)
    for line in sys.stdin:
        text, values = json.loads(line)
        print("begin", flush=True)
        try:
            with context():
                module = parse_module(text.encode("utf-8", "surrogateescape"))
                verify_file(module, runs=True)
                found = list(functions(module))
                graph = next((f for f in found if f.name.value == "graph"), None)
                stage = graph is not None and stage_of(graph)
                if not stage:
                    raise TextError("no graph")
                if rest[stage]:
                    run_pipeline(module, rest[stage], verify=False)
                program = CheckedProgram(module)
            for guards.at_end in (True, False):
                inputs: list[Any] = []
                for info in program.infos:
                    if info is None:
                        inputs.append(3)
                        continue
                    shape, stride = (
                        [symbols.evaluate(n, dict.fromkeys(symbols.free_symbols(n), 0) | values) for n in given]
                        for given in (info.shape, info.stride)
                    )
                    inputs.append(guards.tensor(shape, stride, info.dtype))
                try:
                    for x in program(inputs):
                        if isinstance(x, torch.Tensor):
                            x.clone()
                    what = "ran"
                except (InputError, IndexError, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
                    what = f"raised {type(error).__name__}"
            print(what, flush=True)
        except (TextError, StageError, PassError) as error:
            print(f"refused {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
        except (InputError, ValueError, MemoryError, KeyError, OverflowError) as error:
            print(f"late {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
        except Exception as error:
            print(f"odd {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)


if __name__ == "__main__":
    main()
