"""Executes the dialect in any form with plain torch ops: slow, right, the oracle for every pass.

    run(function, [x, y]) -> [results]

Graph and kernel level have value semantics: a tensor value keeps its contents even when `assign` overwrites the
argument that it is a view of. Results of the alias groups "arg0", "arg1", ... are the argument's memory instead.
Of a lowered function it runs the kernels' bodies, not their code, unless it is given what runs that.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch

from mlirc.dialects.control_flow.interpret import interpret
from mlirc.dialects.control_flow.region_ops import REGION_OPS, read_call
from mlirc.dialects.core import aten_arguments, composites, symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import Composite, Elementwise, Reduction, attribute_value
from mlirc.dialects.core.graph_builder import read_constant
from mlirc.dialects.core.graph_signature import bind_symbols, result_groups, solve
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.memory_ops import arenas
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.interpreter.callees import CALLEES
from mlirc.dialects.interpreter.flex_kernels import run_flex
from mlirc.dialects.interpreter.gpu_operators import call
from mlirc.dialects.interpreter.kernels import Points, elementwise, fold, operand_dtypes, run_kernel
from mlirc.dialects.ops.nn.flex_attention import FLEX

RunsCode = Callable[[Any, Sequence[torch.Tensor], Mapping[str, int]], bool]
POISON = 0xFF  # every byte of fresh memory: a NaN in floating-point types, -1 in integers


class InterpreterError(RuntimeError):
    """An op could not be executed. The text names the op and its location."""


class ValueObserver(Protocol):
    """Sees each op of a function as it is executed."""

    def before(self, op: Any, operands: Sequence[Any]) -> None:
        """`operands` are what its operands hold."""

    def after(self, op: Any, values: Sequence[Any], held: Sequence[Any]) -> None:
        """`held` is what it left: in its results, or in the operands that it writes, which `values` are."""


def run(
    function: Any,
    inputs: Sequence[Any],
    objects: Sequence[Any] = (),
    observer: ValueObserver | None = None,
    code: RunsCode | None = None,
) -> list[Any]:
    """The results of a `func.func` on tensors, ints and floats. `objects` are what ATen calls refer to by number.

    `code` is given each `mlircx.run`, and each call of a kernel that has a body, with its operands and the values of symbols, and returns
    whether it has run it.

    Raises IndexError where a kernel's check_index fails, InterpreterError for anything else that goes wrong.
    """
    with context(), torch.no_grad():
        return _Interpreter(function, inputs, objects, observer, code=code).run()


class _Interpreter:
    def __init__(
        self,
        function: Any,
        inputs: Sequence[Any],
        objects: Sequence[Any],
        observer: ValueObserver | None = None,
        known: Mapping[str, int] | None = None,
        code: RunsCode | None = None,
    ):
        self.observer, self.code = observer, code
        self.function = function
        self.objects = objects
        self.block = function.regions[0].blocks[0]
        if len(self.block.arguments) != len(inputs):
            raise InterpreterError(f"{len(inputs)} inputs for {len(self.block.arguments)} arguments")
        self.symbols = bind_symbols(function, inputs) | dict(known or {})
        self.values: dict[ir.Value, Any] = {}  # what each value holds: tensors, and Python numbers for i64 and f64
        self.places: dict[ir.Value, torch.Tensor] = {}  # arguments and views of them: the caller's memory itself
        for position, (argument, value) in enumerate(zip(self.block.arguments, inputs, strict=True)):
            self.values[argument] = self.argument(position, argument, value)
        self.places = {a: self.values[a] for a in self.block.arguments if isinstance(self.values[a], torch.Tensor)}
        sizes = arenas(function) if "mlirc.arena" in function.attributes else {}
        self.arenas = {d: torch.full((self.number(n),), POISON, dtype=torch.uint8) for d, n in sizes.items()}

    def argument(self, position: int, argument: ir.Value, value: Any) -> Any:
        if not isinstance(argument.type, ir.RankedTensorType):
            return value
        info = info_of(argument)
        if not isinstance(value, torch.Tensor):
            return torch.tensor(value, dtype=info.dtype)
        if info.layout != "strided":  # @prepare made it
            return value
        shape, stride = self.sizes(info.shape), self.sizes(info.stride)
        strides_fit = all(a == b or n <= 1 for n, a, b in zip(shape, stride, value.stride(), strict=True))
        if value.dtype != info.dtype or tuple(value.shape) != shape or not (strides_fit or value.numel() == 0):
            have = f"{value.dtype} {tuple(value.shape)} with strides {value.stride()}"
            raise InterpreterError(
                f"input {position} is {have}, the argument {info.dtype} {shape} with strides {stride}"
            )
        return value

    def run(self) -> list[Any]:
        for op in self.block.operations:
            name = op.operation.name
            try:
                if name == "func.return":
                    groups = result_groups(self.function, len(op.operands))
                    return [self.result(x, group) for x, group in zip(op.operands, groups, strict=True)]
                if self.observer is None:
                    self.execute(op, name)
                else:
                    self.observed(self.observer, op, name)
            except (IndexError, InterpreterError):
                raise
            except Exception as error:
                raise InterpreterError(f"{name} at {first_line(op.location)}: {error}") from error
        raise InterpreterError("the function does not end in a return")

    def observed(self, observer: ValueObserver, op: Any, name: str) -> None:
        observer.before(op, [self.values.get(x) for x in op.operands])
        self.execute(op, name)
        written = list(op.results)
        if "inputs" in op.attributes and not written:
            written = list(op.operands)[attribute_value(op.attributes["inputs"]) :]
        places = self.values
        if name == "mlirc.assign":
            written, places = [op.operands[0]], self.places
        observer.after(op, written, [places.get(x) for x in written])

    def result(self, value: ir.Value, group: str) -> Any:
        held = self.operand(value)
        return self.places.get(value, held) if group.startswith("arg") else held

    def execute(self, op: Any, name: str) -> None:
        handler = HANDLERS.get(name)
        if handler is not None:
            results = handler(self, op)
        elif isinstance(op, Elementwise):
            info = info_of(op.results[0])
            operands = [self.tensor(x) for x in op.operands]
            if type(op).mnemonic not in ("cast", "bitcast"):
                dtypes = operand_dtypes(type(op), operands, info.dtype)
                operands = [x.to(dtype) for x, dtype in zip(operands, dtypes, strict=True)]
            results = [self.place(elementwise(type(op), op, operands, info.dtype), info)]
        elif isinstance(op, Reduction):
            results = [self.reduction(op)]
        elif hasattr(type(op), "reference"):
            operands = [self.operand(x) for x in op.operands]
            made = flat(type(op).reference(*operands, **type(op).attributes_of(op)))
            results = [self.place(x, info_of(r)) for x, r in zip(made, op.results, strict=True)]
        elif isinstance(op, Composite):
            results = self.expand(op)
        elif hasattr(type(op), "kernel"):
            results = self.kernel_form(op)
        else:
            raise ValueError("the interpreter has no rule for this op, and its class no `reference`")
        for value, result in zip(op.results, results, strict=True):
            self.values[value] = result

    # ---- values

    def number(self, expr: Int) -> int:
        return symbols.evaluate(expr, self.symbols)

    def sizes(self, exprs: Iterable[Int]) -> tuple[int, ...]:
        return tuple(map(self.number, exprs))

    def operand(self, value: ir.Value) -> Any:
        if value not in self.values:
            raise ValueError("an operand was released, or is not defined yet")
        return self.values[value]

    def tensor(self, value: ir.Value) -> torch.Tensor:
        held = self.operand(value)
        return held if isinstance(held, torch.Tensor) else torch.tensor(held, dtype=info_of(value).dtype)

    def empty(self, info: TensorInfo) -> torch.Tensor:
        """Fresh memory of this layout, filled with poison."""
        shape, stride = self.sizes(info.shape), self.sizes(info.stride)
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if 0 not in shape else 0
        memory = torch.full((extent * info.dtype.itemsize,), POISON, dtype=torch.uint8)
        return memory.view(info.dtype).as_strided(shape, stride)

    def place(self, x: torch.Tensor, info: TensorInfo) -> torch.Tensor:
        """The elements of `x` in fresh memory, as `info` lays them out."""
        shape = self.sizes(info.shape)
        if tuple(x.shape) != shape:
            raise ValueError(f"computes a tensor of shape {tuple(x.shape)}; the result type says {shape}")
        if x.dtype != info.dtype:
            raise ValueError(f"computes {x.dtype}; the result type says {info.dtype}")
        return self.empty(info).copy_(x)

    # ---- graph level

    def constant(self, op: Any) -> list[Any]:
        return [self.scalar_result(op, read_constant(attribute_value(op.attributes["value"])))]

    def size(self, op: Any) -> list[Any]:
        return [self.scalar_result(op, self.number(symbols.parse(attribute_value(op.attributes["expr"]))))]

    def scalar_result(self, op: Any, value: float | int | bool) -> Any:
        if not isinstance(op.results[0].type, ir.RankedTensorType):
            return value
        return torch.tensor(value, dtype=info_of(op.results[0]).dtype)

    def iota(self, op: Any) -> list[torch.Tensor]:
        info = info_of(op.results[0])
        shape = self.sizes(info.shape)
        points = Points(shape, (), self.symbols)
        values = points.evaluate(symbols.parse(attribute_value(op.attributes["expr"])))
        return [self.place(values.expand(shape).to(info.dtype), info)]

    def reduction(self, op: Any) -> torch.Tensor:
        x, info = self.tensor(op.operands[0]), info_of(op.results[0])
        kind = type(op).kind
        if kind not in ("any", "all", "argmax", "argmin"):
            x = x.to(info.dtype)
        dims = symbols.parse_numbers(attribute_value(op.attributes["dims"]))
        folded = fold(kind, x, dims)
        if attribute_value(op.attributes["keepdim"]) not in (True, "true"):
            folded = folded.reshape([n for d, n in enumerate(x.shape) if d not in dims])
        return self.place(folded.to(info.dtype), info)

    def expand(self, op: Any) -> list[torch.Tensor]:
        """A composite without a reference: what it expands to, in a function of its own."""
        from mlirc.dialects.core.bindings import func

        module = ir.Module.create()
        with ir.InsertionPoint(module.body), op.location:
            function = func.FuncOp("expanded", ([x.type for x in op.operands], []))
        block = function.add_entry_block()
        with ir.InsertionPoint(block), op.location:
            func.ReturnOp(composites.expand(op, block.arguments))
        inside = _Interpreter(function, [self.operand(x) for x in op.operands], self.objects)
        inside.symbols = self.symbols
        return [self.place(x, info_of(r)) for x, r in zip(inside.run(), op.results, strict=True)]

    def kernel_form(self, op: Any) -> list[torch.Tensor]:
        """An op without a reference that has a kernel form: what that computes."""
        module = ir.Module.create()
        with ir.InsertionPoint(module.body), op.location:
            kernel = type(op).kernel(KernelBuilder, op)[0].owner
        results = self.kernel(kernel)
        kernel.operation.erase()
        return results

    def view(self, op: Any) -> list[torch.Tensor]:
        x, out = op.operands[0], op.results[0]
        info = info_of(out)
        shape, stride = self.sizes(info.shape), self.sizes(info.stride)
        offset = self.number(symbols.parse(attribute_value(op.attributes["offset"])))
        if x in self.places:
            place = self.places[x]
            self.places[out] = place.as_strided(shape, stride, place.storage_offset() + offset).view(info.dtype)
        held = self.tensor(x)
        if held.dtype.itemsize != info.dtype.itemsize:
            raise ValueError(f"a view of {held.dtype} cannot be {info.dtype}")
        return [held.as_strided(shape, stride, held.storage_offset() + offset).view(info.dtype)]

    def copy(self, op: Any) -> list[torch.Tensor]:
        return [self.place(self.tensor(op.operands[0]), info_of(op.results[0]))]

    def matmul(self, op: Any) -> list[torch.Tensor]:
        made = type(op).reference(*(self.tensor(x) for x in op.operands))
        return [self.place(made, info_of(op.results[0]))]

    def assign(self, op: Any) -> list:
        target, value = op.operands
        if target not in self.places:
            raise ValueError("the target is neither an argument nor a view of one")
        place = self.places[target]
        contents = self.tensor(value).clone()
        memory = place.untyped_storage()
        old = memory.clone()
        for known in self.places:
            held = self.values[known]
            if held.untyped_storage().data_ptr() == memory.data_ptr():
                moved = torch.empty(0, dtype=held.dtype).set_(old, held.storage_offset(), held.shape, held.stride())
                self.values[known] = moved
        place.copy_(contents)
        return []

    # ---- ATen

    def aten(self, op: Any) -> list[Any]:
        name = attribute_value(op.attributes["op"])
        args, kwargs = aten_arguments.decode(
            attribute_value(op.attributes["args"]), [self.operand(x) for x in op.operands], self.symbols, self.objects
        )
        made = flat(call(aten_arguments.resolve(name), args, kwargs))
        aliases = symbols.parse_list(attribute_value(op.attributes["aliases"])) if op.results else ()
        return [
            self.aten_result(op, x, r, alias)
            for x, r, alias in zip(made if op.results else [], op.results, aliases, strict=True)
        ]

    def aten_result(self, op: Any, x: Any, result: ir.Value, alias: Int) -> Any:
        if not isinstance(x, torch.Tensor):
            if "mlirc.symbol" in op.attributes:
                self.symbols.setdefault(attribute_value(op.attributes["mlirc.symbol"]), x)
            return x
        info = info_of(result)
        for size, actual in zip(info.shape, x.shape, strict=True):
            solve(self.symbols, size, actual)  # one that depends on data is known from here on
        shape, stride = self.sizes(info.shape), self.sizes(info.stride)
        if tuple(x.shape) != shape or x.dtype != info.dtype:
            raise ValueError(f"gives {x.dtype} {tuple(x.shape)}; the result type says {info.dtype} {shape}")
        if info.layout != "strided":
            return x
        fits = x.numel() == 0 or all(a == b or n <= 1 for n, a, b in zip(shape, stride, x.stride(), strict=True))
        if alias != -1 and (x.numel() == 0 or shares_memory(x, self.tensor(op.operands[alias]))):
            if not fits:
                raise ValueError(f"gives a view with strides {x.stride()}; the result type says {stride}")
            place = self.places.get(op.operands[alias])
            if place is not None:
                memory = place.untyped_storage()
                self.places[result] = torch.empty(0, dtype=x.dtype).set_(memory, x.storage_offset(), shape, x.stride())
            return x
        owned = not any(shares_memory(x, held) for held in map(self.operand, op.operands) if torch.is_tensor(held))
        return x if fits and owned else self.place(x, info)

    # ---- kernels and the memory level

    def kernel(self, op: Any) -> list[torch.Tensor]:
        outputs = [self.empty(info_of(r)) for r in op.results]
        run_kernel(op, [self.tensor(x) for x in op.operands], outputs, self.symbols)
        return outputs

    def slot(self, op: Any) -> list[torch.Tensor]:
        info = info_of(op.results[0])
        offset = self.number(symbols.parse(attribute_value(op.attributes["offset"])))
        if offset % 64 or offset < 0:
            raise ValueError(f"the offset {offset} is no multiple of 64")
        empty = torch.empty(0, dtype=info.dtype)
        arena = self.arenas.get(info.device, empty)
        memory, first = arena.untyped_storage(), offset // info.dtype.itemsize
        shape = self.sizes(info.shape)
        if 0 in shape:
            return [torch.empty_strided(shape, self.sizes(info.stride), dtype=info.dtype)]
        end = offset + self.number(info.extent) * info.dtype.itemsize
        if end > arena.numel():
            raise ValueError(f"the slot ends at byte {end} of an arena of {arena.numel()}")
        return [empty.set_(memory, first, shape, self.sizes(info.stride))]

    def allocate(self, op: Any) -> list[torch.Tensor]:
        return [self.empty(info_of(op.results[0]))]

    def launch(self, op: Any) -> list:
        count = attribute_value(op.attributes["inputs"])
        operands = [self.tensor(x) for x in op.operands]
        if self.code is None or op.operation.name != "mlircx.run" or not self.code(op, operands, self.symbols):
            run_kernel(op, operands[:count], operands[count:], self.symbols)
        return []

    def call(self, op: Any) -> list:
        count = attribute_value(op.attributes["inputs"])
        callee = attribute_value(op.attributes["callee"])
        operands = [self.tensor(x) for x in op.operands]
        if callee in FLEX:
            if self.code is None or "kernel" not in op.attributes or not self.code(op, operands, self.symbols):
                made = run_flex(op, callee, operands[:count], self.symbols)
                for out, result in zip(operands[count:], made, strict=False):
                    out.copy_(result)
            return []
        if callee not in CALLEES:
            raise ValueError(f"no routine '{callee}'; there are {', '.join(CALLEES)}")
        attributes = {
            name: attribute_value(value)
            for name, value in op.attributes.items()
            if name not in ("callee", "inputs", "kernel", "symbols")
        }
        for out, made in zip(operands[count:], flat(CALLEES[callee](*operands[:count], **attributes)), strict=True):
            out.copy_(made)
        return []

    def regions(self, op: Any) -> list[torch.Tensor]:
        """An op with regions: its functions are executed as @graph is."""
        call = read_call(op)
        results = [self.tensor(x) if call.arenas else self.empty(info_of(x)) for x in call.results]
        length = self.number(call.length) if "length" in op.attributes else 0

        def run(function: Any, arguments: list[torch.Tensor]) -> None:
            _Interpreter(function, arguments, self.objects, self.observer, self.symbols, self.code).run()

        interpret(call, [self.tensor(x) for x in call.given], results, length, run)
        return [] if call.arenas else results

    def flex(self, op: Any) -> list[torch.Tensor]:
        name = op.operation.name.partition(".")[2]
        made = run_flex(op, name, [self.tensor(x) for x in op.operands], self.symbols)
        return [self.place(x, info_of(r)) for x, r in zip(made, op.results, strict=False)]

    def release(self, op: Any) -> list:
        self.operand(op.operands[0])
        del self.values[op.operands[0]]
        return []


def flat(made: Any) -> list[Any]:
    """What an operator returned as a list of its results: nested lists opened, None left out."""
    if made is None:
        return []
    if isinstance(made, (list, tuple)):
        return [leaf for item in made for leaf in flat(item)]
    return [made]


def first_line(location: ir.Location) -> str:
    """The first source line in an MLIR location, as "model.py:12"."""
    found = re.search(r'"((?:[^"\\]|\\.)*)":(\d+)', str(location))
    return f"{found[1]}:{found[2]}" if found else "unknown line"


def shares_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    if x.layout != torch.strided or y.layout != torch.strided:
        return False
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr() and x.untyped_storage().nbytes() > 0


HANDLERS: dict[str, Callable[[Any, Any], list[Any]]] = {
    "mlirc.constant": _Interpreter.constant,
    "mlirc.size": _Interpreter.size,
    "mlirc.iota": _Interpreter.iota,
    "mlirc.view": _Interpreter.view,
    "mlirc.copy": _Interpreter.copy,
    "mlirc.matmul": _Interpreter.matmul,
    "mlirc.addmm": _Interpreter.matmul,
    "mlirc.addmm_gelu": _Interpreter.matmul,
    "mlirc.assign": _Interpreter.assign,
    "mlircx.aten": _Interpreter.aten,
    "mlircx.aten_effect": _Interpreter.aten,
    "mlircx.kernel": _Interpreter.kernel,
    "mlirc.slot": _Interpreter.slot,
    "mlirc.allocate": _Interpreter.allocate,
    "mlircx.launch": _Interpreter.launch,
    "mlircx.run": _Interpreter.launch,
    "mlircx.call": _Interpreter.call,
    "mlirc.release": _Interpreter.release,
    **dict.fromkeys(REGION_OPS, _Interpreter.regions),
    **{f"mlircx.{name}": _Interpreter.flex for name in FLEX},
}
