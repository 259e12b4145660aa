"""Writes a call of attention with a body as a Triton kernel."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.gpu.attention.forward import write_forward
from mlirc.lowering.gpu.attention.gradients import write_key_gradients, write_query_gradient
from mlirc.lowering.gpu.attention.text import blocks_of, flex_text
from mlirc.lowering.gpu.attention.tiling import FlexTiling, choose_tiling, width
from mlirc.lowering.gpu.kernel import TritonKernel, finished
from mlirc.lowering.kernel.flex_attention import FORWARD, KEYS, read_problem
from mlirc.lowering.target import GpuTarget


def flex_kernel(
    call: Any, callee: str, name: str, gpu: GpuTarget, aligned: Iterable[int], tiling: FlexTiling | None = None
) -> TritonKernel:
    """The kernel of a call. Raises UnsupportedKernelOp for what has none."""
    problem = read_problem(call, callee)
    tiling = tiling or choose_tiling(problem, gpu)
    batch, heads, rows, columns = problem.space
    of_keys = callee == KEYS
    t = flex_text(problem, tiling, "xy" if of_keys else "yx")
    grid: Int = batch * heads * blocks_of(rows, tiling.queries)
    if callee == FORWARD:
        write_forward(t)
    elif of_keys:
        write_key_gradients(t)
        shared = problem.info("k")
        grid = shared.shape[0] * shared.shape[1] * blocks_of(columns, tiling.keys)
    else:
        write_query_gradient(t)
    heads_of = {"DBLOCK": width(problem, "q"), "EBLOCK": width(problem, "v")}
    used = {key: size for key, size in heads_of.items() if any(key in line for line in t.e.lines.text)}
    made = finished(t.e, name, problem.operands, aligned, problem.symbols, grid, used)
    return replace(made, num_stages=tiling.num_stages)
