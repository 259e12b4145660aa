"""What Dynamo knows of a compilation beside the graph: why it compiles again, and the guards that it made."""

from collections.abc import Callable
from types import CodeType
from typing import Any

from mlirc.codegen.abi.reach import Missing, reach
from mlirc.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Compilation:
    """What Dynamo tells of its compilations.

    reason    why the function that is compiled now is compiled again, or None
    guarded   of a compile id, once Dynamo is done: the function's code, and its guards as text; None where there are none
    """

    reason: Callable[[], str | None]
    guarded: Callable[[Any], tuple[CodeType, str] | None]


@reach("compilation", instead="captures have neither guards nor the reasons of recompilations")
def compilation() -> Compilation:
    """Asks Dynamo."""
    from torch._dynamo.convert_frame import input_codes
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list
    from torch._dynamo.utils import get_metrics_context

    def reason() -> str | None:
        found = get_metrics_context()._metrics.get("recompile_reason")
        return None if found is None else str(found)

    def guarded(compile_id: Any) -> tuple[CodeType, str] | None:
        for seen in reversed(input_codes.seen):
            code = seen()
            if code is None:
                continue
            for entry in _debug_get_cache_entry_list(code):
                if entry.compile_id == compile_id:
                    return code, str(entry.guard_manager)
        return None

    def nothing() -> None: ...

    if _debug_get_cache_entry_list(nothing.__code__) != [] or not isinstance(input_codes.seen, list):
        raise Missing("it knows of a function that nobody compiled")
    if not isinstance(get_metrics_context()._metrics, dict):
        raise Missing("its metrics are no dictionary")
    return Compilation(reason, guarded)
