"""Native functions that all host programs share: crossing to Python and back, arenas, freeing. Loaded once a process.

Written in LLVM IR, as host programs are, so that one call from Python runs a whole graph. A tensor is passed as a
*handle* of PyTorch's C shim: the address of an `at::Tensor`, which is one slot, the address of its TensorImpl. Python
gives that slot as `tensor._cdata`; so the address of a place that holds it is a borrowed handle, at no cost.

`self` is what Python has for a host program: a tuple, whose positions python_side.py names.
Kinds of values that cross, a letter each: t a tensor (its handle), a the graph's input of that number, i int, f float;
o is an input tensor in a layout of its own, which has no address.

What needs the GIL: read_inputs, keep_inputs, take_arena, make_results, finish, fail. `call_python` takes it, and gives
it up again. The GIL also guards the list of idle arenas.
"""

import ctypes
from functools import cache

from mlirc.codegen.abi.python_tensor import wrap_address
from mlirc.codegen.abi.reach import reach
from mlirc.codegen.llvm.machine_code import Code
from mlirc.codegen.process import background
from mlirc.codegen.runtime import (
    native_runtime_text,
    python_values_text,
    result_blocks_text,
    result_pages_text,
    result_pool,
    result_pool_text,
)
from mlirc.codegen.runtime.python_side import RAISE_FAILURE
from mlirc.codegen.runtime.result_pool import ResultPool
from mlirc.codegen.runtime.runtime_code import runtime_code
from mlirc.dialects.core.fork_locks import fork_lock

# name -> signature, as host programs call them
SIGNATURES = {
    "read_inputs": "i32 (ptr, ptr, ptr, i64, ptr, ptr)",
    "keep_inputs": "void (ptr, ptr, i64, ptr, ptr)",
    "take_arena": "ptr (i64)",
    "new_result": "i32 (i64, ptr, ptr, i32, i32, i32, i64, ptr)",
    "call_python": "i32 (ptr, ptr, ptr, ptr, ptr, i64, ptr, ptr, i64, ptr, ptr)",
    "make_results": "ptr (ptr, ptr, i64, ptr)",
    "restride": "i32 (ptr, i64, ptr, ptr, i32, i32, i32, i1)",
    "drop": "void (ptr)",
    "fail": "void (ptr, i64, i64, i64)",
    "finish": "void (ptr, i64, ptr)",
}

LARGE = 4 << 20
"""Bytes from which memory that is new is worth huge pages: fresh ones cost a fault each, at 4 KiB more than the data itself."""

_lock = fork_lock()  # a program that the garbage collector finds here ends in `pool` too


def functions() -> dict[str, int]:
    """The address of each function of SIGNATURES, in a dict of the caller's own."""
    with _lock:
        return dict(_addresses())


def prefetch() -> None:
    """What every program needs, while Python does something else."""
    background.start(pool)


def address(name: str) -> int:
    """The address of a function or a variable of the text, such as the head of the list of idle arenas."""
    with _lock:
        return _code().address(name)


@cache
def _addresses() -> dict[str, int]:
    return {name: _code().address(name) for name in SIGNATURES}


def pool() -> ResultPool | None:
    """The pool of result memory; None where there can be none."""
    with _lock:
        return _pool()


@reach("result-memory", instead="large results are new memory in every call")
def _pool() -> ResultPool:
    """The pool, which replaces a storage's memory and deleter; it tries a result when it opens."""
    return ResultPool(_code())


@cache
def _code() -> Code:
    parts = native_runtime_text, python_values_text, result_blocks_text, result_pages_text, result_pool_text
    text = "".join(part.TEXT for part in parts)
    numbers = {
        "RAISE_FAILURE": RAISE_FAILURE,
        "LARGE": LARGE,
        "SMALLEST": result_pool.SMALLEST,
        "OFFER_SECONDS": result_pool.OFFER_SECONDS,
    }
    for name, number in numbers.items():
        text = text.replace(name, str(number))
    code = runtime_code(text)
    ctypes.c_void_p.from_address(code.address("wrap_tensor")).value = wrap_address()
    return code
