"""Host programs with GPU work, as far as a machine without a GPU can tell: they are valid LLVM, and launch what they should."""

import re

import pytest

from mlirc.codegen.host.host_program import HostProgram
from tests.memory_level import written as written_text

CUDA = 'tensor<?x8xf32, {size = "s0, 8", device = "cuda:0"}>'
MODULE = """
func.func @graph(%x: CUDA, %i: tensor<i64>) -> CUDA attributes {mlirc.arena = "0", mlirc.device_arenas = {"cuda:0" = "32*s0"}} {
  %0 = "mlirc.slot"() {offset = "0"} : () -> CUDA
  "mlircx.run"(%x, %0) ({}) {kernel = "kernel_0", symbols = "s0", messages = ["bad {index}"], inputs = 1 : i64, label = "gather"}
    : (CUDA, CUDA) -> ()
  %1 = "mlirc.allocate"() : () -> CUDA
  "mlircx.run"(%0, %1) ({}) {kernel = "kernel_0", symbols = "s0", messages = ["bad {index}"], inputs = 1 : i64, label = "gather"}
    : (CUDA, CUDA) -> ()
  return %1 : CUDA
}
"mlirc.triton"() {sym_name = "kernel_0", source = "", signature = ["*fp32", "*fp32", "i64", "*i64"], constants = {},
                  grid = ["(s0 + 3)//4", "1", "1"], divisible = [0, 1], num_warps = 4 : i64, num_stages = 1 : i64} : () -> ()
"""


def written(text: str) -> HostProgram:
    """The host program of a module's @graph, whose text LLVM accepts."""
    return written_text(text.replace("CUDA", CUDA))


def test_a_kernel_is_launched_for_its_gpu():
    program = written(MODULE)
    assert [(k.kernel, k.device, k.link) for k in program.launched] == [("kernel_0", 0, "kernel_0@0")]
    assert program.uses_gpu and "kernel_0@0" in program.links
    assert len(re.findall(rf"@links, i64 {program.links.index('launch')}\)", program.text)) == 2


def test_each_launch_notes_failures_in_words_of_its_own():
    program = written(MODULE)
    assert program.checks == 2
    assert [site.message for site in program.sites[:3] if site.message] == ["bad {index}"] * 2


def test_what_may_be_misaligned():
    """The argument, and what ATen returns; not a slot of the arena, nor memory that was asked for."""
    program = written(MODULE)
    assert len(re.findall(rf"@links, i64 {program.links.index('align')}\)", program.text)) == 1
    made = (
        '%1 = "mlircx.aten"(%0) {op = "aten.clone.default", args = "[{\\22$\\22: 0}]", aliases = "-1"} : (CUDA) -> CUDA'
    )
    program = written(
        MODULE.replace('"mlircx.run"(%0, %1)', '"mlircx.run"(%1, %0)').replace(
            '%1 = "mlirc.allocate"() : () -> CUDA', made
        )
    )
    assert len(re.findall(rf"@links, i64 {program.links.index('align')}\)", program.text)) == 2


def test_the_program_leaves_the_gpu_on_every_way_out():
    program = written(MODULE)
    end = program.text.index("finish:")
    assert f"i64 {program.links.index('leave_device')})" in program.text[end:]


def test_the_arena_is_free_behind_its_last_use():
    """Here the second kernel, which reads the slot itself or a view of it; not the third."""
    kernel = MODULE[MODULE.index('  "mlircx.run"(%0, %1)') : MODULE.index("  return")]
    view = '  %v = "mlirc.view"(%0) {map = "d0, d1", offset = "0"} : (CUDA) -> CUDA\n'
    other = kernel.replace("(%0, %1)", "(%x, %1)")
    for first in (kernel, view + kernel.replace("(%0, %1)", "(%v, %1)")):
        program = written(MODULE.replace(kernel, first + other))
        called = [int(k) for k in re.findall(r"@links, i64 (\d+)\)", program.text)]
        order = [program.links[k] for k in called if program.links[k] in ("launch", "drop", "kernel_0@0")]
        launches = [k for k, name in enumerate(order) if name == "launch"]
        assert len(launches) == 3 and launches[1] < order.index("drop") < launches[2], order


def test_a_launch_with_other_parameters_than_its_kernel():
    with pytest.raises(ValueError, match="takes 3 parameters, and its run has 4"):
        written(MODULE.replace(', "*i64"]', "]"))


def test_a_device_that_host_programs_do_not_know():
    with pytest.raises(ValueError, match="no device 'xpu:0'"):
        written(MODULE.replace("%i: tensor<i64>", '%i: tensor<i64, {device = "xpu:0"}>'))


@pytest.mark.parametrize("rows", ["s0", "s0 + 1"])
def test_a_library_is_given_no_address_of_an_empty_slot(rows):
    """PyTorch asks the driver whose an address is, and behind an arena of no bytes it is nobody's."""
    slot = f'tensor<?x8xf32, {{size = "{rows}, 8", device = "cuda:0"}}>'
    text = f"""
func.func @graph(%x: CUDA) -> {slot} attributes {{mlirc.arena = "0", mlirc.device_arenas = {{"cuda:0" = "64*s0 + 64"}}}} {{
  %0 = "mlirc.slot"() {{offset = "32"}} : () -> {slot}
  %1 = "mlircx.aten"(%0) {{op = "aten.clone.default", args = "[{{\\22$\\22: 0}}]", aliases = "-1"}} : ({slot}) -> {slot}
  return %1 : {slot}
}}"""
    program = written(text)
    found = re.search(r"(%\S+) = icmp eq i64 %\S+, 0\n\s*(%\S+) = select i1 \1, ptr null, ptr %\S+\n", program.text)
    assert (found is not None) == (rows == "s0"), program.text
    assert found is None or f"ptr {found[2]}, i64 2" in program.text
