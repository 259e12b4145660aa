"""The dtypes and head sizes that our attention kernels cover. No MLIR here: masks are looked at before a graph is imported."""

import torch

from mlirc.dialects.core.symbols import Int

MOST_HEAD = 256  # elements of a head: scratch for a block of queries lies on a thread's stack
DTYPES = (torch.float32, torch.bfloat16)
FLEX_DTYPES = (*DTYPES, torch.float16)
LEAST_QUERIES = 8  # of attention with a body: fewer leave most lanes of a panel empty


def uncovered(dtype: torch.dtype, query_heads: Int, key_heads: Int, *head_sizes: Int) -> str:
    """The rule that refuses attention, or "".

    query_heads, key_heads   how many heads q, and k and v, have
    head_sizes               elements of a head of q and k, and of v
    """
    return "FLOAT32 OR BFLOAT16" if dtype not in DTYPES else sizes_uncovered(query_heads, key_heads, *head_sizes)


def sizes_uncovered(query_heads: Int, key_heads: Int, *head_sizes: Int) -> str:
    """The rule that refuses these sizes, whatever the dtype, or ""."""
    if not all(isinstance(n, int) and n <= MOST_HEAD for n in head_sizes):
        return "HEAD SIZE"
    if query_heads != key_heads and not (isinstance(query_heads, int) and isinstance(key_heads, int)):
        return "STATIC HEADS"
    return ""


def flex_uncovered(dtype: torch.dtype, queries: Int, query_heads: Int, key_heads: Int, *head_sizes: Int) -> str:
    """The rule that refuses attention with a body (flex_attention), or "". `queries` is how many queries a head has; the other arguments are
    those of `uncovered`."""
    if isinstance(queries, int) and queries < LEAST_QUERIES:
        return "FEW QUERIES"
    return "DTYPE" if dtype not in FLEX_DTYPES else sizes_uncovered(query_heads, key_heads, *head_sizes)
