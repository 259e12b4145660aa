"""Runs Triton kernels in Triton's interpreter, in a process of its own: an environment variable selects it before Triton is imported.

Run as a program, it takes calls of `run_kernel` from standard input, pickled, and gives what they return to standard output,
until its input is closed (triton_code.py).
"""

import os
import pickle
import sys
from functools import cache
from typing import Any

import numpy


def serve() -> None:
    """Answers calls until standard input ends. What else would be printed goes to standard error."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    start()
    while True:
        try:
            arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = run_kernel(*arguments)
        except Exception as error:
            answer = " ".join(f"{type(error).__name__}: {error}".split())
        pickle.dump(answer, answers)
        answers.flush()


def start() -> None:
    """Selects Triton's interpreter in this process, and adds what it lacks. Called once, before anything imports Triton."""
    os.environ["TRITON_INTERPRET"] = "1"
    import torch
    import triton.language as tl
    import triton.runtime.interpreter

    interpreter: Any = triton.runtime.interpreter
    torch.set_num_threads(1)
    interpreter.ReduceOps.generic_reduce = _reduce
    interpreter.ScanOps.generic_scan = _scan
    patch = interpreter._patch_lang_tensor

    def patch_for_numpy(tensor: Any, scope: Any) -> None:  # int() of an array takes a 0-d one only
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_for_numpy
    convert = interpreter._implicit_cvt

    def convert_as_i64(argument: Any) -> Any:  # the signature's dtype; the interpreter takes the narrowest
        if isinstance(argument, int):
            return tl.tensor(interpreter.TensorHandle(numpy.array([argument]), tl.int64), tl.int64)
        return convert(argument)

    interpreter._implicit_cvt = convert_as_i64
    cast = interpreter.InterpreterBuilder.cast_impl

    def cast_as_torch(self: Any, x: Any, dtype: Any) -> Any:  # GPUs round to bfloat16; the interpreter truncates
        if (x.dtype.scalar, dtype.scalar) != (tl.float32, tl.bfloat16):
            return cast(self, x, dtype)
        bits = torch.from_numpy(numpy.ascontiguousarray(x.data)).bfloat16().view(torch.int16)
        return interpreter.TensorHandle(bits.numpy().view(numpy.uint16), tl.bfloat16)

    interpreter.InterpreterBuilder.cast_impl = cast_as_torch
    interpreter.InterpreterBuilder.create_dot = _dot
    numpy.seterr(all="ignore")  # tests compute with overflow, infinities and NaN on purpose


def _dot(self: Any, a: Any, b: Any, total: Any, *options: Any) -> Any:
    """`tl.dot`. NumPy has no bfloat16: such factors are arrays of bits, which are widened here."""
    from triton.runtime import interpreter

    def wide(x: Any) -> numpy.ndarray:
        bits = x.data.dtype == numpy.uint16
        return (x.data.astype(numpy.uint32) << 16).view(numpy.float32) if bits else x.data.astype(numpy.float32)

    return interpreter.TensorHandle(wide(a) @ wide(b) + total.data, total.dtype.scalar)


def _reduce(self: Any, inputs: Any) -> list[Any]:
    """A reduction that halves the axis at each step; the interpreter's own takes a step for each element."""
    state, length = list(inputs), inputs[0].handle.data.shape[self.axis]
    while length > 1:
        even, odd = ([_part(self, x, slice(k, None, 2)) for x in state] for k in (0, 1))
        state, length = _combined(self, even, odd), length // 2
    found = [x.handle.data if self.keep_dims else x.handle.data.squeeze(self.axis) for x in state]
    return [self.to_tensor(x if x.ndim else x.item(), i.dtype) for x, i in zip(found, inputs, strict=True)]


def _scan(self: Any, inputs: Any) -> list[Any]:
    """A scan that doubles the distance of what it combines at each step; the interpreter's own takes a step for each element."""
    state, length, step = list(inputs), inputs[0].handle.data.shape[self.axis], 1
    while step < length:
        before = [self.to_tensor(numpy.roll(x.handle.data, step, self.axis), x.dtype) for x in state]
        made = zip(state, _combined(self, before, state), strict=True)
        state = [
            self.to_tensor(_from(new.handle.data, step, self.axis, old.handle.data), old.dtype) for old, new in made
        ]
        step *= 2
    return state


