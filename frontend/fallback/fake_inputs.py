"""Fake tensors, which have sizes and no memory: a program's run in eager, as all does within the mode that makes them.

A program sizes a model that way: within `FakeTensorMode` its parameters, results and gradients cost nothing. Dynamo compiles anew for inputs
of that class. Nothing guards the mode itself, in which a graph without fake inputs has fake results.

Fake tensors of Dynamo's own stand for real ones that come later. DDPOptimizer splits a graph by the buckets of gradients:

    graph(real x) -> part 1 compiled for fake x,  its first call gives fake y
                     part 2 compiled for fake y,  ...
    calls:           real x -> part 1 -> y -> part 2 -> ...
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.torch_compat.dynamo.eager_regions import eager_forward
from mlirc.frontend.torch_compat.dynamo.tracing_context import first_call_is_fake, tracing_mode
from mlirc.frontend.torch_compat.fake_mode import fake_mode_question
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor

FAKE = "an input is a fake tensor, which has no memory"
IN_MODE = "the graph is called within a FakeTensorMode"


def refuse_fake(inputs: Sequence[Any]) -> None:
    """Raises UnsupportedGraph for a program's fake tensors."""
    own = tracing_mode()
    if any(isinstance(x, FakeTensor) and x.fake_mode is not own for x in inputs):
        raise UnsupportedGraph(FAKE)


def with_modes(run: Callable, gm: GraphModule, tell: Callable[[Exception], None]) -> Callable:
    """`run`; the graph in eager within a FakeTensorMode. `tell` hears of the first such call."""
    mode = fake_mode_question()
    if mode is None:
        return run
    told: list[None] = []

    def call(*args: Any) -> Any:
        if mode() is None:
            return run(*args)
        if not told:
            told.append(None)
            tell(UnsupportedGraph(IN_MODE))
        return eager_forward(gm)(*args)

    return call


def with_fake_first_call(run: Callable, captured: Callable) -> Callable:
    """`run`; where AOTAutograd answers the first call with fake tensors, that call of `captured`, its callable."""
    if not first_call_is_fake():
        return run
    waiting = [captured]

    def call(*args: Any) -> Any:
        return waiting.pop()(*args) if waiting else run(*args)

    return call
