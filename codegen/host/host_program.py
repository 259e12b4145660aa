"""Host program: the memory-level function of a graph as one native function, in LLVM IR text.

    ptr @graph(ptr %self, ptr %inputs)      what Python calls (METH_O): the list of inputs -> a new list of results

    with the GIL      read the inputs, take an arena
    without it        the ops in order, a few lines each: kernels, library calls, allocations; an ATen call may take it
    with the GIL      make the results, free what the frame holds, give back the arena

Blocks follow each other, but for the branches and loops of ops with regions (regions.py), and a failure leaves for the end.
native_runtime.py has what is called.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from mlirc.codegen.abi import shim
from mlirc.codegen.aten.library_routine import call_shim
from mlirc.codegen.frame.failures import FailureSite
from mlirc.codegen.frame.frame import Frame, HostBuffer, HostRoot, Number, location_text
from mlirc.codegen.frame.gpus import Gpus, gpus_of
from mlirc.codegen.host.inputs import read_inputs
from mlirc.codegen.host.invoke import kernel_slots, write_invoke
from mlirc.codegen.host.parts import HostCall, HostProgram, HostRange
from mlirc.codegen.host.ranges import ranged
from mlirc.codegen.host.regions import write_regions
from mlirc.codegen.runtime import native_runtime, result_pool
from mlirc.codegen.runtime.python_side import HANDLE_ATTRIBUTE
from mlirc.dialects.control_flow.region_ops import INVOKE, REGION_OPS, nested_functions
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_builder import read_constant
from mlirc.dialects.core.memory_ops import arenas
from mlirc.dialects.core.tensor_types import info_of


def native_signatures(gpus: Gpus) -> Mapping[str, str]:
    """Our native functions that a host program calls: LLVM types by name."""
    if not gpus.numbers:
        return native_runtime.SIGNATURES
    from mlirc.codegen.cuda import runtime as cuda_runtime
    from mlirc.codegen.libraries import cublas_runtime, cudnn_runtime

    libraries = cublas_runtime.SIGNATURES | cudnn_runtime.SIGNATURES
    return native_runtime.SIGNATURES | cuda_runtime.SIGNATURES | libraries


def gpu_launches() -> ModuleType:
    """What writes work on GPUs, loaded with the first program that uses one."""
    from mlirc.codegen.cuda import launch

    return launch


def host_program(
    function: Any, objects: Sequence[Any] = (), consume: bool = False, profile: bool = False
) -> HostProgram:
    """The host program of a lowered `func.func`; needs an entered context. ValueError for what has no place in one.
    With `profile` its ops are timed (ranges.py)."""
    gpus = gpus_of(function)
    outermost = frame = Frame(native_signatures(gpus), consume, gpus)
    calls: list[HostCall] = []
    ranges: list[HostRange] = []
    block = function.regions[0].blocks[0]
    begin(frame, function)
    dead = last_uses(block) if consume else {}
    arena_ends = gpu_launches().arena_ends(block) if gpus.numbers else {}

    def write_op(frame: Frame, op: Any) -> None:
        name = op.operation.name.rpartition(".")[2]
        frame.op, frame.location = name, location_text(op.location)
        if name in ("aten", "aten_effect"):
            from mlirc.codegen.host.aten import aten_call  # many small models call nothing

            write = lambda op=op: calls.append(aten_call(frame, op, len(calls), objects))
        elif op.operation.name == INVOKE:
            write = partial(write_invoke, frame, op, write_region)
        elif op.operation.name in REGION_OPS:
            write = partial(write_regions, frame, op, partial(write_region, frame))
        elif name in WRITERS:
            write = partial(WRITERS[name], frame, op)
        else:
            raise ValueError(f"{op.operation.name} at {frame.location or '?'} has no place in a host program")
        if profile:
            ranged(frame, op, write, ranges)
        else:
            write()

    def write_region(frame: Frame, region: Any) -> None:
        for op in list(region.regions[0].blocks[0].operations)[:-1]:  # it returns nothing
            write_op(frame, op)

    for argument in dead.pop(None, ()):
        drop_input(frame, argument)
    for op in block.operations:
        write_op(outermost, op)
        for argument in dead.get(op.operation, ()):
            drop_input(frame, argument)
        for index in arena_ends.get(op.operation, ()):
            gpu_launches().drop_arena(frame, index)
    text = frame.text
    frame.finish_text()
    module = text.module("ptr @graph(ptr %self, ptr %inputs)")
    return HostProgram(
        module,
        len(block.arguments),
        calls,
        frame.sites,
        list(text.links),
        uses_gpu=bool(gpus.numbers),
        launched=list(gpus.launched.values()),
        ready=gpus.ready,
        checks=len(gpus.checks),
        matmuls=gpus.matmuls,
        convolutions=gpus.convolutions,
        ranges=ranges,
    )


def last_uses(block: ir.Block) -> dict[ir.Operation | None, list[ir.Value]]:
    """For each op the arguments that no later op uses, also through views; under None the arguments that no op uses."""
    argument_of = {argument: argument for argument in block.arguments}
    last: dict[ir.Value, ir.Operation | None] = dict.fromkeys(block.arguments)
    for op in block.operations:
        for x in op.operands:
            if x in argument_of:
                last[argument_of[x]] = op.operation
                if op.operation.name == "mlirc.view":
                    argument_of[op.results[0]] = argument_of[x]
    uses: dict[ir.Operation | None, list[ir.Value]] = {}
    for argument, operation in last.items():
        if operation is None or operation.name != "func.return":
            uses.setdefault(operation, []).append(argument)
    return uses


def drop_input(frame: Frame, argument: ir.Value) -> None:
    x = frame.values[argument]
    if isinstance(x, HostBuffer) and x.root.frame:
        frame.runtime("drop", x.root.frame)


def begin(frame: Frame, function: Any) -> None:
    """Writes what precedes the first op: it reads inputs, binds symbols, takes an arena and releases the GIL."""
    text = frame.text
    for name in ("site", "index", "size", "scratch", "arena"):
        text.places.append(f"  %{name} = alloca i64")
    text.line("store i64 0, ptr %arena")
    text.line(f"%name = {text.call_text('PyTuple_GetItem', 'ptr (ptr, i64)', '%self', str(HANDLE_ATTRIBUTE))}")
    read_inputs(frame, function)
    bytes_ = arenas(function) if "mlirc.arena" in function.attributes else {"cpu": 0}
    if bytes_["cpu"] != 0:
        record = frame.runtime("take_arena", frame.sizes.of(bytes_["cpu"]))
        frame.branch(text.value(f"icmp eq ptr {record}, null"), frame.exit)
        text.line(f"store ptr {record}, ptr %arena")
        text.line(f"%memory = load ptr, ptr {frame.at(record, 1)}")
    else:
        text.line("%memory = inttoptr i64 0 to ptr")
    text.line(f"%thread = {text.call_text('PyEval_SaveThread', 'ptr ()')}")
    frame.exit = "failed"
    everywhere = (function, *nested_functions(function))
    operations = [op for one in everywhere for op in one.regions[0].blocks[0].operations]
    if frame.gpus.numbers:
        gpu_launches().begin(frame, bytes_)
    if any("kernel" in op.attributes for op in operations):
        frame.shim("torch_get_num_threads", "%scratch")
        text.line(f"%threads = zext i32 {frame.load('i32', '%scratch')} to i64")
        kernel_slots(frame, operations)
    elif any(op.operation.name == INVOKE for op in operations):
        text.line("%threads = add i64 0, 0")  # of functions that run no kernel


def finish(frame: Frame, op: Any) -> None:
    """func.return: the results as a list, and the ends of all paths."""
    text, count = frame.text, len(op.operands)
    text.places.append(f"  %results = alloca [{max(count, 1)} x i64]")
    letters = ""
    for k, operand in enumerate(op.operands):
        letter, slot = result(frame, frame.values[operand])
        letters += letter
        text.line(f"store {slot}, ptr {frame.at('%results', k)}")
    text.line(text.call_text("PyEval_RestoreThread", "void (ptr)", "%thread"))
    made = frame.runtime("make_results", "%inputs", text.letters(letters), str(count), "%results")
    text.line("br label %made")
    text.block("made")
    text.line("br label %finish")
    text.block("failed")
    text.line(text.call_text("PyEval_RestoreThread", "void (ptr)", "%thread"))
    text.line("br label %refused")
    text.block("refused")
    frame.runtime("fail", "%self", *(frame.load("i64", f"%{name}") for name in ("site", "index", "size")))
    text.line("br label %finish")
    text.block("finish")
    list_ = text.value(f"phi ptr [ {made}, %made ], [ null, %refused ]", "result")
    if frame.gpus.numbers:
        gpu_launches().end(frame)
    frame.runtime("finish", "%frame", str(frame.frame_size), frame.load("ptr", "%arena"))
    text.line(f"ret ptr {list_}")


def result(frame: Frame, x: HostBuffer | Number) -> tuple[str, str]:
    """A result's letter and its slot."""
    if isinstance(x, Number):
        return x.letter, f"{x.type} {x.value}"
    if x.root.kind == "arena":
        raise ValueError("a result lies in the arena, which does not outlive the call: plan-memory must allocate it")
    if x.root.kind == "number":
        return "t", f"ptr {frame.load('ptr', frame.of_number(x))}"
    if x.whole and x.root.kind == "argument" and not frame.consume:
        return "a", f"i64 {x.root.position}"
    return "t", f"ptr {x.root.handle if x.whole else frame.load('ptr', frame.part(x))}"


