"""Says that AOTAutograd lost a result of the graph that it traces.

    x.mul_(2)  # asks for a gradient: the graph returns its new values ahead of the results
    buffer.add_(1)  # asks for none: the graph writes to it
    return x.sin(), buffer  # the graph returned here is (new x, buffer, buffer), and the sine is gone

Where a graph writes to an input that it returns, AOTAutograd gives that input for the result; it counts the results from the first
output on (graph_capture_wrappers.py, PyTorch 2.13), and not behind the new values of inputs. Traced without writes in the graph
(keep_inference_input_mutations), all is right.
"""

from typing import Any

from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext


def loses_results() -> bool:
    """Whether the graph that is being compiled lacks a result. Where AOTAutograd's metadata is not as known, none is seen to."""
    tracing = TracingContext.try_get()
    metadata: Any = getattr(tracing, "fw_metadata", None)
    inputs = getattr(metadata, "input_info", ())
    if not getattr(metadata, "num_mutated_inp_runtime_indices", 0):
        return False
    bases = [
        getattr(info, "base_idx", None)
        for info in getattr(metadata, "output_info", ())
        if getattr(getattr(info, "output_type", None), "name", "") == "is_input"
    ]
    written = [getattr(getattr(info, "mutation_type", None), "name", "") == "MUTATED_IN_GRAPH" for info in inputs]
    return any(isinstance(k, int) and written[k] for k in bases)
