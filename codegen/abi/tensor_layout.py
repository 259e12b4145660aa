"""Offsets of the TensorImpl in a Python tensor, and of the version counter in a TensorImpl, found from tensors with known answers.

object -> TensorImpl -> storage -> memory
                     -> version counter
"""

import ctypes

import torch
from torch import nn

from mlirc.codegen.abi.reach import Missing, reach
from mlirc.codegen.abi.storage_layout import slots_at, storage_offsets, where


@reach("tensor-layout", instead="PyTorch is asked for each parameter at each call", apart=True)
def places() -> dict[str, int]:
    """The offset of each field by its name, counted in 8 bytes; VERSION_AT, within a version counter, is counted in 4 bytes."""
    memory = torch.zeros(5000)
    tensors = [  # of different offsets and sizes, so that each field has one place
        memory[77:200].clone(),
        memory[1031:1040],
        nn.Parameter(memory[4099:4210], requires_grad=False),
        memory[5:],
    ]
    impls = [slots_at(x._cdata, 21) for x in tensors]
    offsets = storage_offsets.or_missing()
    found = {"STORAGE_AT": [offsets["storage_at"] // 8], "DATA_AT": [offsets["data_at"] // 8]}
    found["IMPL_AT"] = where([slots_at(id(x), 5) for x in tensors], [x._cdata for x in tensors])
    found["OFFSET_AT"] = where(impls, [x.storage_offset() for x in tensors])
    x = tensors[0]
    counted, apart = x.detach(), x.data  # with the same counter, and with one of its own
    slots, same, other = (slots_at(t._cdata, 8) for t in (x, counted, apart))
    found["COUNTER_AT"] = [k for k in range(2, 8) if 0 != slots[k] == same[k] != other[k] != 0]
    if len(found["COUNTER_AT"]) == 1:
        found["VERSION_AT"] = _version_at(x, slots[found["COUNTER_AT"][0]])
    for name in (*found, "VERSION_AT"):
        if len(found.get(name, [])) != 1:
            raise Missing(f"this PyTorch lays tensors out in another way: {name} is found at {found.get(name)}")
    return {name: at for name, (at,) in found.items()}


def _version_at(x: torch.Tensor, counter: int) -> list[int]:
    """Offsets within the version counter, counted in 4 bytes, that hold x's version after each of several writes."""
    numbers = (ctypes.c_uint32 * 6).from_address(counter)
    found = list(range(2, 6))
    for writes in (3, 8):
        for _ in range(writes):
            x.zero_()
        found = [k for k in found if numbers[k] == x._version]
    return found