# ---- ops


def slot(frame: Frame, op: Any) -> None:
    offset = frame.sizes.of(symbols.parse(attribute_value(op.attributes["offset"])))
    device = info_of(op.results[0]).device
    address = frame.text.value(f"getelementptr i8, ptr {frame.arenas[device]}, i64 {offset}", "slot")
    frame.values[op.results[0]] = HostBuffer(info_of(op.results[0]), HostRoot("arena", address=address))


def allocate(frame: Frame, op: Any) -> None:
    info, place = info_of(op.results[0]), frame.new_handle()
    bytes_ = symbols.maximum(info.extent, 0) * info.dtype.itemsize
    if info.device == "cpu" and not (isinstance(bytes_, int) and bytes_ < result_pool.SMALLEST):
        frame.at_site()
        frame.check(frame.runtime("new_result", *frame.layout(info), *frame.kind(info), frame.sizes.of(bytes_), place))
    else:
        frame.shim("aoti_torch_empty_strided", *frame.layout(info), *frame.kind(info), place)
    frame.values[op.results[0]] = frame.owned(info, place)


def release(frame: Frame, op: Any) -> None:
    x = frame.values[op.operands[0]]
    if not isinstance(x, HostBuffer) or x.root.kind != "owned":
        raise ValueError(f"the release at {frame.location or '?'} is of a buffer that the program does not own")
    frame.runtime("drop", x.root.frame)


