"""Invokes in a host program: one native function for each function of the module that is invoked, written at its first call.

    define internal i32 @region_0(ptr %self, ptr %inputs, ptr %name, ptr %thread, i64 %threads, ptr %site, ptr %index, ptr %size,
                                  ptr %memory, ptr %given, i64 %symbol0, ...)

`given` holds the addresses of its arguments, `memory` is its arena, and the symbols are those that its ops speak of. Where the program
works on GPUs, it is given its arena there, `memory_0`, and what launches need (cuda/launch.py). It owns the handles that it makes, and
frees them before it returns: 0, or 1 where it failed at the site that it noted.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from mlirc.codegen.frame.frame import Frame, HostBuffer, HostRoot
from mlirc.dialects.control_flow.region_ops import nested_functions, read_call, region_functions
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import info_of

FIXED = {
    "%self": "ptr",
    "%inputs": "ptr",
    "%name": "ptr",
    "%thread": "ptr",
    "%threads": "i64",
    "%site": "ptr",
    "%index": "ptr",
    "%size": "ptr",
}
"""What every function of a host program has by these names."""

WriteOps = Callable[[Frame, Any], None]
"""Writes the ops of a function, whose arguments have values, on a frame."""


def fixed_for_gpus(frame: Frame) -> dict[str, str]:
    """What begins once and each function of a program is given, LLVM types by name, where the program uses GPUs."""
    if not frame.gpus.numbers:
        return {}
    from mlirc.codegen.cuda.launch import fixed

    return fixed(frame)


def write_invoke(frame: Frame, op: Any, write_ops: WriteOps) -> None:
    """Writes the call, and the function where this is its first call."""
    call, (function,) = read_call(op), region_functions(op)
    assert call.arenas
    name, text = function.name.value, frame.text
    if name not in text.functions:
        takes = symbols_of(function, frame.sizes.bound)
        text.functions[name] = takes, function_text(frame, function, takes, write_ops)
    takes, _ = text.functions[name]
    given = [frame.values[x] for x in (*call.given, *call.results)]
    at = text.place(f"[{max(len(given), 1)} x ptr]", "given")
    for k, x in enumerate(given):
        if not isinstance(x, HostBuffer):
            raise ValueError(f"{frame.op} at {frame.location or '?'} takes tensors, not a number")
        text.line(f"store ptr {frame.address(x)}, ptr {frame.at(at, k)}")
    memory = {info_of(x).device: frame.address(frame.values[x]) for x in call.arenas}
    arguments = [f"{kind} {x}" for x, kind in (FIXED | fixed_for_gpus(frame)).items()]
    arguments += [*(f"ptr {memory.get(device, 'null')}" for device in devices(frame)), f"ptr {at}"]
    arguments += [f"i64 {frame.sizes.bound[x]}" for x in takes]
    failed = text.value(f"call i32 @{name}({', '.join(arguments)})")
    frame.forget_site()
    frame.gpus.forget_current()
    frame.check(failed)


def devices(frame: Frame) -> list[str]:
    """The devices that tensors of the program may be on."""
    return ["cpu", *(f"cuda:{index}" for index in frame.gpus.numbers)]


def function_text(caller: Frame, function: Any, takes: list[str], write_ops: WriteOps) -> str:
    """The native function, which takes the values of these symbols."""
    frame = caller.beside()
    frame.gpus.forget_current()
    text, block = frame.text, function.regions[0].blocks[0]
    frame.sizes.bound = {x: f"%symbol{k}" for k, x in enumerate(takes)}
    text.places.append("  %scratch = alloca i64")
    everywhere = (function, *nested_functions(function))
    kernel_slots(frame, [op for one in everywhere for op in one.regions[0].blocks[0].operations])
    for k, argument in enumerate(block.arguments):
        address = frame.load("ptr", frame.at("%given", k), "address")
        frame.values[argument] = HostBuffer(info_of(argument), HostRoot("arena", address=address))
    write_ops(frame, function)
    text.line("br label %done")
    for label in ("done", "failed"):
        text.block(label)
        text.line("br label %end")
    text.block("end")
    status = text.value("phi i32 [ 0, %done ], [ 1, %failed ]", "status")
    frame.runtime("finish", "%frame", str(frame.frame_size), "null")
    text.line(f"ret i32 {status}")
    frame.finish_text()
    given = [f"{kind} {x}" for x, kind in (FIXED | fixed_for_gpus(frame)).items()]
    given += [*(f"ptr {frame.arenas[device]}" for device in devices(frame)), "ptr %given"]
    given += [f"i64 {frame.sizes.bound[x]}" for x in takes]
    return text.function(f"internal i32 @{function.name.value}({', '.join(given)})")


def symbols_of(function: Any, bound: Iterable[str]) -> list[str]:
    """The symbols among `bound` that a function, or one nested in it, mentions; sorted."""
    text = "".join(one.operation.get_asm(use_local_scope=True) for one in (function, *nested_functions(function)))
    words = set(re.findall(r"\w+", text))
    return sorted(words.intersection(bound))


def kernel_slots(frame: Frame, operations: Iterable[Any]) -> None:
    """Room for the slots of any kernel that the function runs."""
    kernels = [op for op in operations if "kernel" in op.attributes]
    if kernels:
        slots = max(len(op.operands) + len(attribute_value(op.attributes["symbols"]).split(",")) for op in kernels) + 3
        frame.text.places.append(f"  %kernel_slots = alloca [{slots} x i64]")
