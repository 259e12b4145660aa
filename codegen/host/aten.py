"""ATen calls in a host program: by a routine of the C shim, by the dispatcher, or from Python.

The first two are native calls, which say only that they failed. A call that failed is then made again from Python, so that the
user sees PyTorch's own exception. That second call stands at the end of the program's code, away from what usually runs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.codegen.aten.dispatcher_call import dispatcher_call, in_memory_call
from mlirc.codegen.aten.out_call import out_call
from mlirc.codegen.aten.overridden_kernels import computes_otherwise
from mlirc.codegen.aten.python_call import AtenCall
from mlirc.codegen.aten.scalar_call import difference_call, elementwise_call, scalar_call
from mlirc.codegen.aten.shim_call import NUMBER, UNWANTED, WANTED, NativeCall, NotNative, gives_resolved, routine_call
from mlirc.codegen.aten.view_call import view_call
from mlirc.codegen.frame.frame import Frame, HostBuffer, Number
from mlirc.codegen.host.inputs import bind_result
from mlirc.codegen.host.parts import HostCall
from mlirc.codegen.runtime.python_side import FIRST_ATEN_CALL
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.interpreter.triton_kernels import triton_kernel

# How a value crosses to Python: the letter of its kind (runtime/native_runtime.py lists them), and its slot as LLVM
# text, "i64 %size" or "ptr %handle".
PythonSlot = tuple[str, str]
COLLECTIVES = "_c10d_functional"  # the namespace of operators that wait for other processes


def aten_call(frame: Frame, op: Any, number: int, objects: Sequence[Any]) -> HostCall:
    """Writes ATen call `number` of the program. `objects`: arguments that are Python objects and have no text in IR, such as generators
    (importer.py)."""
    frame.op = attribute_value(op.attributes["op"])
    infos = [info_of(r) if isinstance(r.type, ir.RankedTensorType) else None for r in op.results]
    aliases = symbols.parse_numbers(attribute_value(op.attributes["aliases"])) if "aliases" in op.attributes else ()
    call = AtenCall(
        op=frame.op,
        text=attribute_value(op.attributes["args"]),
        objects=objects,
        results=infos,
        aliases=aliases or [-1] * len(infos),
        operands=len(op.operands),
        bound=list(frame.sizes.bound),
        location=frame.location,
    )
    sizes = [("i", f"i64 {frame.sizes.of(symbols.parse(expr))}") for expr in call.expressions]
    operands = [frame.values[x] for x in op.operands]
    if any(reads_sparse(x) for x in (*op.operands, *op.results)):
        native, why = None, "a tensor is sparse"
    else:
        native, why = native_way(frame, op, call.function, operands)
    if native is not None:
        call_natively(frame, op, call.function, native, number, operands, sizes)
    else:
        call_from_python(frame, op, number, operands, sizes, call.tensors)
    return HostCall(frame.op, frame.location, call, why)


def native_way(
    frame: Frame, op: Any, function: Any, operands: list[HostBuffer | Number]
) -> tuple[NativeCall | None, str]:
    """The native call for the op and "", or None and why there is none."""
    if function is triton_kernel:
        try:
            from mlirc.codegen.cuda.user_launch import triton_call  # what generates for GPUs takes a while to load

            return triton_call(frame, op, operands), ""
        except NotNative as reason:
            return None, str(reason)
    if isinstance(function, torch._ops.OpOverload) and function.namespace == COLLECTIVES:
        from mlirc.codegen.aten.collective_call import collective_call

        try:
            return collective_call(frame, op, function, operands), ""
        except NotNative as reason:
            return None, str(reason)
    why = ""
    ways = (
        view_call,
        *(ways_on_gpu() if frame.gpus.numbers else ()),
        scalar_call,
        out_call,
        routine_call,
        difference_call,
        elementwise_call,
        dispatcher_call,
    )
    # a function whose kernel is not PyTorch's is called through the dispatcher alone, which finds that kernel
    for way in ways[-1:] if computes_otherwise(function) else ways:
        try:
            return way(frame, op, function, operands), ""
        except NotNative as reason:
            why = str(reason)
    return None, why


def reads_sparse(x: ir.Value) -> bool:
    return isinstance(x.type, ir.RankedTensorType) and info_of(x).layout.startswith("sparse")


def ways_on_gpu() -> tuple[Callable[..., NativeCall], ...]:
    from mlirc.codegen.host.random import random_call
    from mlirc.codegen.libraries.cudnn_call import backward_call, convolution_call

    return random_call, convolution_call, backward_call


# ---- native


def call_natively(
    frame: Frame,
    op: Any,
    function: Any,
    native: NativeCall,
    number: int,
    operands: list[HostBuffer | Number],
    sizes: list[PythonSlot],
) -> None:
    """Writes the native call and, at the end of the code, the call from Python for where it fails. Both store the handles of their
    results in the same stack slots.

    Then each result that is used gets the strides that its type promises.
    """
    text = frame.text
    wanted = [frame.new_handle() for _ in op.results]
    left_out = [frame.new_handle() for kind in native.kinds if kind == UNWANTED]
    numbers = [text.place("i64", "number") for kind in native.kinds if kind == NUMBER]
    by_kind = {WANTED: iter(wanted), UNWANTED: iter(left_out), NUMBER: iter(numbers)}
    places = [next(by_kind[kind]) for kind in native.kinds]
    status = native.write(places)
    slots = [plain_slot(frame, x) for x in operands] + sizes
    succeeded, failed, done = text.fresh("succeeded"), text.fresh("failed"), text.fresh("done")
    text.line(f"br i1 {text.value(f'icmp eq i32 {status}, 0')}, label %{succeeded}, label %{failed}")
    with frame.out_of_line():
        text.block(failed)
        python_call(frame, number, slots, "t" * len(wanted), wanted, "null")
        text.line(f"br label %{done}")
    text.block(succeeded)
    native.take(places)
    text.line(f"br label %{done}")
    text.block(done)
    for place in left_out:
        frame.runtime("drop", place)
    for result, place in zip(op.results, wanted, strict=True):
        info = info_of(result)
        if is_unused(result):  # it may be no tensor: attention in inference leaves out what its gradient would need
            frame.values[result] = frame.owned(info, place)
            continue
        bind_result(frame, frame.owned(info, place))
        frame.at_site()
        if info.dtype.is_complex and may_be_lazy(function):
            in_memory_call(frame, place)
        as_new = "true" if is_returned(result) else "false"  # the graph's results must not be views
        status = frame.runtime("restride", place, *frame.layout(info), *frame.kind(info), as_new)
        text.line(f"store i64 {text.value(f'sext i32 {status} to i64')}, ptr %index")
        frame.check(status)
        frame.values[result] = frame.owned(info, place)


def may_be_lazy(function: Any) -> bool:
    """Whether a complex result may be the conjugate of what is in memory."""
    if not isinstance(function, torch._ops.OpOverload):
        return False
    return not gives_resolved(function) or bool(computes_otherwise(function))


def is_unused(result: ir.Value) -> bool:
    """Whether the only use of the result is its release."""
    return all(use.owner.name == "mlirc.release" for use in result.uses)


def is_returned(result: ir.Value) -> bool:
    return any(use.owner.name == "func.return" for use in result.uses)


def plain_slot(frame: Frame, x: HostBuffer | Number) -> PythonSlot:
    """The slot of an operand that exists already: no handle is made for it, and none has to be freed."""
    if isinstance(x, Number):
        return x.letter, f"{x.type} {x.value}"
    if x.root.kind == "number":
        return "f", f"double {frame.load('double', x.root.address)}"
    if x.whole and x.root.kind == "argument" and not frame.consume:
        return "a", f"i64 {x.root.position}"
    return "t", f"ptr {frame.plain(x)}"


# ---- from Python


def call_from_python(
    frame: Frame,
    op: Any,
    number: int,
    operands: list[HostBuffer | Number],
    sizes: list[PythonSlot],
    tensors: frozenset[int],
) -> None:
    """Writes the call. `tensors`: the numbers of those operands that the schema declares as tensors."""
    given = [operand(frame, x, k in tensors) for k, x in enumerate(operands)]
    slots = [(letter, slot) for letter, slot, _ in given] + sizes
    letters = "".join(map(result_letter, op.results))
    places = [frame.new_handle() for letter in letters if letter == "t"]
    numbers = frame.text.place(f"[{len(letters) + 1} x i64]", "numbers")
    python_call(frame, number, slots, letters, places, numbers)
    for _, _, borrowed in given:
        if borrowed:
            frame.runtime("drop", borrowed)
    left = iter(places)
    count = 0
    for result, letter in zip(op.results, letters, strict=True):
        if letter == "t":
            made: HostBuffer | Number = frame.owned(info_of(result), next(left))
            bind_result(frame, made)
        else:
            made = Number(letter, "")
            made.value = frame.load(made.type, frame.at(numbers, count), "number")
            count += 1
            if "mlirc.symbol" in op.attributes:  # the size symbol that this number is
                frame.sizes.bound.setdefault(attribute_value(op.attributes["mlirc.symbol"]), made.value)
        frame.values[result] = made


def operand(frame: Frame, x: HostBuffer | Number, as_tensor: bool) -> tuple[str, str, str]:
    """How the operand is passed to Python: its letter, its slot, and the address of a handle to free after the call, or ""."""
    if isinstance(x, HostBuffer) and x.root.kind == "number" and (as_tensor or x.info.rank):
        place = frame.of_number(x)
        return "t", f"ptr {frame.load('ptr', place)}", place
    if isinstance(x, HostBuffer) and not x.whole and x.root.kind in ("argument", "owned"):
        # a tensor that shares the storage: a result that is a view of it keeps it alive
        place = frame.part(x)
        return "t", f"ptr {frame.load('ptr', place)}", place
    return *plain_slot(frame, x), ""


def result_letter(result: ir.Value) -> str:
    if isinstance(result.type, ir.RankedTensorType):
        return "t"
    kind = str(result.type)
    if kind not in ("i64", "f64"):
        raise ValueError(f"an ATen call with a result of type {kind}: they give tensors, i64 and f64")
    return "f" if kind == "f64" else "i"


def python_call(
    frame: Frame, number: int, slots: list[PythonSlot], results: str, places: list[str], numbers: str
) -> None:
    """Writes call `number` with the values of `slots`. `results` has a letter for each result.

    places    the addresses for handles of resulting tensors; they are consecutive in memory, and the call is given the first
    numbers   the address of an array for resulting numbers
    """
    text = frame.text
    at = text.place(f"[{max(len(slots), 1)} x i64]", "operands")
    for k, (_, slot) in enumerate(slots):
        text.line(f"store {slot}, ptr {frame.at(at, k)}")
    frame.at_site()
    callable_ = frame.python_object(FIRST_ATEN_CALL + number)
    letters = "".join(letter for letter, _ in slots)
    status = frame.runtime(
        "call_python", "%thread", callable_, "%name", "%inputs",
        text.letters(letters), str(len(letters)), at,
        text.letters(results), str(len(results)), places[0] if places else "null", numbers,
    )  # fmt: skip
    frame.check(status)
