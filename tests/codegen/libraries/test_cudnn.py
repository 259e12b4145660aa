"""Convolutions by cuDNN, as far as a machine without a GPU can tell: what cuDNN is asked for, and the code around it."""

import contextlib
import ctypes
import itertools

import pytest
import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.emit.stored_program import _convolution_from_data, _convolution_to_data
from mlirc.codegen.frame.gpu_calls import CudnnConvolution
from mlirc.codegen.libraries import cudnn, cudnn_runtime, gpu_library
from mlirc.codegen.libraries.cudnn import CudnnPlan, CudnnPlans, NoPlan, make_plan
from mlirc.codegen.llvm.machine_code import compile_ir, load_libraries
from mlirc.dialects.core.tensor_info import TensorInfo
from tests.memory_level import written as written_text

F16 = torch.float16


def last(shape: tuple[int, ...]) -> TensorInfo:
    _, c, h, w = shape
    return TensorInfo(F16, shape, (c * h * w, 1, w * c, c), "cuda:0")


X, W, Y = last((2, 3, 7, 5)), last((4, 3, 3, 2)), last((2, 4, 4, 3))
B = TensorInfo(F16, (4,), device="cuda:0")


def convolution(adds: bool = False, shifts: bool = False, relu: bool = False) -> CudnnConvolution:
    operands = (X, W, Y, *[Y] * adds, *[B] * shifts)
    return CudnnConvolution(operands, (2, 2), (1, 1), (1, 2), adds, shifts, relu)


class Library:
    """Keeps what descriptors are given, as cuDNN does; the first engine makes no plan, the second one does."""

    def __init__(self):
        self.kinds, self.attributes, self.final, self.numbers = {}, {}, set(), itertools.count(1)
        self.status, self.runs = 0, []

    def cudnnCreate(self, made):
        made._obj.value = 7
        return 0

    def cudnnBackendCreateDescriptor(self, kind, made):
        number = next(self.numbers)
        self.kinds[number], self.attributes[number] = kind, {}
        made._obj.value = number
        return 0

    def cudnnBackendSetAttribute(self, descriptor, name, type_, count, array):
        assert descriptor.value not in self.final and count.value == len(array)
        self.attributes[descriptor.value][name] = (type_, list(array))
        return 0

    def cudnnBackendFinalize(self, descriptor):
        given = self.attributes[descriptor.value]
        parts = [x for type_, values in given.values() if type_ == cudnn.DESCRIPTOR for x in values]
        if self.kinds[descriptor.value] == cudnn.PLAN and parts == [self.engines[0]]:
            return 3000
        assert all(x in self.final or self.kinds[x] == cudnn.ENGINECFG for x in parts)
        self.final.add(descriptor.value)
        return 0

    def cudnnBackendGetAttribute(self, descriptor, name, type_, size, count, array):
        count._obj.value = 1
        if name == cudnn.HEUR_RESULTS:
            self.engines, count._obj.value = list(array)[:2], 2
        else:
            array[0] = 640
        return 0

    def cudnnBackendDestroyDescriptor(self, descriptor):
        del self.kinds[descriptor.value]
        return 0

    def cudnnBackendExecute(self, *_):
        return 0

    cudnnSetStream = cudnnBackendExecute

    def value(self, descriptor: int, name: int):
        return self.attributes[descriptor][name][1][0]


@pytest.fixture
def library(monkeypatch):
    made = Library()
    monkeypatch.setattr(cudnn, "library", lambda: made)
    monkeypatch.setattr(cudnn, "_handles", cudnn.Handles(cudnn._new_handle))
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(gpu_library, "make_context_current", lambda index: None)
    monkeypatch.setattr(cudnn.ctypes, "cast", lambda function, type_: ctypes.c_void_p(1))
    return made


GRADIENTS = (cudnn.OPERATIONS[cudnn.DATA], cudnn.OPERATIONS[cudnn.FILTER])


