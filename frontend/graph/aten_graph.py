"""A functional graph of ATen's on its way: what `capture` gives, and `import` takes."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.errors import DeviceError
from mlirc.frontend.importer.bodies import all_nodes
from mlirc.frontend.importer.size_equalities import without_symbols
from mlirc.frontend.options import Options
from mlirc.frontend.statistics import GraphReport
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves

Run = Callable[[list], list]
"""What AOTAutograd calls: takes all placeholders in a list, which it empties, and gives the FX graph's outputs."""


@dataclass(frozen=True)
class AtenGraph:
    """`kind` is "inference", "forward" or "backward"; `parameters` are the placeholders that hold parameters and buffers;
    `report` is filled in on the way; `after_node` is called while the graph is imported; `absent` are symbols that no input of the whole
    graph has, of which this may be a part (sizes.py)."""

    gm: GraphModule
    kind: str
    options: Options
    report: GraphReport
    parameters: tuple[int, ...] = ()
    after_node: Callable[[], None] | None = None
    absent: frozenset[Any] = frozenset()

    def own_sizes(self) -> AbstractContextManager[None]:
        """Within it, sizes are written with symbols that the whole graph's inputs give."""
        return without_symbols(self.absent)

    @cached_property
    def on_gpu(self) -> bool:
        """Whether any tensor is on a GPU. Raises DeviceError for one on a device that mlirc has no code for."""
        return uses_gpu(self.gm)

    @cached_property
    def stages(self) -> Mapping[str, str]:
        """Passes, by the name of their stage, in order. Raises PipelineError."""
        return self.options.stages(self.on_gpu)

    @property
    def arguments(self) -> int:
        """How many placeholders it has."""
        return len(self.gm.graph.find_nodes(op="placeholder"))

    @property
    def operators(self) -> list[str]:
        """The operators in it, by name."""
        targets = {node.target for node in all_nodes(self.gm)}
        return [x._name for x in targets if isinstance(x, torch._ops.OpOverload)]


def uses_gpu(gm: GraphModule) -> bool:
    found = False
    for node in all_nodes(gm):
        for value in tree_leaves(node.meta.get("val")):
            if not isinstance(value, torch.Tensor) or value.device.type == "cpu":
                continue
            if value.device.type != "cuda":
                from mlirc.frontend.importer.locations import where

                what = "input" if node.op == "placeholder" else "the result of"
                raise DeviceError(f"{what} {where(node)} is on {value.device}; mlirc compiles for: cpu, cuda")
            found = True
    return found
