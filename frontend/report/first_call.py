"""Writes the inputs and results of a compiled graph's first call: arg0, ... and result0, ... as `mlirc run --inputs` reads them."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.frontend.fallback import fallback
from mlirc.frontend.graph.observer import Native
from mlirc.frontend.report.capture_folder import GraphFiles
from mlirc.frontend.report.tensor_file import write_tensors

LIMIT = "MLIRC_DUMP_MB"
RANDOM_STATE = "random_state"
"""The name of the CPU generator's state before the call, among the inputs."""


class FirstCall:
    """Called in place of a graph's program.

    arguments  how many of its inputs are the caller's; the others, behind them, are results of @prepare
    mutated    which of the caller's inputs the graph writes to: their new values are among the results
    """

    def __init__(
        self,
        native: Native,
        record: GraphFiles,
        kind: str,
        arguments: int,
        mutated: Sequence[int],
        told: Callable[[], None],
    ):
        self.native, self.record, self.kind = native, record, kind
        self.arguments, self.mutated, self.told = arguments, mutated, told
        self.waits = True

    def __call__(self, given: list) -> list:
        if not self.waits:
            return self.native(given)
        self.waits = False
        held = {f"arg{k}": x for k, x in enumerate(given[: self.arguments])}
        changed = {f"arg{k}": given[k] for k in self.mutated}
        self.keep("inputs", held | {RANDOM_STATE: torch.get_rng_state()})
        del held
        results = self.native(given)
        self.keep("results", {f"result{k}": x for k, x in enumerate(results)} | changed)
        self.told()
        return results

    def keep(self, what: str, named: dict[str, Any]) -> None:
        """Writes the values; where that fails, notes why. The call goes on in both cases."""
        record = self.record
        if record.folder is None:
            return
        name, limit = f"{self.kind}_{what}.safetensors", limit_of_bytes()
        try:
            size = sum(x.numel() * x.element_size() for x in named.values() if isinstance(x, torch.Tensor))
            if size > limit:
                raise ValueError(f"{size >> 20} MB; {LIMIT} says {limit >> 20}")
            write_tensors(record.path(name), {key: x for key, x in named.items() if x is not None})
            record.data[what] = f"{record.prefix}_{name}"
        except Exception as error:
            record.data[f"no_{what}"] = fallback.reason(error)


def limit_of_bytes() -> int:
    """The most bytes that are written of a graph's inputs, and of its results."""
    try:
        return int(os.environ.get(LIMIT, "4096")) << 20
    except ValueError:
        return 4096 << 20
