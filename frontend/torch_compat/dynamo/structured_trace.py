"""PyTorch's structured trace, which TORCH_TRACE=DIR switches on and tlparse reads."""

import inspect
from collections.abc import Callable

from mlirc.codegen.abi.reach import Missing, reach

Trace = Callable[[str, str], None]
"""(name, text): keeps the text as an artifact of the frame that is compiled."""


@reach("structured-trace", instead="TORCH_TRACE has nothing of mlirc in it")
def structured_trace() -> tuple[Callable[[], bool], Trace]:
    """What says whether anybody listens, and what tells it."""
    from torch._logging._internal import trace_log, trace_structured

    wanted = {"metadata_fn", "payload_fn", "expect_trace_id"}
    if missing := wanted - inspect.signature(trace_structured).parameters.keys():
        raise Missing(f"it takes no {', '.join(sorted(missing))}")

    def trace(name: str, text: str) -> None:
        # a backward graph may be compiled when no frame is
        trace_structured(
            "artifact",
            metadata_fn=lambda: {"name": name, "encoding": "string"},
            payload_fn=lambda: text,
            expect_trace_id=False,
        )

    # a handler without a folder writes nothing, or is somebody else's
    return lambda: any(getattr(x, "root_dir", None) is not None for x in trace_log.handlers), trace
