"""Leaves out what PyTorch does in each compilation and no test reads: a quarter of a small one's time."""

import logging
from typing import Any

_nothing: Any = None


def leave_out() -> None:
    """In this process, from now on. May be called again. Imports TorchDynamo."""
    import torch
    from torch._decomp.decompositions_for_rng import PhiloxState
    from torch._dynamo import guards

    # The processor's caches are cleared, to say in a log how long guards take.
    guards.profile_guard_manager = lambda *args: 0.0  # pyright: ignore[reportPrivateImportUsage]
    if PhiloxState.reset is not _reset:
        global _nothing
        _nothing = torch.tensor(())
        PhiloxState.reset = _reset
    torch._dynamo.config.run_gc_after_compile = False  # 20 ms
    # While the structured trace has a handler, each record is made. One without a folder leaves with the first that it is given.
    trace = logging.getLogger("torch.__trace")
    for handler in list(trace.handlers):
        if getattr(handler, "root_dir", None) is None:
            trace.removeHandler(handler)


def _reset(self: Any) -> None:
    """PhiloxState's own, whose twelve empty tensors AOTAutograd would trace for each graph."""
    self.seed = self.base_offset = _nothing
    self.relative_offset = 0
    self.offset_advanced_at_least_once = False
