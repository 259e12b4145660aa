"""ATen calls in a host program: by a routine of the C shim, by the dispatcher, or from Python with real tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirc.codegen.aten_call import AtenCall, resolve
from mlirc.codegen.dispatcher_aten import dispatcher_call
from mlirc.codegen.host_frame import Buffer, Frame, Number
from mlirc.codegen.host_inputs import bind_result
from mlirc.codegen.native_aten import NotNative, routine_call
from mlirc.dialects import symbols
from mlirc.dialects.bindings import ir
from mlirc.dialects.dialect import attribute_value
from mlirc.dialects.tensor_types import info_of

FIRST_CALL = 2  # where a host program's ATen calls begin in its `self` tuple


@dataclass(frozen=True)
class Call:
    """An ATen call of a program: the operator, the user's source line; `python` makes it, or `why` says nothing."""

    op: str
    location: str
    python: AtenCall | None = None
    why: str = ""


def aten_call(frame: Frame, op: Any, number: int, objects: Sequence[Any]) -> Call:
    """Writes an ATen call. `number`: how many of the earlier ones Python makes."""
    frame.op = attribute_value(op.attributes["op"])
    function, operands = resolve(frame.op, objects), [frame.values[x] for x in op.operands]
    why = ""
    for write in (routine_call, dispatcher_call):
        try:
            write(frame, op, function, operands)
            return Call(frame.op, frame.location)
        except NotNative as reason:
            why = str(reason)
    return Call(frame.op, frame.location, python_call(frame, op, number, objects), why)


def python_call(frame: Frame, op: Any, number: int, objects: Sequence[Any]) -> AtenCall:
    text = frame.text
    results = list(op.results)
    infos = [info_of(r) if isinstance(r.type, ir.RankedTensorType) else None for r in results]
    aliases = symbols.parse_list(attribute_value(op.attributes["aliases"])) if "aliases" in op.attributes else ()
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
    given = [operand(frame, frame.values[x]) for x in op.operands]
    borrowed = [place for _, _, place in given if place]
    words = [(letter, word) for letter, word, _ in given]
    words += [("i", f"i64 {frame.sizes.of(symbols.parse(expr))}") for expr in call.expressions]
    at = text.place(f"[{max(len(words), 1)} x i64]", "operands")
    for k, (_, word) in enumerate(words):
        text.line(f"store {word}, ptr {frame.at(at, k)}")
    places = [frame.new_handle() for info in infos if info is not None]
    numbers = text.place(f"[{max(len(infos) - len(places), 1)} x i64]", "numbers")
    letters = "".join("t" if i is not None else number_letter(r) for i, r in zip(infos, results, strict=True))
    frame.at_site()
    callable_ = text.value(text.call_text("PyTuple_GetItem", "ptr (ptr, i64)", "%self", str(FIRST_CALL + number)))
    status = frame.runtime(
        "call_python", "%thread", callable_, "%name", "%inputs",
        text.letters("".join(letter for letter, _ in words)), str(len(words)), at,
        text.letters(letters), str(len(letters)), places[0] if places else "null", numbers,
    )  # fmt: skip
    frame.check(status)
    for place in borrowed:
        frame.runtime("drop", place)
    take_results(frame, op, places, numbers)
    return call


def operand(frame: Frame, x: Buffer | Number) -> tuple[str, str, str]:
    """How the operand crosses to Python: its letter, its word, and the place of a handle to free after the call."""
    if isinstance(x, Number):
        return x.letter, f"{x.type} {x.value}", ""
    if x.whole and x.root.kind in ("argument", "number"):
        return "a", f"i64 {x.root.position}", ""
    if x.whole and x.root.kind == "owned":
        return "t", f"ptr {x.root.handle}", ""
    if x.root.kind == "slot":
        return "t", f"ptr {frame.memory(x)}", ""
    # a tensor that shares the storage: a result that is a view of it keeps it alive
    place = frame.part(x)
    return "t", f"ptr {frame.load('ptr', place)}", place


def number_letter(result: ir.Value) -> str:
    kind = str(result.type)
    if kind not in ("i64", "f64"):
        raise ValueError(f"an ATen call with a result of type {kind}: they give tensors, i64 and f64")
    return "f" if kind == "f64" else "i"


def take_results(frame: Frame, op: Any, places: list[str], numbers: str) -> None:
    """Gives the results their values; a symbol may be bound by one: `mlirc.symbol` names that of a number."""
    left = iter(places)
    count = 0
    for result in op.results:
        if isinstance(result.type, ir.RankedTensorType):
            made = frame.owned(info_of(result), next(left))
            bind_result(frame, made)
        else:
            made = Number(number_letter(result), "")
            made.value = frame.load(made.type, frame.at(numbers, count), "number")
            count += 1
            if "mlirc.symbol" in op.attributes:
                frame.sizes.bound.setdefault(attribute_value(op.attributes["mlirc.symbol"]), made.value)
        frame.values[result] = made
