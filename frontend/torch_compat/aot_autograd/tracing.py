"""Calls AOTAutograd for the functional graphs of a graph of Dynamo's, partitioned into forward and backward."""

from mlirc.codegen.abi.reach import needed

with needed("aot-autograd"):
    from torch._decomp import get_decompositions as get_decompositions
    from torch._functorch import config as config
    from torch._functorch._aot_autograd.utils import make_boxed_func as make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition as min_cut_rematerialization_partition
