"""The order in which autograd's nodes were made."""

from collections.abc import Sequence
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


@reach(
    "ordered-nodes",
    instead="gradients of an input, of which results are views, are added in the order in which AOTAutograd takes these",
)
def numbered():
    """A function that gives nodes their numbers anew: each gets a larger one than that before."""
    with torch.inference_mode(False), torch.enable_grad():
        pair: list[Any] = [(torch.ones((), requires_grad=True) * 1).grad_fn for _ in range(2)]

    def renumber(nodes: Sequence[Any]) -> None:
        for node, number in zip(nodes, sorted(n._sequence_nr() for n in nodes), strict=True):
            node._set_sequence_nr(number)

    renumber(pair[::-1])
    if not pair[1]._sequence_nr() < pair[0]._sequence_nr():
        raise Missing("a node keeps its number")
    return renumber
