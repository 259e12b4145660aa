"""PyTorch's C shim as host programs call it: signatures, dtype codes, and the library routines behind `mlircx.call`.

The shim is a stable C interface of libtorch_cpu.so; libtorch_cuda.so has a part of its own. A routine returns 0 on success. On failure it
returns another number and stores a message (`last_error`).
"""

import ctypes
import struct
from functools import cache
from pathlib import Path

import torch

SIGNATURES = {
    "aoti_torch_get_data_ptr": "i32 (ptr, ptr)",
    "aoti_torch_get_sizes": "i32 (ptr, ptr)",
    "aoti_torch_empty_strided": "i32 (i64, ptr, ptr, i32, i32, i32, ptr)",
    "aoti_torch_create_tensor_from_blob": "i32 (ptr, i64, ptr, ptr, i64, i32, i32, i32, ptr)",
    "aoti_torch__reinterpret_tensor": "i32 (ptr, i64, ptr, ptr, i64, ptr)",
    "aoti_torch_new_tensor_handle": "i32 (ptr, ptr)",
    "aoti_torch_scalar_to_tensor_float64": "i32 (double, ptr)",
    "aoti_torch_copy_": "i32 (ptr, ptr, i32)",
    "aoti_torch_cuda__addmm_activation": "i32 (ptr, ptr, ptr, double, double, i32, ptr)",
    "torch_get_num_threads": "i32 (ptr)",
    "torch_call_dispatcher": "i32 (ptr, ptr, ptr, i64)",
    "torch_new_string_handle": "i32 (ptr, i64, ptr)",
    "torch_new_list_reserve_size": "i32 (i64, ptr)",
    "torch_list_push_back": "i32 (ptr, i64)",
    "torch_list_get_item": "i32 (ptr, i64, ptr)",
    "torch_delete_list": "i32 (ptr)",
}
for _device in ("cpu", "cuda"):
    SIGNATURES |= {
        f"aoti_torch_{_device}_mm_out": "i32 (ptr, ptr, ptr)",
        f"aoti_torch_{_device}_bmm_out": "i32 (ptr, ptr, ptr)",
        f"aoti_torch_{_device}_addmm_out": "i32 (ptr, ptr, ptr, ptr, double, double)",
        f"aoti_torch_{_device}_baddbmm_out": "i32 (ptr, ptr, ptr, ptr, double, double)",
    }

# (callee, rank of the result or None for any) -> (routine, arguments after the output's and the inputs' handles)
ROUTINES = {
    ("matmul", 2): ("aoti_torch_{device}_mm_out", ()),
    ("matmul", 3): ("aoti_torch_{device}_bmm_out", ()),
    ("addmm", 2): ("aoti_torch_{device}_addmm_out", ("1.0", "1.0")),
    ("addmm", 3): ("aoti_torch_{device}_baddbmm_out", ("1.0", "1.0")),
    ("copy", None): ("aoti_torch_copy_", ("0",)),
}


def routine(callee: str, rank: int, device: str = "cpu") -> tuple[str, tuple[str, ...]]:
    """The shim's routine for a library call into a result of `rank` on a `device`. Raises ValueError if there is none."""
    found = ROUTINES.get((callee, rank)) or ROUTINES.get((callee, None))
    if found is None:
        known = ", ".join(f"{name} (rank {r})" if r is not None else name for name, r in ROUTINES)
        raise ValueError(f"no library routine for callee '{callee}' with a result of rank {rank}; there are {known}")
    return found[0].replace("{device}", torch.device(device).type), found[1]


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


@cache
def dtype_code(dtype: torch.dtype) -> int:
    """The shim's number of a dtype. Raises ValueError where this version of torch has none."""
    name = str(dtype).removeprefix("torch.")
    for prefix in ("aoti_torch_dtype_", "torch_dtype_"):
        if hasattr(library(), prefix + name):
            return getattr(library(), prefix + name)()
    raise ValueError(f"PyTorch's C shim has no number for {dtype}: a buffer of it cannot be made")


@cache
def device_codes(device: str) -> tuple[int, int]:
    """The shim's type and index of a device ("cpu", "cuda:1")."""
    found = torch.device(device)
    return getattr(library(), f"aoti_torch_device_type_{found.type}")(), found.index or 0


@cache
def abi_version() -> int:
    """The installed torch's version, as a number of its stable interface."""
    version = library().aoti_torch_abi_version
    version.restype = ctypes.c_uint64
    return version()


def double_text(value: float) -> str:
    """A float as a double constant of LLVM IR, with the same bits."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def last_error() -> str:
    """The message of this thread's last failure in the shim; "" before torch 2.13, which stores none."""
    try:
        what = library().torch_exception_get_what_without_backtrace
    except AttributeError:
        return ""
    what.restype = ctypes.c_char_p
    text = what()
    return text.decode(errors="replace").strip() if text else ""
