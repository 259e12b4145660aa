"""Ops with regions in a host program: branches and loops of its own, in which the regions' functions stand.

    while_loop     copies of where the results begin, into their buffers      scan     the same
                   head:  @condition; br i1 %goes_on, body, end                        head:  br i1 (%i < length), body, end
                   body:  @body; br head                                               body:  @body on parts at %i; br head
                   end:                                                                end:

A region's function writes to the buffers that it is given, so that nothing is copied between two runs of a body. Tensor handles
that it made are freed before the next one. What is known of sizes and addresses in a region is forgotten behind it.

Buffers may be on GPUs. What the program branches on never is: a number that a GPU computes is copied to the host by a call before.
"""

from collections.abc import Callable, Sequence
from typing import Any

from mlirc.codegen.frame.frame import Frame, HostBuffer, HostRoot
from mlirc.dialects.control_flow.region_ops import TRUTH, RegionCall, read_call, region_functions
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of

WriteOps = Callable[[Any], None]
"""Writes the ops of a region's function, whose arguments have values."""


def write_regions(frame: Frame, op: Any, write_ops: WriteOps) -> None:
    call, around = read_call(op), frame.arenas
    assert call.arenas
    given, results = ([located(frame, x) for x in values] for values in (call.given, call.results))
    frame.arenas = {info_of(x).device: frame.address(frame.values[x]) for x in call.arenas}
    writer = RegionWriter(frame, call, write_ops)
    if op.operation.name == "mlircx.cond":
        writer.branch(given, results)
    else:
        for start, memory in zip(given[: call.carried], results[: call.carried], strict=True):
            copy_memory(frame, start, memory)
        if op.operation.name == "mlircx.scan_loop":
            writer.scan(given[call.carried :], results)
        else:
            writer.loop(given[call.carried :], results)
    frame.arenas = around


def located(frame: Frame, x: Any) -> HostBuffer:
    """The buffer of a value as memory whose address is known."""
    buffer = frame.values[x]
    if not isinstance(buffer, HostBuffer):
        raise ValueError(f"{frame.op} at {frame.location or '?'} takes tensors, not a number")
    return at_address(buffer.info, frame.address(buffer))


def at_address(info: TensorInfo, address: str) -> HostBuffer:
    return HostBuffer(info, HostRoot("arena", address=address))


def copy_memory(frame: Frame, x: HostBuffer, y: HostBuffer) -> None:
    """The bytes of x, which has no gaps and is laid out as y is, to y."""
    if x.info.device != "cpu":
        from mlirc.codegen.cuda.launch import copy_memory as copy_on_gpu

        copy_on_gpu(frame, x, y)
        return
    bytes_ = frame.sizes.of(x.info.extent * x.info.dtype.itemsize)
    copy = frame.text.call_text(
        "llvm.memcpy.p0.p0.i64", "void (ptr, ptr, i64, i1)", y.root.address, x.root.address, bytes_, "false"
    )
    frame.text.line(copy)


class RegionWriter:
    """Writes the blocks of one op. Buffers come as `located` gives them."""

    def __init__(self, frame: Frame, call: RegionCall, write_ops: WriteOps):
        self.frame, self.call, self.write_ops = frame, call, write_ops
        self.functions = region_functions(call.op)

    def branch(self, given: Sequence[HostBuffer], results: Sequence[HostBuffer]) -> None:
        true, false = self.functions
        holds, does_not, end = self.labels("true", "false", "end")
        self.jump_if(given[0].root.address, holds, does_not)
        for label, function in ((holds, true), (does_not, false)):
            self.frame.text.block(label)
            self.function(function, [*given[1:], *results])
            self.frame.text.line(f"br label %{end}")
        self.frame.text.block(end)

    def loop(self, others: Sequence[HostBuffer], results: Sequence[HostBuffer]) -> None:
        condition, body = self.functions
        text = self.frame.text
        goes_on = at_address(TRUTH, text.place("i64", "goes_on"))
        head, inside, end = self.labels("head", "body", "end")
        text.line(f"br label %{head}")
        text.block(head)
        self.function(condition, [*results, *others, goes_on])
        self.jump_if(goes_on.root.address, inside, end)
        text.block(inside)
        self.function(body, [*results, *others])
        text.line(f"br label %{head}")
        text.block(end)

    def scan(self, others: Sequence[HostBuffer], results: Sequence[HostBuffer]) -> None:
        (body,) = self.functions
        text, sizes, carried, scanned = self.frame.text, self.frame.sizes, self.call.carried, self.call.scanned
        length, index = sizes.of(self.call.length), text.place("i64", "index")
        sliced = [*others[:scanned], *results[carried:]]
        steps = [sizes.of(step(x.info)) for x in sliced]
        text.line(f"store i64 0, ptr {index}")
        head, inside, end = self.labels("head", "body", "end")
        text.line(f"br label %{head}")
        text.block(head)
        i = self.frame.load("i64", index)
        text.line(f"br i1 {text.value(f'icmp slt i64 {i}, {length}')}, label %{inside}, label %{end}")
        text.block(inside)
        infos = self.call.arguments()[0]
        kinds = [*infos[carried : carried + scanned], *infos[len(infos) - len(results) + carried :]]
        parts = []
        for x, info, by in zip(sliced, kinds, steps, strict=True):
            offset = text.value(f"mul i64 {i}, {by}")
            parts.append(at_address(info, text.value(f"getelementptr i8, ptr {x.root.address}, i64 {offset}", "part")))
        self.function(body, [*results[:carried], *parts[:scanned], *others[scanned:], *parts[scanned:]])
        text.line(f"store i64 {text.value(f'add i64 {i}, 1')}, ptr {index}")
        text.line(f"br label %{head}")
        text.block(end)

    # ---- blocks

    def labels(self, *names: str) -> list[str]:
        return [self.frame.text.fresh(name) for name in names]

    def jump_if(self, address: str, then: str, otherwise: str) -> None:
        holds = self.frame.text.value(f"icmp ne i8 {self.frame.load('i8', address)}, 0")
        self.frame.text.line(f"br i1 {holds}, label %{then}, label %{otherwise}")

    def function(self, function: Any, buffers: Sequence[HostBuffer]) -> None:
        """A region's function at this place, on these buffers."""
        frame = self.frame
        for argument, buffer in zip(function.regions[0].blocks[0].arguments, buffers, strict=True):
            frame.values[argument] = at_address(info_of(argument), buffer.root.address)
        with frame.scope():
            self.write_ops(function)


def step(info: TensorInfo) -> Int:
    """Bytes from one index of the first dimension to the next."""
    return info.stride[0] * info.dtype.itemsize
