"""Products by two groups of warps in turns: what they write, checked by their own arithmetic, and machine code for sm_90."""

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mlirc.codegen.cuda.triton_worker import MOST_SHARED, compile_one
from mlirc.dialects.core.kernel_forms import broadcast_map
from tests.kernel_runner import info
from tests.triton.runner import TritonKernel

bf16 = torch.bfloat16


def product(m: int, n: int, k: int, w: str, residual: bool = False) -> TritonKernel:
    """gelu(x @ w + bias), perhaps with a residual added, for a GPU with 132 multiprocessors."""
    infos = [info(bf16, f"{m}, {k}"), info(bf16, f"{k}, {n}", w), info(bf16, f"{n}")]
    infos += [info(bf16, f"{m}, {n}")] if residual else []

    def build(b, x, w, bias, *more):
        row, column, at = b.dims
        total = b.reduce("sum", b.mul(b.read(x, (row, at)), b.read(w, (at, column))))
        value = b.gelu(b.add(total, b.read(bias, broadcast_map(bias, (row, column)))))
        value = b.add(value, b.read(more[0], (row, column))) if residual else value
        return [(value, (row, column), info(bf16, f"{m}, {n}"))]

    return TritonKernel(infos, f"{m}, {n}", f"{k}", build, aligned=True)


@pytest.mark.parametrize(("m", "n", "k"), [(8192, 3072, 768), (4100, 5000, 776), (2056, 20008, 64)])
def test_each_tile_of_the_result_is_written_once(m, n, k):
    source = product(m, n, k, f"1, {k}").source
    text = re.search(r"def place\(tile\):\n(?:    .*\n)+", source)
    tiles = re.findall(r"range\(gl.program_id\(0\).*, (\d+),", source)
    assert text and len(tiles) == 2 and tiles[0] == tiles[1]
    names: dict[str, Any] = {"gl": SimpleNamespace(minimum=min)}
    exec(text[0], names)
    blocks = Counter(names["place"](tile) for tile in range(int(tiles[0])))
    assert blocks == {(y, x): 1 for y in range(0, m, 128) for x in range(0, n, 128)}


def test_what_is_not_written_in_turns():
    kernels = [product(8192, 3072, 768, "1, 768"), product(8192, 3072, 768, "1, 768", residual=True)]
    kernels += [product(8192, 3074, 768, "1, 768"), product(1024, 1024, 768, "1, 768")]  # unaligned rows; few tiles
    assert ["gluon" in x.source for x in kernels] == [True, False, False, False]


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    "kernel",
    [
        product(8192, 3072, 768, "3072, 1"),
        product(4100, 5000, 776, "1, 776"),
    ],
)
def test_machine_code(kernel):
    made = kernel.made
    fields = {name: getattr(made, name) for name in ("source", "num_warps", "num_stages", "scratch")}
    fields |= {"name": "kernel_0", "signature": made.signature, "constants": list(made.constants.items())}
    code = compile_one(fields | {"divisible": list(range(len(made.signature)))}, 90)
    assert code["num_warps"] == 12 and 3 * 2**16 < code["shared"] <= MOST_SHARED[90]
