"""The order in which autograd's nodes were made."""

from typing import Any

import torch

from mlirc.codegen.abi.reach import Missing, reach


@reach("sequence-numbers", instead="mlirc.explain does not compile the backward graph")
def sequence_number():
    """A function that gives a node's number. A later node has a larger number."""
    with torch.inference_mode(False), torch.enable_grad():
        first: Any = (torch.ones((), requires_grad=True) * 1).grad_fn
        second: Any = (torch.ones((), requires_grad=True) * 1).grad_fn
    if not first._sequence_nr() < second._sequence_nr():
        raise Missing("numbers do not grow")
    return lambda node: node._sequence_nr()
