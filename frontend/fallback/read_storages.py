"""Runs a graph in eager that writes to inputs and reads an input's storage by `as_strided`, where that input is not all of its storage, in order.

    b = a[1:]
    b.mul_(2)
    b.as_strided((3,), (1,), 0)     begins with a[0]

AOTAutograd takes for `b` what `mul` computed, which begins at its own storage's start and has no element of `a` around it: there `as_strided`
would begin with b[0].
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.frontend.fallback.input_starts import is_strided, written_to
from mlirc.frontend.fallback.unless import in_eager_unless
from mlirc.frontend.strides.dimension_order import hint
from mlirc.frontend.torch_compat.fake_tensors import storage_id

READ_AROUND = "inputs are written to, and as_strided reads the storage of one that is not all of it, in order"


def with_read_storages(run: Callable, gm: GraphModule, tell: Callable[[Exception], None]) -> Callable:
    """`run`; the graph in eager for inputs of whose storage it reads more than them. `tell` hears of the first such call."""
    places = storages_read(gm)
    if not places:
        return run
    return in_eager_unless(lambda args: all(is_whole(args[k]) for k in places), run, gm, READ_AROUND, tell)


def reads_around(gm: GraphModule) -> str | None:
    """The reason, where the graph of Dynamo's is traced for inputs of whose storage it reads more than them."""
    values = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    return None if all(is_whole(values[k]) for k in storages_read(gm)) else READ_AROUND


def storages_read(gm: GraphModule) -> tuple[int, ...]:
    """The inputs whose storage `as_strided` and its like read in a graph of Dynamo's that writes to an input."""
    readers = [(part is gm, node) for part in gm.modules() if isinstance(part, GraphModule) for node in _readers(part)]
    if not readers:
        return ()
    values = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    given = {k: x for k, x in enumerate(values) if is_strided(x)}
    if not written_to(gm, given):
        return ()
    read: set[int] = set()
    for outside, node in readers:
        fake = _operand(node)
        known = outside and is_strided(fake)
        read.update(k for k, x in given.items() if not known or storage_id(x) == storage_id(fake))
    return tuple(sorted(read))


def is_whole(x: torch.Tensor) -> bool:
    """Whether the tensor is all of its storage, in order; False for a fake tensor of unknown sizes."""
    if hint(x.storage_offset()) != 0:
        return False
    expected = 1
    for size, stride in zip(reversed(x.shape), reversed(x.stride()), strict=True):
        n = hint(size)
        if n is None or (n != 1 and hint(stride) != expected):
            return False
        expected *= n
    return hint(x.untyped_storage().nbytes()) == expected * x.element_size()


def _readers(gm: GraphModule) -> Iterator[Node]:
    for node in gm.graph.nodes:
        if node.op in ("call_method", "call_function"):
            name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
            if name.startswith("as_strided"):
                yield node


def _operand(node: Node) -> Any:
    named = (node.kwargs[key] for key in ("input", "self") if key in node.kwargs)
    operand = node.args[0] if node.args else next(named, None)
    return operand.meta.get("example_value") if isinstance(operand, Node) else None
