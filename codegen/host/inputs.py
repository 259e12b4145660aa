"""The entry of a host program: unpacks inputs into slots and addresses, and binds symbols to sizes."""

from typing import Any

from mlirc.codegen.frame.frame import Frame, HostBuffer, HostRoot, Number
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Expr
from mlirc.dialects.core.tensor_types import info_of


def read_inputs(frame: Frame, function: Any) -> None:
    """Gives each argument of the function its value, and each symbol that the arguments determine."""
    arguments = list(function.regions[0].blocks[0].arguments)
    attributes = list(function.attributes["arg_attrs"]) if "arg_attrs" in function.attributes else [{}] * len(arguments)
    text, count = frame.text, len(arguments)
    for name in ("slots", "addresses"):
        text.places.append(f"  %{name} = alloca [{max(count, 1)} x i64]")
    letters = "".join(map(letter, arguments, attributes))
    text.line("store i64 0, ptr %site")
    status = frame.runtime("read_inputs", "%inputs", "%name", text.letters(letters), str(count), "%slots", "%addresses")
    text.line(f"store i64 {text.value(f'sext i32 {status} to i64')}, ptr %index")
    frame.at_site()
    frame.check(status)
    if frame.consume:
        places = [frame.new_handle() for _ in letters]
        frame.runtime("keep_inputs", "%inputs", text.letters(letters), str(count), "%slots", "%frame")
    else:
        places = [""] * count
    for position, (argument, kind) in enumerate(zip(arguments, letters, strict=True)):
        slot = frame.at("%slots", position)
        if not isinstance(argument.type, ir.RankedTensorType):
            number = Number(kind, "", slot)
            number.value = frame.load(number.type, slot, "number")
            frame.values[argument] = number
            continue
        address = frame.load("ptr", frame.at("%addresses", position), "address") if kind != "o" else ""
        root = HostRoot("argument", slot, address, position, places[position])
        if kind == "f":
            root = HostRoot("number", "", address, position)
        frame.values[argument] = HostBuffer(info_of(argument), root)
    bind_symbols(frame, arguments, attributes)


def letter(argument: ir.Value, attributes: Any) -> str:
    """How the argument crosses from Python (native_runtime.py)."""
    if isinstance(argument.type, ir.RankedTensorType):
        if info_of(argument).layout != "strided":
            return "o"
        return "f" if "mlirc.scalar" in attributes else "t"
    if str(argument.type) not in ("i64", "f64"):
        raise ValueError(f"an argument of type {argument.type}: graphs take tensors, i64 and f64")
    return "f" if str(argument.type) == "f64" else "i"


def bind_symbols(frame: Frame, arguments: list[ir.Value], attributes: list[Any]) -> None:
    """Binds a symbol to the argument that carries it; else to the first size that is the bare symbol; else solves a linear size for it."""
    carried: list[tuple[Expr, str]] = []
    for argument, named in zip(arguments, attributes, strict=True):
        number = frame.values[argument]
        if isinstance(number, Number) and "mlirc.symbol" in named:
            expr = symbols.parse(attribute_value(named["mlirc.symbol"]))
            if isinstance(expr, Expr):
                carried.append((expr, number.value))
    sized = [
        (expr, x, d)
        for x in (frame.values[a] for a in arguments)
        if isinstance(x, HostBuffer) and x.root.kind == "argument"
        for d, expr in enumerate(x.info.shape)
        if isinstance(expr, Expr)
    ]
    for bare in (True, False):
        for expr, value in carried:
            if is_bare(expr) == bare:
                solve(frame, expr, value)
        for expr, x, d in sized:
            if is_bare(expr) == bare and unbound(frame, expr):
                solve(frame, expr, actual_size(frame, x.root.handle, d))


def bind_result(frame: Frame, x: HostBuffer) -> None:
    """Binds the symbols that first appear as sizes of an ATen call's result."""
    for d, expr in enumerate(x.info.shape):
        if isinstance(expr, Expr) and unbound(frame, expr):
            solve(frame, expr, actual_size(frame, x.root.handle, d))


def solve(frame: Frame, expr: Expr, value: str) -> None:
    """Binds the one unbound symbol of `expr` if that is factor*symbol + rest, both numbers; else nothing."""
    names = unbound(frame, expr)
    if len(names) != 1:
        return
    (name,) = names
    rest = symbols.substitute(expr, {name: 0})
    factor = symbols.substitute(expr, {name: 1}) - rest
    if not isinstance(rest, int) or not isinstance(factor, int) or expr != factor * symbols.symbol(name) + rest:
        return
    if rest:
        value = frame.text.value(f"sub i64 {value}, {rest}")
    frame.sizes.bound[name] = frame.text.value(f"sdiv i64 {value}, {factor}") if factor != 1 else value


def actual_size(frame: Frame, handle: str, d: int) -> str:
    frame.shim("aoti_torch_get_sizes", handle, "%scratch")
    return frame.load("i64", frame.at(frame.load("ptr", "%scratch"), d), "size")


def unbound(frame: Frame, expr: Expr) -> set[str]:
    return symbols.free_symbols(expr) - set(frame.sizes.bound)


def is_bare(expr: Expr) -> bool:
    return str(expr).isidentifier()
