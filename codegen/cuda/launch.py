"""GPU work in a host program: its devices and their arenas, and kernels launched from native code.

The program enters each GPU that holds tensors of the graph, asks for its current stream, and leaves it at the end. Between,
it works on the GPU that it entered last.

A kernel's parameters are slots, in this order: the address of each operand, or its value where it is a number; the symbols; the
address of its failure fields, where it has checks; the address of memory for descriptors, which kernels use one after another, or null; null.

A kernel whose check fails writes the failure to memory that host and GPU share, and traps. As in eager, the synchronization of
its stream then raises, and the process cannot use the GPU any more. The next call of the program reads the failure and names the
index. Failures that no call has read are logged when the process ends (program.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.cuda.triton_worker import SCRATCH_POINTERS
from mlirc.codegen.frame.failures import FAILURE_FIELDS, FAILURES, FailureSite
from mlirc.codegen.frame.frame import Frame, HostBuffer, Number, location_text
from mlirc.codegen.frame.gpu_calls import Launched
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.memory_ops import scratch_of
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.gpu.triton.alignment import is_foreign


def begin(frame: Frame, arenas: Mapping[str, Int]) -> None:
    """Enters the GPUs and takes their arenas. Raises IndexError at run time for an index that an earlier call noted."""
    text, gpus = frame.text, frame.gpus
    if not gpus.numbers:
        return
    text.places.append("  %guard = alloca ptr")
    text.places.append("  store ptr null, ptr %guard")
    _look_for_failures(frame)
    frame.op = "entering the GPU"
    for index in reversed(gpus.numbers):  # the first one last: it is where the program starts to work
        text.places.append(f"  %stream_at_{index} = alloca ptr")
        enter(frame, index)
        text.line(f"%stream_{index} = load ptr, ptr %stream_at_{index}")
    for index in gpus.numbers:
        bytes_ = arenas.get(f"cuda:{index}", 0)
        if isinstance(bytes_, int) and bytes_ == 0:
            text.line(f"{memory(f'cuda:{index}')} = inttoptr i64 0 to ptr")
            continue
        gpus.arenas[index] = frame.new_handle()
        _new_bytes(frame, bytes_, index, gpus.arenas[index])
        text.line(f"{memory(f'cuda:{index}')} = load ptr, ptr %scratch")
    gpus.scratch = _scratch(frame)
    for index, size in gpus.scratch.items():
        _new_bytes(frame, size, index, frame.new_handle())
        text.line(f"%scratch_{index} = load ptr, ptr %scratch")
    slots = max((len(op.operands) + len(_symbols(op)) + 1 + SCRATCH_POINTERS for op in gpus.kernels), default=0)
    if slots:
        text.places.append(f"  %cuda_slots = alloca [{slots} x i64]")
        text.places.append(f"  %cuda_parameters = alloca [{slots} x ptr]")
    for k in range(slots):  # parameter k is slot k, in all launches
        text.line(f"store ptr {frame.at('%cuda_slots', k)}, ptr {frame.at('%cuda_parameters', k)}")


def end(frame: Frame) -> None:
    """Leaves the GPUs: on every way out, also where the program entered none yet."""
    if frame.gpus.numbers:
        frame.runtime("leave_device", "%guard")


def arena_ends(block: ir.Block) -> dict[ir.Operation, list[int]]:
    """For each op the GPUs whose arenas no later op reads or writes."""
    device_of: dict[ir.Value, int] = {}  # of slots, and of views of them
    last: dict[int, ir.Operation] = {}
    for op in block.operations:
        used = [device_of.get(x) for x in op.operands]
        last |= {index: op.operation for index in used if index is not None}
        name = op.operation.name
        if name == "mlirc.slot":
            index = torch.device(info_of(op.results[0]).device).index
            used, aliases = [index], [0]
        elif name == "mlirc.view":
            aliases = [0]
        else:
            aliases = (
                symbols.parse_list(attribute_value(op.attributes["aliases"])) if "aliases" in op.attributes else []
            )
        for result, alias in zip(op.results, aliases, strict=False):
            if isinstance(alias, int) and alias >= 0 and (index := used[alias]) is not None:
                device_of[result] = index
    ends: dict[ir.Operation, list[int]] = {}
    for index, operation in last.items():
        ends.setdefault(operation, []).append(index)
    return ends


def drop_arena(frame: Frame, index: int) -> None:
    """The memory of a GPU's arena is free for what runs later."""
    if index in frame.gpus.arenas:
        frame.runtime("drop", frame.gpus.arenas[index])