def computed(lib: Library, memory: dict[int, torch.Tensor]) -> None:
    """Does what the operation graph says to tensors by their ids."""
    graph = next(n for n, given in lib.attributes.items() if cudnn.GRAPH_OPS in given)

    def number(tensor: int) -> int:
        return lib.value(tensor, cudnn.UNIQUE_ID)

    def store(tensor: int, value: torch.Tensor) -> None:
        given = lib.attributes[tensor]
        assert given[cudnn.DIMENSIONS][1] == list(value.shape)
        if lib.value(tensor, cudnn.IS_VIRTUAL):
            assert lib.value(tensor, cudnn.DATA_TYPE) == 0
            memory[number(tensor)] = value
        else:
            assert given[cudnn.STRIDES][1] == list(memory[number(tensor)].stride())
            memory[number(tensor)].copy_(value)

    for op in lib.attributes[graph][cudnn.GRAPH_OPS][1]:
        if lib.kinds.get(op, 0) == cudnn.OPERATION_CONVOLUTION or cudnn.CONVOLUTION_X in lib.attributes[op]:
            how = lib.attributes[lib.value(op, cudnn.CONVOLUTION_DESC)]
            x, w = (memory[number(lib.value(op, n))].double() for n in (cudnn.CONVOLUTION_X, cudnn.CONVOLUTION_W))
            assert how[cudnn.PRE_PADDINGS] == how[cudnn.POST_PADDINGS] and how[cudnn.CONVOLUTION_MODE][1] == [1]
            steps = (how[name][1] for name in (cudnn.STEPS, cudnn.PRE_PADDINGS, cudnn.DILATIONS))
            store(lib.value(op, cudnn.CONVOLUTION_Y), torch.nn.functional.conv2d(x, w, None, *steps))
            continue
        if gradient := next((names for _, names in GRADIENTS if names[0] in lib.attributes[op]), None):
            how = lib.attributes[lib.value(op, gradient[0])]
            x, w, dy = (lib.value(op, name) for name in gradient[1:4])
            steps = [how[name][1] for name in (cudnn.STEPS, cudnn.PRE_PADDINGS, cudnn.DILATIONS)]
            given = [memory[number(t)].double() for t in (x, w, dy)]
            if gradient[1] == cudnn.DATA_DX:
                store(x, torch.nn.grad.conv2d_input(given[0].shape, given[1], given[2], *steps))
            else:
                store(w, torch.nn.grad.conv2d_weight(given[0], given[1].shape, given[2], *steps))
            continue
        mode = lib.value(lib.value(op, cudnn.POINTWISE_DESC), cudnn.POINTWISE_MODE)
        x = memory[number(lib.value(op, cudnn.POINTWISE_X))]
        if mode == cudnn.RELU:
            x = x.relu()
        else:
            x = x + memory[number(lib.value(op, cudnn.POINTWISE_B))].double()
        store(lib.value(op, cudnn.POINTWISE_Y), x)


@pytest.mark.parametrize(("adds", "shifts", "relu"), list(itertools.product([False, True], repeat=3)))
def test_what_cudnn_is_asked_for(library, adds, shifts, relu):
    wanted = convolution(adds, shifts, relu)
    plan = make_plan(wanted)
    assert (plan.workspace, plan.handle, plan.count) == (640, 7, 3 + adds + shifts)
    assert set(library.kinds) == {plan.plan, library.engines[1]}
    assert library.attributes[plan.plan][cudnn.PLAN_ENGINECFG][1] == [library.engines[1]]
    tensors = [torch.randn(i.shape).to(F16).as_strided(i.shape, i.stride) if i.rank == 1 else
               torch.randn(i.shape).to(F16).to(memory_format=torch.channels_last) for i in wanted.operands]  # fmt: skip
    memory = dict(zip(plan.ids[: plan.count], tensors, strict=True))
    if shifts:
        memory[cudnn.IDS["b"]] = memory[cudnn.IDS["b"]].reshape(1, 4, 1, 1)
    computed(library, memory)
    x, w, y, *more = tensors
    expected = torch.nn.functional.conv2d(x.double(), w.double(), None, (2, 2), (1, 1), (1, 2))
    for other in more:
        expected = expected + other.double().reshape(other.shape if other.dim() == 4 else (1, 4, 1, 1))
    torch.testing.assert_close(y, (expected.relu() if relu else expected).to(F16))


def gradient(kind: str) -> CudnnConvolution:
    infos = {"x": X, "w": W, "y": Y}
    return CudnnConvolution(tuple(infos[n] for n in kind), (2, 2), (1, 1), (1, 2), False, False, False, kind)


