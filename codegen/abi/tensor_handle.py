"""Tensor handles of the C shim: the address of an 8-byte slot that holds the address of the TensorImpl.

`tensor._cdata` is the TensorImpl's address. So the address of any variable with this value is a borrowed handle, at no cost.
"""

import ctypes

import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.abi.reach import Missing, reach

HANDLE = "_cdata"


@reach("tensor-handle", instead="every graph runs in eager", apart=True)
def tensor_handle() -> str:
    """The name of the attribute that holds the TensorImpl's address."""
    library, memory = shim.library(), torch.zeros(7, 5)
    for x in (memory, memory[2:, 1:], torch.nn.Parameter(memory[3])):
        slot, address, rank = ctypes.c_void_p(getattr(x, HANDLE)), ctypes.c_void_p(), ctypes.c_int64()
        failed = library.aoti_torch_get_data_ptr(ctypes.byref(slot), ctypes.byref(address))
        failed = failed or library.aoti_torch_get_dim(ctypes.byref(slot), ctypes.byref(rank))
        if failed or (address.value, rank.value) != (x.data_ptr(), x.dim()):
            raise Missing(f"the C shim does not take {HANDLE} for a tensor")
    return HANDLE
