"""How threads split a convolution: each result is one thread's, and no thread has much more than its part."""

from dataclasses import replace

import pytest
import torch

from mlirc.codegen.emit.emit import compile_module
from mlirc.dialects.core.context import context
from mlirc.lowering.cpu.convolution import winograd_choice
from mlirc.lowering.cpu.convolution.forward import ForwardWriter
from mlirc.lowering.cpu.emitter.addresses import advance, store_scratch
from mlirc.lowering.host import host_cpu
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.target import Target
from tests.lowering.cpu.convolution.test_generated_convolutions import LOWER, SHAPES, Case


def add_thread_number(writer, panel, packed, images, rows, channels):
    """In place of the sums: 1 + the number of the thread that has them."""
    c, e, b = writer.c, writer.e, writer.e.index
    text = f"arith.sitofp {b.add(e.env['thread'], e.i64(1))} : i64 to f32"
    number = e.splat(e.builder(torch.float32).emit(text, torch.float32))
    lines = b.mul(b.sub(images[1], images[0]), b.sub(rows[1], rows[0]))
    with e.each(0, b.mul(b.mul(lines, writer.of(c.columns.count)), panel.width), e.lanes) as k:
        store_scratch(e, number, advance(e, writer.sums, k))


# images, channels, tiles of filters, height and width; threads; the most of a thread, in parts of an even share
@pytest.mark.parametrize(
    "sizes, threads, most",
    [
        ((4, 256, 4, 14), 16, 1.1),  # four tiles for sixteen threads: large weights
        ((4, 512, 8, 7), 16, 1.1),  # one block
        ((1, 512, 4, 14), 16, 1.2),  # one image
        ((3, 512, 5, 9), 7, 1.5),
        ((5, 512, 3, 9), 2, 1.5),
        ((4, 24, 2, 30), 16, 1.6),  # small weights
        ((0, 512, 4, 8), 16, 1.0),
    ],
)
def test_each_thread_has_about_as_much(monkeypatch, sizes, threads, most):
    images, channels, tiles, side = sizes
    filters = tiles * host_cpu().vector_bytes // 4 * (4 if host_cpu().has_avx512 else 3)
    monkeypatch.setattr(winograd_choice, "results_of_tile", lambda sizes, target: None)
    monkeypatch.setattr(ForwardWriter, "multiply_accumulate", add_thread_number)
    monkeypatch.setitem(SHAPES, "threads", (images, filters, channels, side, side, (3, 3), (1, 1), (1, 1), (1, 1)))
    case, before = Case("transposed_convolution", "threads"), torch.get_num_threads()
    with context():
        module = case.module()
        set_target(module, Target(replace(host_cpu(), cores=0)))
        run_pipeline(module, LOWER)
        program = compile_module(module)
    try:
        torch.set_num_threads(threads)
        (made,) = program(list(case.operands))
    finally:
        torch.set_num_threads(before)
    owners = torch.bincount(made.flatten().long(), minlength=threads + 1)
    assert owners[0] == 0 and len(owners) == threads + 1
    assert owners.max() <= most * made.numel() / threads