def memory(device: str) -> str:
    """The start of a device's arena."""
    index = torch.device(device).index
    return "%memory" if index is None else f"%memory_{index}"


def launch(frame: Frame, op: Any) -> None:
    """A run of a kernel on a GPU."""
    text, kernel = frame.text, frame.gpus.kernels[op.operation]
    name, label = attribute_value(op.attributes["kernel"]), attribute_value(op.attributes["label"])
    index = torch.device(info_of(op.operands[len(op.operands) - 1]).device).index or 0
    launched = Launched(name, index)
    frame.gpus.launched[launched.link] = launched
    enter(frame, index)
    frame.op = f"kernel {label}"
    signature = attribute_value(kernel.attributes["signature"])
    divisible = attribute_value(kernel.attributes["divisible"])
    count = attribute_value(op.attributes["inputs"])
    slots, moved = [], []
    for k, (x, type_) in enumerate(zip(op.operands, signature, strict=False)):
        buffer = frame.values[x]
        slot = _slot(frame, buffer, type_)
        if k in divisible and isinstance(buffer, HostBuffer) and buffer.root.kind != "number" and is_foreign(x):
            aligned = _aligned(frame, slot, buffer, index)
            if k >= count:
                moved.append((slot, aligned, _bytes(frame, buffer)))
            slot = aligned
        slots.append(slot)
    slots += [f"i64 {frame.sizes.of(expr)}" for expr in _symbols(op)]
    if op.operation in frame.gpus.checks:
        slots.append(f"ptr {frame.at(text.link(FAILURES), frame.gpus.checks[op.operation])}")
    if len(slots) != len(signature):
        raise ValueError(f"kernel {name} takes {len(signature)} parameters, and its run has {len(slots)}")
    scratch = f"ptr %scratch_{index}" if scratch_of(kernel) else "ptr null"
    for k, slot in enumerate([*slots, scratch, "ptr null"]):
        text.line(f"store {slot}, ptr {frame.at('%cuda_slots', k)}")
    grid = [frame.sizes.of(symbols.parse(size)) for size in attribute_value(kernel.attributes["grid"])]
    frame.at_site()
    check(frame, frame.runtime("launch", text.link(launched.link), *grid, f"%stream_{index}", "%cuda_parameters"))
    for slot, aligned, size in moved:
        original, copy = (x.removeprefix("ptr ") for x in (slot, aligned))
        check(frame, frame.runtime("copy_memory", original, copy, size, f"%stream_{index}"))


def fixed(frame: Frame) -> dict[str, str]:
    """What `begin` leaves for launches, LLVM types by name: what a function of its own needs to make some (host/invoke.py)."""
    gpus = frame.gpus
    if not gpus.numbers:
        return {}
    names = ["%guard", *(["%cuda_slots", "%cuda_parameters"] if gpus.kernels else [])]
    names += [f"%{name}_{index}" for index in gpus.numbers for name in ("stream_at", "stream")]
    return dict.fromkeys([*names, *(f"%scratch_{index}" for index in gpus.scratch)], "ptr")


def copy_memory(frame: Frame, x: HostBuffer, y: HostBuffer) -> None:
    """Copies the bytes of x, which has no gaps and is laid out as y is, to y, on the GPU of both."""
    index = torch.device(x.info.device).index or 0
    enter(frame, index)
    frame.at_site()
    arguments = (frame.address(y), frame.address(x), _bytes(frame, x), f"%stream_{index}")
    check(frame, frame.runtime("copy_memory", *arguments))


def moves_number(op: Any) -> bool:
    """Whether a library call copies a number between the host and a GPU."""
    if attribute_value(op.attributes["callee"]) != "copy":
        return False
    x, out = map(info_of, op.operands)
    plain = x.dtype == out.dtype and not x.dtype.is_complex and x.rank == out.rank == 0
    return plain and (x.device == "cpu") != (out.device == "cpu")


def move_number(frame: Frame, op: Any) -> None:
    """Copies a number from a GPU to the host, and waits for it: what a branch or a loop asks for. Or from the host to a GPU, as it is
    now, and waits for nothing."""
    x, out = (frame.values[v] for v in op.operands)
    infos = [info_of(v) for v in op.operands]
    size = infos[0].dtype.itemsize
    index = next(torch.device(info.device).index or 0 for info in infos if info.device != "cpu")
    enter(frame, index)
    frame.at_site()
    to, source = frame.address(out), frame.address(x)
    if infos[1].device == "cpu":
        status = frame.runtime("read_memory", to, source, str(size), f"%stream_{index}")
    else:
        bits = frame.load(f"i{8 * size}", source)
        value = bits if size == 8 else frame.text.value(f"zext i{8 * size} {bits} to i64")
        status = frame.runtime("write_number", to, value, str(size), f"%stream_{index}")
    check(frame, status)