def view(frame: Frame, op: Any) -> None:
    x, info = frame.values[op.operands[0]], info_of(op.results[0])
    if not isinstance(x, HostBuffer) or x.info.dtype.itemsize != info.dtype.itemsize:
        raise ValueError(f"the view at {frame.location or '?'} has another element size than its operand")
    step = symbols.parse(attribute_value(op.attributes["offset"]))
    same = x.whole and info == x.info and isinstance(step, int) and step == 0
    frame.values[op.results[0]] = x if same else HostBuffer(info, x.root, x.offset + step, False)


def number(frame: Frame, op: Any) -> None:
    """size and constant as a plain i64 or f64."""
    kind = str(op.results[0].type)
    if kind not in ("i64", "f64"):
        raise ValueError(f"{op.operation.name} at {frame.location or '?'} gives a {kind}; a tensor is a kernel's work")
    if frame.op == "size":
        made = Number("i", frame.sizes.of(symbols.parse(attribute_value(op.attributes["expr"]))))
    else:
        constant = read_constant(attribute_value(op.attributes["value"]))
        made = Number("i", str(int(constant))) if kind == "i64" else Number("f", shim.double_text(float(constant)))
    frame.values[op.results[0]] = made


def run(frame: Frame, op: Any) -> None:
    """A kernel, given its slots: addresses, symbols, the number of threads, room for a bad index and its size."""
    if op.operation in frame.gpus.kernels:
        gpu_launches().launch(frame, op)
        return
    text = frame.text
    exprs = symbols.parse_list(attribute_value(op.attributes["symbols"]))
    slots = [f"ptr {frame.address(frame.values[x])}" for x in op.operands]
    slots += [f"i64 {x}" for x in (*map(frame.sizes.of, exprs), "%threads")]
    for k, slot in enumerate(slots):
        text.line(f"store {slot}, ptr {frame.at('%kernel_slots', k)}")
    kernel = attribute_value(op.attributes["kernel"])
    messages = attribute_value(op.attributes["messages"]) if "messages" in op.attributes else []
    failed = text.call_link(kernel, "i64 (ptr)", "%kernel_slots")
    if not messages:
        return
    # the k-th check_index failed: site number k of these, counted from 1
    first = frame.new_sites([FailureSite(kernel, frame.location, message) for message in messages])
    text.line(f"store i64 {text.value(f'add i64 {failed}, {first - 1}')}, ptr %site")
    for k, name in enumerate(("index", "size")):
        text.line(f"store i64 {frame.load('i64', frame.at('%kernel_slots', len(slots) + k))}, ptr %{name}")
    frame.branch(text.value(f"icmp ne i64 {failed}, 0"), "failed")


def call(frame: Frame, op: Any) -> None:
    """A library routine, or a function of the module."""
    if "kernel" in op.attributes:
        run(frame, op)
        return
    if frame.gpus.numbers:
        from mlirc.codegen.libraries import cublas_call

        if matmul := cublas_call.matmul_of(op):
            cublas_call.multiply(frame, op, matmul)
            return
    count, frame.op = attribute_value(op.attributes["inputs"]), attribute_value(op.attributes["callee"])
    if len(op.operands) != count + 1:
        raise ValueError(f"the call of {frame.op} at {frame.location or '?'} must have one output after its inputs")
    if frame.gpus.numbers and gpu_launches().moves_number(op):
        gpu_launches().move_number(frame, op)
    else:
        call_shim(frame, op)


def assign(frame: Frame, op: Any) -> None:
    target, value = (frame.values[x] for x in op.operands)
    if not isinstance(target, HostBuffer):
        raise ValueError(f"the assign at {frame.location or '?'} needs a tensor to write to")
    # to its memory, not its tensor: that one may be an inference tensor, or ask for a gradient
    frame.shim("aoti_torch_copy_", frame.memory(target), frame.plain(value), "0")


WRITERS: dict[str, Callable[[Frame, Any], None]] = {
    "slot": slot,
    "allocate": allocate,
    "release": release,
    "view": view,
    "size": number,
    "constant": number,
    "run": run,
    "call": call,
    "assign": assign,
    "return": finish,
}
