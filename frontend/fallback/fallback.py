"""Eager in place of mlirc: where anything of ours fails, a program goes on as under `aot_eager`, counted and shown.

A graph of AOTAutograd's that cannot be compiled runs in eager by itself (in_eager.py), and so does one whose first run fails
(first_run.py). A failure outside of these graphs sends the whole graph of Dynamo's to `aot_eager`. With
options={"fallback": "error"} an exception of ours is raised. Wrong options always raise.
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch.fx import GraphModule

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend import statistics
from mlirc.frontend.errors import DeviceError, MlircError, OptionError, UnsupportedGraph
from mlirc.frontend.options import Options
from mlirc.frontend.torch_compat.dynamo.eager_backend import in_eager
from mlirc.frontend.torch_compat.dynamo.restart import TensorifyScalarRestartAnalysis
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves
from mlirc.lowering.pipeline.parser import PipelineError

T = TypeVar("T")

log = logging.getLogger("mlirc")

PASSES_THROUGH = (TensorifyScalarRestartAnalysis, OptionError, PipelineError)
"""Dynamo's own way to trace a function again, and what tells a user of a wrong option."""


class NotRun(Exception):
    """A graph that was loaded without its FX graph failed at its first run, which left nothing changed."""


def reason(error: BaseException) -> str:
    """One line about an error: the message of one of ours, the type and message of any other."""
    return str(error) if isinstance(error, MlircError) else " ".join(f"{type(error).__name__}: {error}".split())


def warn(text: str) -> None:
    """A warning; a line of the log where the user has made warnings errors."""
    try:
        warnings.warn(text, stacklevel=4)
    except Warning:
        log.warning(text)


def tell(kind: str, error: BaseException) -> str:
    """Says that a graph runs in eager. Returns why. Raises what a signal handler of the user's raised."""
    raise_of_handler(error)
    why = reason(error)
    if isinstance(error, (UnsupportedGraph, DeviceError)):
        log.info("%s graph runs in eager: %s", kind, why)
    else:
        warn(f"mlirc: this {kind} graph runs in eager, as it could not be compiled: {why}")
        log.debug("why", exc_info=error)
    return why


def whole(gm: GraphModule, inputs: Sequence[Any], options: Options, error: Exception) -> Callable:
    """A graph of Dynamo's under `aot_eager`. Raises what that raises, and `error` where nothing may be run instead."""
    raise_of_handler(error)
    if options.fallback == "error":
        raise error
    compiled = in_eager(gm, inputs)
    record(kind_of(inputs), error)
    return compiled


def kind_of(inputs: Sequence[Any]) -> str:
    """What a graph of Dynamo's with these inputs is."""
    tensors = [x for x in tree_leaves(list(inputs)) if isinstance(x, torch.Tensor)]
    trains = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    return "forward" if trains else "inference"


def record(kind: str, error: BaseException) -> None:
    """Counts a graph of Dynamo's that does not run as compiled."""
    statistics.record(statistics.GraphReport(kind, fallback=tell(kind, error)))


def optional(work: Callable[..., T], *args: Any) -> T | None:
    """What `work` gives; None where it fails, which a line of the log says: nothing but time depends on it."""
    try:
        return work(*args)
    except Exception as error:
        raise_of_handler(error)
        log.info("%s failed, and is done without: %s", getattr(work, "__name__", work), reason(error))
        return None
