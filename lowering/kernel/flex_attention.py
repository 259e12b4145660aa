"""Describes a call of attention with a body: what each operand is, and the body's values."""

from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.kernel.nodes import Kernel, Node, read_body, string_attribute

FORWARD, QUERIES, KEYS = "flex_attention", "flex_attention_query_gradient", "flex_attention_key_gradients"
TENSORS = {FORWARD: ("q", "k", "v"), **dict.fromkeys((QUERIES, KEYS), ("q", "k", "v", "dout", "lse", "delta"))}
RESULTS = {FORWARD: ("out", "lse_out", "largest"), QUERIES: ("dq",), KEYS: ("dk", "dv")}


@dataclass(eq=False)
class FlexProblem:
    """A call of attention with a body: its operands, sizes, block mask and body.

    operands  of the call, results last; `place` has the number of each by its name
    space     [B, H, L, S]
    lists     the names of counts and indices, and whether mask_mod is asked within: partial blocks, then full ones
    rows      queries of a block of the mask, and keys: columns
    body      reads scores as operand number len(operands), slopes as the next
    changed   the scores after score_mod; `seen`, of mask_mod; `slopes` gives the gradient of the scores, of gradients
    """

    name: str
    operands: list[TensorInfo]
    place: dict[str, int]
    space: tuple[Int, ...]
    lists: list[tuple[str, str, bool]]
    rows: int
    columns: int
    scale: float
    body: Kernel

    def info(self, name: str) -> TensorInfo:
        return self.operands[self.place[name]]

    @property
    def changed(self) -> Node:
        return self.body.outputs[0].node

    @property
    def seen(self) -> Node:
        return self.body.outputs[1].node

    @property
    def gradient(self) -> Node:
        return self.body.outputs[2].node

    def reads(self, virtual: int) -> list[Node]:
        """The reads of scores (0) or slopes (1)."""
        number = len(self.operands) + virtual
        return [n for n in self.body.nodes if n.kind == "read" and n.access.operand == number]

    @property
    def is_plain(self) -> bool:
        """Whether score_mod changes nothing, and nothing else reads the scores."""
        reads = self.reads(0)
        return self.changed in reads and not any(x in reads for n in self.body.nodes for x in n.operands)

    @property
    def group(self) -> Int:
        """Heads of the query that share one of the keys'."""
        return ratio(self.space[1], self.info("k").shape[1])

    @property
    def one_batch(self) -> bool:
        """Whether there is one batch of keys for all."""
        return self.info("k").shape[0] == 1 and self.space[0] != 1

    @property
    def symbols(self) -> list[str]:
        found = set(self.body.symbols)
        for value in (*self.space, *(n for info in self.operands for n in (*info.shape, *info.stride))):
            found |= symbols.free_symbols(value)
        return sorted(found)


def ratio(heads: Int, shared: Int) -> Int:
    return 1 if heads == shared else symbols.floordiv(heads, shared)


def read_problem(op: Any, name: str) -> FlexProblem:
    """The problem of an op of that name, or of a call of one. Raises UnsupportedKernelOp for a body that is none."""
    operands = [info_of(x) for x in (*op.operands, *op.results)]
    inputs = attribute_value(op.attributes["inputs"]) if "inputs" in op.attributes else len(op.operands)
    full = attribute_value(op.attributes["full"])
    lists = [("counts", "indices", True), ("full_counts", "full_indices", False)][: 1 + full]
    names = [*TENSORS[name], *(part for counts, indices, _ in lists for part in (counts, indices))]
    place = {part: k for k, part in enumerate(names)}
    place |= {part: inputs + k for k, part in enumerate(RESULTS[name]) if inputs + k < len(operands)}
    space = symbols.parse_list(string_attribute(op, "parallel"))
    virtual = 1 if name == FORWARD else 2
    wide = TensorInfo(torch.float32, tuple(space), device=operands[0].device)
    made = [wide, replace_dtype(wide, torch.bool), wide][: 1 + virtual]
    places = [*range(len(operands), len(operands) + virtual), *range(len(names), inputs)]
    body = read_body(op, [*operands, *[wide] * virtual, *made], places)
    rows, columns = (attribute_value(op.attributes[n]) for n in ("rows", "columns"))
    scale = attribute_value(op.attributes["scale"])
    return FlexProblem(name, operands, place, tuple(space), lists, rows, columns, scale, body)


def replace_dtype(info: TensorInfo, dtype: torch.dtype) -> TensorInfo:
    return TensorInfo(dtype, info.shape, device=info.device)
