"""release-early: reorders ops so that large tensors have their last use, and are freed, as early as possible."""

from dataclasses import dataclass
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.analysis.liveness import Liveness, byte_size, liveness
from mlirc.lowering.module.forms import LIBRARY
from mlirc.lowering.pipeline.ledger import Ledger

MOVABLE = {"mlircx.kernel", *LIBRARY}  # they read, and write memory of their own
FIXED = {"mlirc.assign", "mlircx.aten_effect"}  # they may overwrite what others read


@dataclass(frozen=True)
class ReleaseEarly:
    """In a graph that frees its arguments as it goes (`mlirc.consumes`), move the last use of a large tensor as early as possible.

    before:  %dx = "mlirc.matmul"(%dy, %w)      : tensor<12608x3072xbf16>      as autograd has it
             %dw = "mlirc.matmul"(%dy as 768x12608, %saved) : tensor<768x3072xbf16>
    after:   %dw, %dx: %saved, 77 MB, is released before there is %dx

    LESS MEMORY  its results are smaller than what it is the last to use, by `least` bytes: from its new place to its old one
                 less is in use than before. It stays behind whatever else uses that, and behind calls with effects
    """

    name = "release-early"
    takes = "kernel"
    least: int = 1 << 20

    def run(self, function: Any, ledger: Ledger) -> None:
        if "mlirc.consumes" not in function.attributes:
            return
        order = _Order(liveness(function))
        for position, name in enumerate(order.found.names):
            place, saved = order.earliest(position, self.least) if name in MOVABLE else (None, 0)
            op = order.found.ops[position]
            if place is None or not ledger.allows(self.name, op):
                continue
            taken = order.move(position, place)
            ledger.record(self.name, "move", label(op), "LESS MEMORY", taken, op, bytes=saved)
        block = function.regions[0].blocks[0]
        for position in order.positions:
            block.append(order.found.ops[position].operation)


class _Order:
    """An order of the ops of `found`: `positions` are their numbers."""

    def __init__(self, found: Liveness):
        self.found = found
        self.positions = list(range(len(found.ops)))
        self.made_at = {x: k for k, op in enumerate(found.ops) for x in op.results}

    def earliest(self, position: int, least: int) -> tuple[int | None, int]:
        """The first place to which the op can move so that at least `least` fewer bytes are in use from there on, and that number."""
        found, op = self.found, self.found.ops[position]
        place = {k: place for place, k in enumerate(self.positions)}
        behind = [k for k, name in enumerate(found.names[:position]) if name in FIXED]
        behind += [k for k in self.sources(position) if found.names[k] != "mlirc.view"]
        first = 1 + max((place[k] for k in behind), default=-1)
        used = dict.fromkeys(found.buffer_of[x] for x in op.operands if x in found.buffer_of)
        free_from = {
            b: 1 + max((place[k] for k in b.touches if k != position), default=-1) for b in used if b.end == position
        }
        for candidate in sorted({first, *(p for p in free_from.values() if p > first)}):
            less = [byte_size(info_of(b.value)) for b, p in free_from.items() if p <= candidate]
            more = [byte_size(info_of(x)) for x in op.results]
            if not all(isinstance(n, int) for n in (*less, *more)):
                break
            saved = sum(less, start=0) - sum(more, start=0)
            if isinstance(saved, int) and saved >= least:
                return candidate, saved
        return None, 0

    def sources(self, position: int) -> set[int]:
        """What makes the op's operands, and of the views among that, what they look into."""
        made: set[int] = set()
        waiting = [position]
        while waiting:
            operands = self.found.ops[waiting.pop()].operands
            new = {self.made_at[x] for x in operands if x in self.made_at} - made
            made |= new
            waiting += [k for k in new if self.found.names[k] == "mlirc.view"]
        return made

    def move(self, position: int, place: int) -> bool:
        """Puts the op there, and before it the views that it reads. Whether anything but views was in between."""
        between = self.positions[place : self.positions.index(position)]
        views = [k for k in between if k in self.sources(position) and self.found.names[k] == "mlirc.view"]
        if all(self.found.names[k] == "mlirc.view" for k in between):
            return False
        group = [*views, position]
        self.positions = [k for k in self.positions if k not in group]
        self.positions[place:place] = group
        return True


def label(op: Any) -> str:
    return ir.StringAttr(op.attributes["label"]).value if "label" in op.attributes else op.operation.name[6:]