@pytest.mark.parametrize("kind", [cudnn.DATA, cudnn.FILTER])
def test_which_gradients_cudnn_is_asked_for(library, kind):
    wanted = gradient(kind)
    plan = make_plan(wanted)
    tensors = [torch.randn(i.shape).to(F16).to(memory_format=torch.channels_last) for i in wanted.operands]
    computed(library, dict(zip(plan.ids[: plan.count], tensors, strict=True)))
    named = dict(zip(kind, (t.double() for t in tensors), strict=True))
    steps = (2, 2), (1, 1), (1, 2)
    if kind == cudnn.DATA:
        expected = torch.nn.grad.conv2d_input(X.shape, named["w"], named["y"], *steps)
    else:
        expected = torch.nn.grad.conv2d_weight(named["x"], W.shape, named["y"], *steps)
    torch.testing.assert_close(tensors[-1], expected.to(F16))


def test_plans_are_shared_and_refusals_kept(library):
    plans = CudnnPlans([convolution(), convolution(relu=True), convolution()])
    for k in range(3):
        plans(k)
    assert plans.slots[0] == plans.slots[2] != plans.slots[1]
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        plans = CudnnPlans([convolution()])
        plans(0)
        assert len(plans.refused) == 1 and CudnnPlan.from_address(plans.slots[0]).execute in (0, None)
        with pytest.raises(NoPlan):
            make_plan(convolution())


# ---- native code, with functions of our own in cuDNN's place

P, I32, I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


def test_native_code_runs_a_plan():
    """In memory of the CPU, which the shim's routines allocate as well."""
    load_libraries()
    code = compile_ir(cudnn_runtime.llvm_ir(), opt_level=0)
    convolve = ctypes.CFUNCTYPE(I32, *[P] * 7, *[I32] * 4, P, P)(code.address("convolve"))
    calls, status = [], [0]

    def noted(name, types):
        def function(*args):
            calls.append((name, *args))
            if name == "create":
                args[1][0] = 55
            if name == "set" and args[2] == cudnn.POINTER:
                calls[-1] = (name, args[1], list((I64 * args[3]).from_address(args[4])))
            return status[0] if name == "execute" else 0

        return ctypes.CFUNCTYPE(I32, *types)(function)

    types = {"create": [I32, ctypes.POINTER(P)], "set": [P, I32, I32, I64, P], "finalize": [P], "destroy": [P]}
    types |= {"set_stream": [P, P], "execute": [P, P, P]}
    functions = {name: noted(name, args) for name, args in types.items()}
    lock, head, place = I64(0), I64(0), P()
    plan = CudnnPlan(handle=3, lock=ctypes.addressof(lock), plan=4, workspace=96, count=4)
    for name, function in functions.items():
        setattr(plan, name, ctypes.cast(function, P).value)
    sizes, strides = (I64 * 4)(*Y.shape), (I64 * 4)(*Y.stride)
    device, index = shim.device_codes("cpu")
    codes = shim.dtype_code(F16), device, index, shim.dtype_code(torch.uint8)

    def run(x=64):
        words = ctypes.addressof(head), x, 128, None, 256, sizes, strides
        return convolve(*words, *codes, 99, ctypes.addressof(place))

    assert run() == cudnn_runtime.NO_PLAN and not place.value
    head.value = ctypes.addressof(plan)
    assert run(x=72) == cudnn_runtime.ATEN and not calls  # no multiple of 16 bytes
    assert run() == 0 and place.value and lock.value == 0
    assert ("execute", 3, 4, 55) in calls and ("set_stream", 3, 99) in calls and calls[-1] == ("destroy", 55)
    pointers = next(c[2] for c in calls if c[:2] == ("set", cudnn.PACK_POINTERS))
    address = P()
    assert shim.library().aoti_torch_get_data_ptr(place, ctypes.byref(address)) == 0
    assert pointers == [64, 128, address.value, 256]  # without z, b is the fourth
    assert next(c[2] for c in calls if c[:2] == ("set", cudnn.PACK_WORKSPACE)) != [0]
    shim.library().aoti_torch_delete_tensor_object(place)
    status[0] = 5000
    assert run() == cudnn_runtime.ATEN and not place.value and lock.value == 0 and calls[-1] == ("destroy", 55)
    lock.value = 1
    assert run() == cudnn_runtime.ATEN and not place.value and lock.value == 1  # another thread is at it
    plan.execute = 0
    assert run() == cudnn_runtime.ATEN


