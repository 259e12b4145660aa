"""Counts the holders of a storage, which decides whether the replay of a CUDA graph may write there."""

from collections.abc import Callable

import torch

from mlirc.codegen.abi.reach import Missing, reach


@reach("storage-use", instead="CUDA graphs are not recorded", apart=True)
def storage_use() -> Callable[[int], int]:
    """PyTorch's function of a storage's identity (fake_tensors.storage_id) that gives the count."""
    count = torch._C._storage_Use_Count
    x = torch.zeros(3)
    identity = x.untyped_storage()._cdata
    alone = count(identity)
    view = x[1:]
    shared = count(identity)
    del view
    if (shared, count(identity)) != (alone + 1, alone):
        raise Missing("it counts in another way")
    return count
