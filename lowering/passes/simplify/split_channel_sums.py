"""split-channel-sums: a sum over pixels and few channels of images that lie channels last goes over the pixels first."""

from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import Int, parse_numbers
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.pipeline.ledger import Ledger

RUN = 64  # elements that lie side by side: a row of so many is read well as it is
FEWEST = 16  # elements of a channel: for fewer another kernel is not worth it


@dataclass(frozen=True)
class SplitChannelSums:
    """Sum the pixels of each channel, then the channels of each group, where groups lie side by side within a pixel.

    before:  %0 = "mlirc.sum"(%x) {dims = "2, 3, 4"}                 of groups x channels of a group x rows x columns, channels innermost:
                                    (tensor<2x32x8x64x64xf32, {stride = "1048576, 8, 1, 16384, 256"}>) -> tensor<2x32x1x1x1xf32>
    after:   %1 = "mlirc.sum"(%x) {dims = "3, 4"} : ... -> tensor<2x32x8x1x1xf32>
             %0 = "mlirc.sum"(%1) {dims = "2"} : ... -> tensor<2x32x1x1x1xf32>

    The first sum reads memory in its order, all channels side by side; a row of it is 8 elements here and 8 there. A group
    norm of 64 channels in 8 groups, 64 x 64 pixels, with the SiLU behind it took 5.5 ms of one thread before, and 1.1 after.
    SHORT RUNS    on a CPU; what is summed lies in runs of fewer than 64 elements, with others that stay between them; at least
                  16 runs, or as many as only a call says, are summed
    """

    name = "split-channel-sums"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name != "mlirc.sum" or info_of(op.operands[0]).device != "cpu":
                continue
            info = info_of(op.operands[0])
            dims = parse_numbers(attribute_value(op.attributes["dims"]))
            found = apart(info, dims)
            if found is None:
                continue
            first, run, runs = found
            fits = run < RUN and (not isinstance(runs, int) or runs >= FEWEST)
            numbers = {"run": run, "most_of_run": RUN - 1, "runs": runs, "least_runs": FEWEST}
            ledger.record(self.name, "split", "sum", "SHORT RUNS", fits, op, **numbers)
            if fits and ledger.allows(self.name, op):
                with ir.InsertionPoint(op), op.location:
                    split(op, first, dims)


def apart(info: TensorInfo, dims: tuple[int, ...]) -> tuple[list[int], int, int | str] | None:
    """Takes the dimensions of a sum apart: those that lie outside one that stays, how many elements lie side by side in the others, and
    how many such runs are summed. None where they have no such order.
    """
    strides = {d: s for d, s in enumerate(info.stride) if info.shape[d] != 1}
    summed = [d for d in dims if d in strides]
    kept = [s for d, s in strides.items() if d not in dims and isinstance(s, int) and s > 0]
    known = {d: s for d in summed if isinstance(s := strides[d], int) and isinstance(info.shape[d], int)}
    inner = sorted((d for d in known if all(known[d] < s for s in kept)), key=lambda d: known[d]) if kept else []
    first = [d for d in summed if d not in inner]
    run: Int = 1
    for d in inner:
        if known[d] != run:
            return None
        run = run * info.shape[d]
    runs = symbols.product(info.shape[d] for d in first)
    return (
        (first, run, runs if isinstance(runs, int) else "symbolic")
        if first and inner and isinstance(run, int)
        else None
    )


def split(op: Any, first: list[int], dims: tuple[int, ...]) -> None:
    """Two sums in place of one, at the insertion point."""
    out = info_of(op.results[0])
    build = GraphBuilder(out)
    keepdim = bool(attribute_value(op.attributes["keepdim"]))
    total = build.reduce("sum", op.operands[0], first, keepdim=True, dtype=out.dtype)
    total = build.reduce("sum", total, dims if not keepdim else [d for d in dims if d not in first], keepdim, out.dtype)
    op.results[0].replace_all_uses_with(total)
    op.operation.erase()