def _from(new: numpy.ndarray, first: int, axis: int, old: numpy.ndarray) -> numpy.ndarray:
    """`new` from index `first` of the axis on, `old` before."""
    return numpy.concatenate([old.take(range(first), axis), new.take(range(first, new.shape[axis]), axis)], axis)


def _part(self: Any, x: Any, part: slice) -> Any:
    places = tuple(part if k == self.axis else slice(None) for k in range(x.handle.data.ndim))
    return self.to_tensor(x.handle.data[places], x.dtype)


def _combined(self: Any, a: list[Any], b: list[Any]) -> list[Any]:
    made = self.combine_fn.fn(*a, *b)
    return list(made) if isinstance(made, tuple) else [made]


def _int_rz(x: Any) -> Any:
    """float2int_rz and double2int_rz, which are PTX's cvt.rzi.s32: rounds toward zero, and clamps to int32. NaN gives 0 in float32,
    the lowest integer in float64."""
    import torch

    nan = 0 if x.dtype == torch.float32 else -(2.0**31)
    return x.double().nan_to_num(nan).clamp(-(2.0**31), 2.0**31 - 1).to(torch.int32)


def _ll_rz(x: Any) -> Any:
    """float2ll_rz and double2ll_rz: rounds toward zero, and clamps to int64. NaN gives the lowest integer."""
    import torch

    inside = x.double().abs() < 2.0**63
    limits = torch.iinfo(torch.int64)
    return torch.where(inside, torch.where(inside, x, 0.0).to(torch.int64), torch.where(x > 0, limits.max, limits.min))


class _Libdevice:
    """The functions of CUDA's libdevice, computed by torch: the interpreter cannot call them."""

    TORCH_NAMES = {"rint": "round", "fast_dividef": "div"}  # where torch has another name

    def __getattr__(self, name: str) -> Any:
        import torch
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        if "2" in name and name.endswith("_rz"):
            function = _int_rz if "2int" in name else _ll_rz
        else:
            function = getattr(torch, self.TORCH_NAMES.get(name, name))

        def call(*operands: Any) -> Any:
            blocks = [x for x in operands if not isinstance(x, float)]
            data = [torch.tensor(x) if isinstance(x, float) else torch.from_numpy(x.handle.data) for x in operands]
            out = function(*data).numpy()
            integer = (
                {"int32": tl.int32, "int64": tl.int64}.get(out.dtype.name) if function in (_int_rz, _ll_rz) else None
            )
            dtype = integer or blocks[0].dtype.scalar
            shaped = any(x.type.is_block() for x in blocks)
            return tl.core.tensor(TensorHandle(out, dtype), tl.block_type(dtype, list(out.shape)) if shaped else dtype)

        return call


@cache
def interpreted(source: str, name: str) -> Any:
    """The kernel of that name in Triton code, to be called as `kernel[grid](...)`."""
    from mlirc.codegen.cuda.triton_worker import load_function

    function = load_function(source, name)
    function.fn.__globals__["libdevice"] = _Libdevice()
    return function


def run_kernel(
    source: str,
    name: str,
    constants: dict[str, int],
    grid: list[int],
    memory: list[numpy.ndarray],
    arguments: list[Any],
) -> list[numpy.ndarray]:
    """The memory after the run: `memory` is a list of byte arrays, an argument a number, or (which memory, first byte, torch dtype)."""
    import torch

    held = [torch.from_numpy(x.copy()) for x in memory]
    values = []
    for argument in arguments:
        if isinstance(argument, tuple):
            where, first, dtype = argument
            argument = held[where][first:].view(getattr(torch, dtype))
        values.append(argument)
    if all(grid):
        # no instructions of PTX's; and a bad index is written to memory for the caller to raise, and ends nothing
        zero = dict.fromkeys(constants.keys() & {"TRAP", "PTX"}, 0)
        interpreted(source, name)[tuple(grid)](*values, **constants | zero)
    return [x.numpy() for x in held]


if __name__ == "__main__":
    serve()
