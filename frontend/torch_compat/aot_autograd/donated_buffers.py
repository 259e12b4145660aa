"""Says that a backward graph leaves what was saved for it as it is.

AOTAutograd lists the saved tensors that a backward graph may overwrite ("donated buffers"), and refuses retain_graph=True and
create_graph=True where the list has one and the graph was compiled before its first run, as under symbolic sizes. No graph of
ours overwrites them. Where the list is not there, AOTAutograd refuses as it does under `aot_eager`.
"""

from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext


def keep_saved() -> None:
    """Empties the list of the graph that is being compiled; all of AOTAutograd's metadata of it share one."""
    tracing = TracingContext.try_get()
    donated = getattr(getattr(tracing, "fw_metadata", None), "bw_donated_idxs", None)
    if isinstance(donated, list):
        donated.clear()