def _scratch(frame: Frame) -> dict[int, int]:
    """Bytes that a GPU's kernels get as scratch, at most, by the GPU's number."""
    found: dict[int, int] = {}
    for op, kernel in frame.gpus.kernels.items():
        programs = symbols.parse(attribute_value(kernel.attributes["grid"])[0])
        if scratch_of(kernel) and isinstance(programs, int):
            index = torch.device(info_of(op.operands[len(op.operands) - 1]).device).index or 0
            found[index] = max(found.get(index, 0), programs * scratch_of(kernel))
    return found


def enter(frame: Frame, index: int) -> None:
    """The program works on this GPU from here on."""
    if frame.gpus.current != index:
        frame.at_site()
        check(frame, frame.runtime("enter_device", str(index), "%guard", f"%stream_at_{index}"))
        frame.gpus.current = index


def check(frame: Frame, status: str) -> None:
    """Goes on where a function of cuda_runtime gave 0; what else it gave is left for the message."""
    text = frame.text
    text.line(f"store i64 {text.value(f'sext i32 {status} to i64')}, ptr %index")
    frame.check(status)


def _new_bytes(frame: Frame, size: Int, index: int, place: str) -> None:
    """Memory of the GPU, freed with the handle at `place`; its address is left in %scratch."""
    kind = (str(shim.dtype_code(torch.uint8)), *map(str, shim.device_codes(f"cuda:{index}")))
    frame.shim("aoti_torch_empty_strided", "1", frame.sizes.array([size]), frame.sizes.array([1]), *kind, place)
    frame.shim("aoti_torch_get_data_ptr", frame.load("ptr", place), "%scratch")


def _symbols(op: Any) -> Sequence[Int]:
    return symbols.parse_list(attribute_value(op.attributes["symbols"]))


def _slot(frame: Frame, x: HostBuffer | Number, type_: str) -> str:
    """A parameter: the operand's address, or where the kernel takes the value of a 0-d CPU tensor, that."""
    address = frame.address(x)
    if type_.startswith("*"):
        return f"ptr {address}"
    bits = 8 * (x.info.dtype.itemsize if isinstance(x, HostBuffer) else 8)
    value = frame.load(f"i{bits}", address)
    return f"i64 {value if bits == 64 else frame.text.value(f'zext i{bits} {value} to i64')}"


def _aligned(frame: Frame, slot: str, x: HostBuffer, index: int) -> str:
    """The operand's address, or that of a copy which begins where the kernel expects it: a caller may pass any view."""
    place = frame.new_handle()
    device = shim.device_codes(f"cuda:{index}")
    codes = (str(shim.dtype_code(torch.uint8)), *map(str, device))
    frame.at_site()
    status = frame.runtime(
        "align", slot.removeprefix("ptr "), _bytes(frame, x), *codes, place, f"%stream_{index}", "%scratch"
    )
    check(frame, status)
    return f"ptr {frame.load('ptr', '%scratch', 'aligned')}"


def _bytes(frame: Frame, x: HostBuffer) -> str:
    """The size of the memory from the operand's first element to its last, in bytes."""
    return frame.sizes.of(symbols.maximum(x.info.extent, 0) * x.info.dtype.itemsize)


def _look_for_failures(frame: Frame) -> None:
    """Writes the check for bad indices that an earlier call's kernels noted."""
    text, checks = frame.text, frame.gpus.checks
    if not checks:
        return
    first = []
    for op in checks:
        opview = op.opview
        name, location = attribute_value(opview.attributes["kernel"]), location_text(opview.location)
        first.append(
            frame.new_sites([FailureSite(name, location, m) for m in attribute_value(opview.attributes["messages"])])
        )
    sites = text.constant(f"[{len(first)} x i64] [{', '.join(f'i64 {k}' for k in first)}]")
    arguments = (text.link(FAILURES), str(len(first)), sites, "%site", "%index", "%size")
    frame.branch(text.value(f"icmp ne i32 {frame.runtime('find_failure', *arguments)}, 0"), frame.exit)


assert FAILURE_FIELDS == 3  # as find_failure of cuda/runtime.py has it
