"""The benchmarks' models as subjects. They stand in a checkout of the repository, not in the installed package."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlirc.measurement.error import CallResults
from mlirc.measurement.subjects import FunctionSubject

CHECKOUT = Path(__file__).parents[2]


class NoModels(ValueError):
    """Models that are not there: no checkout, no transformers, or another name."""


def model_subjects(
    models: Sequence[str], ways: Sequence[str], dtypes: Sequence[str], small: bool
) -> list[FunctionSubject]:
    """A subject for each model, way and dtype; "all" means all models. Raises NoModels."""
    from mlirc.lowering.module.nearest import unknown

    if not (CHECKOUT / "benchmarks" / "models.py").is_file():
        raise NoModels("--models are those of the repository's benchmarks: run from a checkout, or give SCRIPT.py")
    if str(CHECKOUT) not in sys.path:
        sys.path.append(str(CHECKOUT))
    from benchmarks.models import MODELS
    from benchmarks.setting import DTYPES, WAYS, Setting

    chosen = list(MODELS) if list(models) == ["all"] else models
    for what, given, known in (("model", chosen, MODELS), ("way", ways, WAYS), ("dtype", dtypes, DTYPES)):
        for name in given:
            if name not in known:
                raise NoModels(unknown(what, name, known))
    return [model_subject(Setting(m, way, dtype, small)) for way in ways for dtype in dtypes for m in chosen]


def model_subject(setting: Any) -> FunctionSubject:
    """Raises NoModels where transformers is missing. The model is built with the seed that it is always built with."""
    from benchmarks.setting import caller
    from benchmarks.step import reference_step, take_step

    try:
        model, module, inputs = setting.build()
    except ImportError as error:
        raise NoModels(f"{setting.model}: {error}; pip install mlirc[bench]") from error

    def step(call: Any) -> Any:
        return caller(model, module, call, inputs, setting.training)

    def results(call: Any) -> CallResults:
        return take_step(model, module, call, inputs, setting.training)

    def reference() -> CallResults:
        return reference_step(model, module, inputs, setting.training)

    return FunctionSubject(str(setting), module, step, results, reference)
