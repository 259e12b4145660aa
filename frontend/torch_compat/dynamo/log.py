"""Reads Dynamo's notes of its work and unwraps its functions, for mlirc.explain."""

from collections.abc import Callable
from typing import Any

from mlirc.codegen.abi.reach import needed

with needed("dynamo-log", "mlirc.explain raises an error that says so"):
    from torch._dynamo.eval_frame import OptimizedModule, innermost_fn
    from torch._dynamo.utils import compilation_time_metrics as compilation_time_metrics
    from torch._dynamo.utils import counters as counters
    from torch._dynamo.utils import graph_break_reasons as graph_break_reasons


def plain(fn: Callable) -> Callable:
    """What torch.compile was given, where `fn` is its result."""
    module: Any = fn
    return module._orig_mod if isinstance(fn, OptimizedModule) else innermost_fn(fn)
