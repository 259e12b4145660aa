"""The dtypes and head sizes that our attention kernels cover. No MLIR here: masks are looked at before a graph is imported."""

import torch

from mlirc.dialects.core.symbols import Int

MOST_HEAD = 256  # elements of a head: scratch for a block of queries lies on a thread's stack
DTYPES = (torch.float32, torch.bfloat16)
FLEX_DTYPES = (*DTYPES, torch.float16)
LEAST_QUERIES = 8  # of attention with a body: fewer leave most lanes of a panel empty


def uncovered(dtype: torch.dtype, heads: Int, shared: Int, *head: Int) -> str:
    """Why they do not cover `heads` heads of the query that share `shared` of the keys, with rows of `head` elements, or ""."""
    return "FLOAT32 OR BFLOAT16" if dtype not in DTYPES else sizes_uncovered(heads, shared, *head)


def sizes_uncovered(heads: Int, shared: Int, *head: Int) -> str:
    """The rule by which `uncovered` refuses these sizes, or ""; it does not look at the dtype."""
    if not all(isinstance(n, int) and n <= MOST_HEAD for n in head):
        return "HEAD SIZE"
    if heads != shared and not (isinstance(heads, int) and isinstance(shared, int)):
        return "STATIC HEADS"
    return ""


def flex_uncovered(dtype: torch.dtype, queries: Int, heads: Int, shared: Int, *head: Int) -> str:
    """The rule that refuses attention with a body (flex_attention) of `queries` queries a head, or ""; other arguments as of `uncovered`."""
    if isinstance(queries, int) and queries < LEAST_QUERIES:
        return "FEW QUERIES"
    return "DTYPE" if dtype not in FLEX_DTYPES else sizes_uncovered(heads, shared, *head)
