"""Takes the state of a GPU's random generator in native code: the function behind the operator `random_state`.

    random_state(record, index, increment, stream, place)   makes a tensor of two int64 on GPU `index`, and stores its handle at `place`.
                                     The tensor holds the seed of the default generator and a quarter of its offset. The generator's
                                     offset then grows by `increment`.

PyTorch gives the state as numbers or, while a CUDA graph is recorded, as addresses that each replay fills. A kernel stores either in
the tensor (lowering/gpu/random_state.py; `record` is what launches it). The function holds the generator's lock meanwhile, as ATen does.
It returns 0, or an error as in cuda/runtime.py.
"""

import os
import re
from collections.abc import Sequence
from functools import cache

import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.abi.cuda_generator import GENERATOR, STATE, WITHIN, GeneratorLayout, layout
from mlirc.codegen.cuda.driver import driver
from mlirc.codegen.llvm.machine_code import Code, compile_ir, load_library
from mlirc.dialects.core.fork_locks import fork_lock

NAME, SIGNATURE = "random_state", "i32 (ptr, i32, i64, ptr, ptr)"

TEXT = r"""
declare i32 @aoti_torch_empty_strided(i64, ptr, ptr, i32, i32, i32, ptr)
declare i32 @aoti_torch_get_data_ptr(ptr, ptr)
declare i32 @cuLaunchKernel(ptr, i32, i32, i32, i32, i32, i32, i32, ptr, ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare ptr @GENERATOR(i8 signext)
declare void @STATE(ptr sret([32 x i8]), ptr, i64)

define i32 @random_state(ptr %record, i32 %index, i64 %increment, ptr %stream, ptr %place) {
entry:
  %sizes = alloca [1 x i64]
  %strides = alloca [1 x i64]
  %state = alloca [32 x i8], align 16
  %words = alloca [7 x i64]
  %parameters = alloca [7 x ptr]
  store i64 2, ptr %sizes
  store i64 1, ptr %strides
  %made = call i32 @aoti_torch_empty_strided(i64 1, ptr %sizes, ptr %strides, i32 INT64, i32 CUDA, i32 %index, ptr %place)
  %no_memory = icmp ne i32 %made, 0
  br i1 %no_memory, label %shim_failed, label %draw
draw:
  %handle = load ptr, ptr %place
  %asked = call i32 @aoti_torch_get_data_ptr(ptr %handle, ptr %words)
  %small = trunc i32 %index to i8
  %generator = call ptr @GENERATOR(i8 signext %small)
  %self = load ptr, ptr %generator
  %mutex = getelementptr i8, ptr %self, i64 MUTEX
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  call void @STATE(ptr sret([32 x i8]) %state, ptr %self, i64 %increment)
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  %seed = load i64, ptr %state
  %offset_at = getelementptr i8, ptr %state, i64 8
  %offset = load i64, ptr %offset_at
  %within_at = getelementptr i8, ptr %state, i64 WITHIN
  %within_bits = load iBITS, ptr %within_at
  %within = WIDENED
  %captured_at = getelementptr i8, ptr %state, i64 CAPTURED
  %captured_byte = load i8, ptr %captured_at
  %captured = zext i8 %captured_byte to i64
  STORES
  %function = load ptr, ptr %record
  %threads_at = getelementptr i64, ptr %record, i64 1
  %threads = load i32, ptr %threads_at
  %code = call i32 @cuLaunchKernel(ptr %function, i32 1, i32 1, i32 1, i32 %threads, i32 1, i32 1, i32 0,
                                   ptr %stream, ptr %parameters, ptr null)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %cuda_failed, label %done
done:
  ret i32 0
shim_failed:
  ret i32 1
cuda_failed:
  %number = add i32 %code, 1000
  ret i32 %number
}
"""


_lock = fork_lock()


def linked(links: Sequence[str]) -> dict[str, int]:
    """The function's address by its name, if `links` has the name."""
    if NAME not in links:
        return {}
    with _lock:
        return {NAME: _code().address(NAME)}


@cache
def _code() -> Code:
    known = layout.or_missing()
    driver()
    load_library("libcuda.so.1")
    load_library(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cuda.so"))
    return compile_ir(text(known), opt_level=1)


def text(known: GeneratorLayout) -> str:
    """The function's LLVM IR, for a generator whose fields lie as `known` says."""
    stores = []
    for k, word in enumerate(("", "%seed", "%offset", "%within", "%captured", "0", "0")):  # two that Triton adds
        stores += [
            f"%w{k} = getelementptr i64, ptr %words, i64 {k}",
            f"%p{k} = getelementptr ptr, ptr %parameters, i64 {k}",
        ]
        stores += [f"store i64 {word}, ptr %w{k}"] * bool(word) + [f"store ptr %w{k}, ptr %p{k}"]
    widened = "add i64 %within_bits, 0" if known.within_bits == 64 else "zext i32 %within_bits to i64"
    values = {
        "STORES": "\n  ".join(stores),
        "WIDENED": widened,
        "GENERATOR": GENERATOR,
        "STATE": STATE,
        "MUTEX": str(known.mutex),
        "WITHIN": str(WITHIN),
        "BITS": str(known.within_bits),
        "CAPTURED": str(known.captured),
        "INT64": str(shim.dtype_code(torch.int64)),
        "CUDA": str(shim.device_codes("cuda:0")[0]),
    }
    return re.sub("|".join(values), lambda found: values[found[0]], TEXT)
