"""Says that a backward graph leaves what was saved for it as it is.

AOTAutograd lists the saved tensors that a backward graph may overwrite ("donated buffers"), and refuses retain_graph=True and
create_graph=True where the list has one and the graph was compiled before its first run, as under symbolic sizes. No graph of
ours overwrites them. Where the list is made, AOTAutograd refuses as it does under `aot_eager`.

Making the list fails in torch 2.11 where a graph has effects, whose tokens it does not count, and its last result is a size.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from mlirc.codegen.abi.reach import reach
from mlirc.frontend.torch_compat.aot_autograd.replaced_function import replacing


def keeping_saved() -> AbstractContextManager[None]:
    """Within, AOTAutograd's lists are empty."""
    around = no_donated_buffers()
    return nullcontext() if around is None else around()


@reach(
    "donated-buffers",
    instead="a graph that was compiled before its first run has its gradient once, as under aot_eager",
)
def no_donated_buffers() -> Callable[[], AbstractContextManager[None]]:
    import torch._dynamo  # noqa: F401  # imports the next one in its order
    from torch._functorch._aot_autograd import graph_compile

    return replacing(graph_compile, "collect_bw_donated_buffer_idxs", lambda plain: lambda *graphs: [])
