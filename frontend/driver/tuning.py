"""Measures kernels on a GPU, in the modes that do, as an observer."""

from dataclasses import asdict
from typing import Any

from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.tuning import autotune
from mlirc.frontend.driver.timing import timed
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.graph.observer import Observer
from mlirc.frontend.importer.sizes import size_hints


class Tuning(Observer):
    """Measures the alternatives of passes while they run, and those of the finished kernels after the last pass."""

    def __init__(self, graph: AtenGraph, folder: CacheFolder | None):
        self.graph, self.folder = graph, folder
        self.matmuls: Any = None

    def on_step(self, step: str, made: Any, seconds: float) -> None:
        if step == "import" and autotune.on_gpu(made.module):
            self._measure_matmuls(made)
        elif step == "lower" and self.matmuls is not None:
            self._tune(made.module)

    def _measure_matmuls(self, lowering: Any) -> None:
        from mlirc.codegen.tuning.matmul_tuning import PASS, MatmulTuning

        self.matmuls = MatmulTuning(self.graph.options.tune_seconds, self.folder)
        lowering.given[PASS] = {"chooser": self.matmuls}

    def _tune(self, module: Any) -> None:
        from mlirc.codegen.tuning.device import TuningDevice

        graph, report, matmuls = self.graph, self.graph.report, self.matmuls
        left = max(graph.options.tune_seconds - matmuls.spent, 0)
        with timed(report, "tune"):
            found = autotune.tune(module, TuningDevice, size_hints(graph.gm), left, self.folder)
        report.seconds["tune"] += matmuls.spent
        report.tuned = [asdict(x) for x in [*matmuls.found, *found]]
