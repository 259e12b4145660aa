"""Measures kernels on a GPU, in the modes that do, as an observer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from mlirc.codegen.cache.folder import CacheFolder
from mlirc.frontend.driver.aten_graph import AtenGraph
from mlirc.frontend.driver.observer import Observer
from mlirc.frontend.driver.timing import timed
from mlirc.frontend.importer.sizes import size_hints


class Tuning(Observer):
    """What passes choose between is measured while they run, and the kernels that come out, after the last one."""

    def __init__(self, graph: AtenGraph, folder: CacheFolder | None):
        self.graph, self.folder = graph, folder
        self.products: Any = None

    @contextmanager
    def around(self, step: str, *given: Any) -> Iterator[None]:
        from mlirc.codegen.tuning import autotune

        if step not in self.graph.stages or not autotune.on_gpu(given[0].module):
            yield
            return
        from mlirc.codegen.tuning.matmul_tuning import PASS, ProductTuning

        if self.products is None:
            self.products = ProductTuning(self.graph.options.tune_seconds, self.folder)
        given[0].given[PASS] = {"chooser": self.products}
        yield
        if step == "lower":
            self._tune(given[0].module)

    def _tune(self, module: Any) -> None:
        from mlirc.codegen.tuning import autotune
        from mlirc.codegen.tuning.device import TuningDevice

        graph, report, products = self.graph, self.graph.report, self.products
        left = max(graph.options.tune_seconds - products.spent, 0)
        with timed(report, "tune"):
            found = autotune.tune(module, TuningDevice, size_hints(graph.gm), left, self.folder)
        report.seconds["tune"] += products.spent
        report.tuned = [asdict(x) for x in [*products.found, *found]]
