"""What is rewritten of a graph of Dynamo's, and of the functions that its operators take, before AOTAutograd traces it."""

import torch
from torch.fx import GraphModule

from mlirc.frontend.capture.taken_functions.circular_pads import write_out_circular_pads
from mlirc.frontend.capture.taken_functions.filled_diagonals import write_out_diagonals
from mlirc.frontend.capture.taken_functions.margin_losses import write_out_losses
from mlirc.frontend.capture.taken_functions.resized_images import write_out_resizes


def rewrite_functions(gm: GraphModule) -> None:
    if any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in gm.graph.nodes):
        rewrite_operators_of_functions(gm)
    write_out_circular_pads(gm)
    write_out_losses(gm)
    write_out_diagonals(gm)
    write_out_resizes(gm)


def rewrite_operators_of_functions(gm: GraphModule) -> None:
    """Few graphs have such operators, and a first call loads none of this for others."""
    from mlirc.frontend.capture.associative_scans import write_out_scans
    from mlirc.frontend.capture.counting_loops import carry_tensors
    from mlirc.frontend.capture.nested_regions import inline_regions

    inline_regions(gm)
    write_out_scans(gm)
    carry_tensors(gm)
