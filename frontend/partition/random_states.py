"""Random numbers that a backward graph draws again, as under activation checkpointing.

The partitioner wraps such a call in a higher-order operator that hands out the generator's state, or sets it for that call.
Here these become calls in the order of effects, of two operators that take the state and set it, and of the call itself:

before:  both = run_and_save_rng_state(native_dropout, x, 0.1, True);  state = both[0];  dropped = both[1]
after:   state = rng_state("cpu");  dropped = native_dropout(x, 0.1, True)
before:  dropped = run_with_rng_state(state, native_dropout, x, 0.1, True)
after:   now = rng_state("cpu");  set_rng_state(state, "cpu");  dropped = native_dropout(x, 0.1, True);  set_rng_state(now, "cpu")

A state is a tensor of bytes on the CPU, for a GPU's generator too: the partitioner is told (STATES_ARE_TENSORS) not to make
generators arguments of both graphs, which a compiled graph has no type for.
"""

from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.frontend.torch_compat.aot_autograd.higher_order import run_and_save_rng_state, run_with_rng_state
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves, tree_map
from mlirc.frontend.torch_compat.fake_tensors import detect_fake_mode

STATES_ARE_TENSORS = {"graphsafe_rng_functionalization": False}
"""What torch._functorch.config is to say while a graph is parted."""


def _state(device: torch.device) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_state(state: torch.Tensor, device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


_library = torch.library.Library("mlirc", "FRAGMENT")
_library.define("rng_state(Device device) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
_library.define("set_rng_state(Tensor state, Device device) -> ()", tags=(torch.Tag.nondeterministic_seeded,))
_library.impl("rng_state", _state, "CompositeExplicitAutograd")
_library.impl("set_rng_state", _set_state, "CompositeExplicitAutograd")


def name_random_states(gm: GraphModule) -> None:
    """Rewrites the calls of both higher-order operators."""
    nodes = [n for n in gm.graph.nodes if n.target in (run_and_save_rng_state, run_with_rng_state)]
    if not nodes:
        return
    for node in nodes:
        saves = node.target is run_and_save_rng_state
        call = node.args if saves else node.args[1:]
        promised = _promised(call, node.kwargs)
        with gm.graph.inserting_before(node):
            (_save if saves else _run_again)(gm, node, call, promised)
    gm.recompile()


def _promised(call: tuple, kwargs: dict) -> Any:
    """The fake results of call[0], called with the other arguments."""
    args, kwargs = tree_map(lambda x: x.meta["val"] if isinstance(x, Node) else x, (call[1:], kwargs))
    mode = detect_fake_mode(tree_leaves((args, kwargs)))
    assert mode is not None
    with mode:
        return call[0](*args, **kwargs)


def _device(promised: Any) -> torch.device:
    """The device whose generator the call draws from: that of its results."""
    return next(x.device for x in tree_leaves(promised) if isinstance(x, torch.Tensor))


def _save(gm: GraphModule, node: Node, call: tuple, promised: Any) -> None:
    state = gm.graph.call_function(torch.ops.mlirc.rng_state.default, (_device(promised),))
    drawn = _drawn(gm, node, call, promised)
    for item in list(node.users):
        state.meta.update(item.meta if item.args[1] == 0 else {})
        item.replace_all_uses_with(state if item.args[1] == 0 else drawn)
        gm.graph.erase_node(item)
    gm.graph.erase_node(node)


def _run_again(gm: GraphModule, node: Node, call: tuple, promised: Any) -> None:
    saved: Any = node.args[0]
    device = _device(promised)
    now = gm.graph.call_function(torch.ops.mlirc.rng_state.default, (device,))
    now.meta["val"] = saved.meta["val"]
    gm.graph.call_function(torch.ops.mlirc.set_rng_state.default, (saved, device)).meta["val"] = None
    node.replace_all_uses_with(_drawn(gm, node, call, promised))
    gm.graph.call_function(torch.ops.mlirc.set_rng_state.default, (now, device)).meta["val"] = None
    gm.graph.erase_node(node)


def _drawn(gm: GraphModule, node: Node, call: tuple, promised: Any) -> Node:
    drawn = gm.graph.call_function(call[0], call[1:], node.kwargs)
    drawn.meta = {**node.meta, "val": promised}
    return drawn
