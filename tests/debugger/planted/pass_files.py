"""Passes that are wrong, slow or never end: each a file for `--import`, by the name that it registers."""

PASSES = {
    "hang": """
from dataclasses import dataclass
from mlirc.passes import register


@register
@dataclass(frozen=True)
class Hang:
    "Never ends where there is an exponential."

    name = "hang"

    def run(self, function, ledger):
        for op in function.regions[0].blocks[0].operations:
            while op.operation.name == "mlirc.exp" and ledger.allows(self.name, op):
                pass
""",
    "merge-draws": """
from dataclasses import dataclass
from mlirc.passes import register


@register
@dataclass(frozen=True)
class MergeDraws:
    "Two calls that draw random numbers become one."

    name = "merge-draws"

    def run(self, function, ledger):
        draws = [op for op in function.regions[0].blocks[0].operations if op.operation.name == "mlircx.aten_effect"]
        for op in draws[1:]:
            if ledger.allows(self.name, op):
                for old, new in zip(op.results, draws[0].results, strict=True):
                    old.replace_all_uses_with(new)
                op.operation.erase()
""",
    "narrow-rsqrt": """
from dataclasses import dataclass

import torch

from mlirc.ir import ir
from mlirc.passes import GraphBuilder, register


@register
@dataclass(frozen=True)
class NarrowRsqrt:
    "Rounds to bfloat16 on the way: nothing is wrong but the last bits."

    name = "narrow-rsqrt"

    def run(self, function, ledger):
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name == "mlirc.rsqrt" and ledger.allows(self.name, op):
                with ir.InsertionPoint.after(op.operation), op.location:
                    narrow = GraphBuilder().cast(op.results[0], torch.bfloat16)
                    wide = GraphBuilder().cast(narrow, torch.float32)
                op.results[0].replace_all_uses_except(wide, narrow.owner.operation)
""",
    "break-types": """
from dataclasses import dataclass
from mlirc.ir import ir
from mlirc.passes import register


@register
@dataclass(frozen=True)
class BreakTypes:
    "A kernel of another size than its results."

    name = "break-types"

    def run(self, function, ledger):
        for op in function.regions[0].blocks[0].operations:
            if op.operation.name == "mlircx.kernel" and ledger.allows(self.name, op):
                if "exp" in ir.StringAttr(op.attributes["label"]).value:
                    op.attributes["parallel"] = ir.StringAttr.get("7, 6")
""",
    "slow-down": """
from dataclasses import dataclass
from mlirc.passes import GraphBuilder, register
from mlirc.ir import ir


@register
@dataclass(frozen=True)
class SlowDown:
    "Arithmetic that changes nothing, for each exponential."

    name = "slow-down"

    def run(self, function, ledger):
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name == "mlirc.neg" and ledger.allows(self.name, op):
                with ir.InsertionPoint.after(op.operation), op.location:
                    value = op.results[0]
                    first = GraphBuilder().tan(value)
                    for _ in range(400):
                        value = GraphBuilder().tan(first if value == op.results[0] else value)
                    total = GraphBuilder().add(op.results[0], GraphBuilder().mul(value, 0.0))
                op.results[0].replace_all_uses_except(total, [first.owner.operation, total.owner.operation])
""",
}