CALL = """
func.func @graph(%x: X, %w: W, %y: Y, %b: B) -> Y {{
  %0 = "mlircx.aten"({operands}) {{aliases = "-1", op = "aten.{name}.default", args = "[{args}]"}} : ({types}) -> Y
  return %0 : Y
}}"""
REF = "{{\\22$\\22: {}}}"
STEPS = "[2, 2], [1, 1], [1, 2]"


def written(name: str, operands: str, args: str, dtype: str = "f16"):
    letters = [o.strip()[1:] for o in operands.split(",")]
    text = CALL.format(operands=operands, name=name, args=args, types=", ".join(x.upper() for x in letters))
    for letter, info in (("X", X), ("W", W), ("Y", Y), ("B", B)):
        shape, stride = "x".join(map(str, info.shape)), ", ".join(map(str, info.stride))
        spread = f'stride = "{stride}"' if info.rank == 4 else ""
        parts = ", ".join(filter(None, ['device = "cuda:0"', spread]))
        text = text.replace(f"%{letter.lower()}: {letter}", f"%{letter.lower()}: T{letter}")
        for before in ("(", ", ", "-> ", ": ", "T"):
            text = text.replace(
                f"{before}{letter}", f"{'' if before == 'T' else before}tensor<{shape}x{dtype}, {{{parts}}}>"
            )
    return written_text(text)


def test_a_host_program_asks_for_its_convolutions():
    plain = written("convolution", "%x, %w", f"{REF.format(0)}, {REF.format(1)}, null, {STEPS}, false, [0, 0], 1")
    assert plain.convolutions == [convolution()] and {"convolve", "convolutions"} <= set(plain.links)
    relu = written("cudnn_convolution_relu", "%x, %w, %b", ", ".join([*map(REF.format, range(3)), STEPS, "1"]))
    assert relu.convolutions == [convolution(shifts=True, relu=True)]
    refs = [REF.format(k) for k in range(4)]
    add = written("cudnn_convolution_add_relu", "%x, %w, %y, %b", ", ".join([*refs[:3], "1.0", refs[3], STEPS, "1"]))
    assert add.convolutions == [convolution(True, True, True)]
    assert [_convolution_from_data(_convolution_to_data(c)) for c in add.convolutions] == add.convolutions


BACKWARD = """
func.func @graph(%y: TY, %x: TX, %w: TW) -> (TX, TW) {
  %0:2 = "mlircx.aten"(%y, %x, %w) {aliases = "-1, -1", op = "aten.convolution_backward.default", args = "[ARGS, MASK]"}
    : (TY, TX, TW) -> (TX, TW)
  return %0#0, %0#1 : TX, TW
}"""


def backward(mask: str = "[true, true, false]", groups: int = 1):
    args = ", ".join([*map(REF.format, range(3)), "null", STEPS, "false", "[0, 0]", str(groups)])
    text = BACKWARD.replace("ARGS", args).replace("MASK", mask)
    for name, info in (("TX", X), ("TW", W), ("TY", Y)):
        shape, stride = "x".join(map(str, info.shape)), ", ".join(map(str, info.stride))
        text = text.replace(name, f'tensor<{shape}xf16, {{device = "cuda:0", stride = "{stride}"}}>')
    return written_text(text)


def test_a_host_program_asks_for_gradients():
    made = backward()
    assert made.convolutions == [gradient(cudnn.DATA), gradient(cudnn.FILTER)]
    assert [_convolution_from_data(_convolution_to_data(c)) for c in made.convolutions] == made.convolutions
    assert backward(groups=3).convolutions == []


def test_what_cudnn_is_not_asked_for():
    args = f"{REF.format(0)}, {REF.format(1)}, null, {STEPS}, false, [0, 0], "
    assert written("convolution", "%x, %w", args + "1", dtype="f32").convolutions == []
    assert written("convolution", "%x, %w", args + "3").convolutions == []  # groups
