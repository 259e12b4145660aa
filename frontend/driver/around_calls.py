"""What stands around each call of a captured graph: checks of its inputs, and the graph in eager for those that compiled code does not take."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.frontend.fallback.dual_tensors import with_tangents
from mlirc.frontend.fallback.fake_inputs import with_fake_first_call, with_modes
from mlirc.frontend.fallback.inference_tensors import with_inference_tensors
from mlirc.frontend.fallback.input_starts import with_starts
from mlirc.frontend.fallback.read_storages import with_read_storages
from mlirc.frontend.fallback.second_gradients import with_second_gradients
from mlirc.frontend.fallback.shared_memory import with_memory
from mlirc.frontend.partition.undefined_tangents import pass_undefined_on
from mlirc.frontend.strides.view_order import with_view_order
from mlirc.frontend.torch_compat.aot_autograd.saved_layouts import with_layouts
from mlirc.frontend.torch_compat.dynamo.skipped_guards import with_checks


def around_calls(run: Callable, gm: GraphModule, inputs: Sequence[Any], tell: Callable[[Exception], None]) -> Callable:
    """`run`, the callable of the graph `gm`. `tell` gets the reason where eager runs instead."""
    captured = run
    if torch.is_grad_enabled():
        run = with_layouts(run)
    ordered = with_view_order(run, gm)
    run = with_second_gradients(ordered, gm, inputs, tell)
    if run is ordered and torch.is_grad_enabled():  # what notes calls tells their nodes
        run = pass_undefined_on(run)
    run = with_memory(with_starts(with_read_storages(run, gm, tell), gm, tell), gm, tell)
    run = with_inference_tensors(with_checks(run, gm, inputs, tell), gm, inputs, tell)
    run = with_modes(run, gm, tell)
    return with_fake_first_call(with_tangents(run, gm, tell), captured)
