"""Verifies the forms that steps leave, as an observer."""

import os
from typing import Any

from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.graph.observer import Observer
from mlirc.lowering.pipeline.pass_manager import verify_forms, verify_result

EACH_STAGE = os.environ.get("MLIRC_VERIFY") == "stages"
"""Whether the form that each stage leaves is verified in full, as in tests. Otherwise the last one is, and where it is wrong, or
a pass fails, the ones before."""
PROOFS = "tried" if EACH_STAGE else "none"


class Verification(Observer):
    """Raises StageError where the import is wrong, PassError where a pass is."""

    def __init__(self, graph: AtenGraph):
        self.stages = list(graph.stages)

    def on_step(self, step: str, made: Any, seconds: float) -> None:
        if step == "import":
            verify_forms(made.module, proofs=PROOFS)
        elif step in self.stages and (EACH_STAGE or step == self.stages[-1]):
            verify_result(made.module, made.record, PROOFS)
