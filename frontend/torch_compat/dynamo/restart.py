"""The exceptions by which a backend makes Dynamo trace a function again."""

from mlirc.codegen.abi.reach import reach


@reach("restart", instead="a graph that Dynamo wants to trace again runs in eager")
def restart() -> type[Exception]:
    """The exception."""
    from torch._dynamo.exc import TensorifyScalarRestartAnalysis

    assert issubclass(TensorifyScalarRestartAnalysis, Exception)
    return TensorifyScalarRestartAnalysis


class Never(Exception):
    """Is raised by nobody."""


TensorifyScalarRestartAnalysis = restart() or Never
