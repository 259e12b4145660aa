"""Offsets of the storage, memory and version counter in PyTorch's C++ objects, found from tensors with known answers."""

import ctypes

import torch

from mlirc.codegen.abi.reach import Missing, reach

OFFSETS = ("storage_at", "data_at", "deleter_at", "context_at", "size_at")


@reach(
    "storage-layout",
    instead="large results are new memory in every call, and PyTorch is asked for each parameter",
    apart=True,
)
def storage_offsets() -> dict[str, int]:
    """Byte offsets by the names in OFFSETS: of the storage in a TensorImpl, and of memory, deleter, context and size in a storage."""
    tensors = [torch.empty(n, dtype=torch.uint8) for n in (4160, 64, 12345, 777)]
    nothing = torch.empty(0, dtype=torch.uint8)
    impls = [slots_at(x._cdata, 8) for x in tensors]
    storages = [slots_at(x.untyped_storage()._cdata, 10) for x in tensors]
    empty = slots_at(nothing.untyped_storage()._cdata, 10)

    def only(places: list[int], what: str) -> int:
        if len(places) != 1:
            raise Missing(f"this PyTorch lays out storages in another way: {what} is found at {places}")
        return places[0]

    storage_at = only(where(impls, [x.untyped_storage()._cdata for x in tensors]), "the storage")
    # A storage holds a pointer to its memory, a context, which on the CPU is that pointer too, and the context's deleter.
    memory = where(storages, [x.data_ptr() for x in tensors])
    if len(memory) != 2 or not 1 <= memory[1] - memory[0] <= 2:
        raise Missing(f"this PyTorch lays out storages in another way: memory is found at {memory}")
    data_at, context_at = memory  # the deleter is between both, or follows the context
    deleter_at = data_at + 1 if context_at == data_at + 2 else data_at + 2
    size_at = only(where(storages, [x.nbytes for x in tensors]), "the size")
    deleters = {slots[deleter_at] for slots in (*storages, empty)}
    if len(deleters) != 1 or 0 in deleters or empty[data_at] or empty[context_at] or empty[size_at]:
        raise Missing("this PyTorch lays out storages in another way: that of no elements has memory")
    return {
        name: 8 * at for name, at in zip(OFFSETS, (storage_at, data_at, deleter_at, context_at, size_at), strict=True)
    }


def slots_at(address: int, count: int) -> list[int]:
    """The first `count` words of 8 bytes of the object at an address."""
    return list((ctypes.c_uint64 * count).from_address(address))


def where(objects: list[list[int]], values: list[int]) -> list[int]:
    """Positions k at which each object's k-th slot is that object's value."""
    return [k for k in range(len(objects[0])) if all(slots[k] == x for slots, x in zip(objects, values, strict=True))]
