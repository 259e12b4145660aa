"""Convolutions by cuDNN, called straight from host programs: execution plans, which are made once.

An ATen call of cuDNN costs some 40 us of host time a convolution, which is more than most of ResNet's take on an H200. A plan
is a graph of cuDNN operations with the engine chosen for it; native code (cudnn_runtime.py) gives it addresses and runs it.

    y = relu(convolution(x, w) + z + b)      sums in float32, rounded once; z, b and relu may be missing
    x's gradient by y's and w; w's gradient by x and y's

Source: cudnn_graph.h of cuDNN 9, and ATen/native/cudnn/ConvShared.cpp and Conv_v8.cpp for what PyTorch asks of it.
"""

import ctypes
import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from mlirc.codegen.frame.gpu_calls import DATA, FILTER, FORWARD, CudnnConvolution
from mlirc.codegen.libraries.gpu_library import Handles, NoPlan, loaded
from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.dialects.lazy_dataclass import dataclass

log = logging.getLogger("mlirc")

DATA_TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 9}  # cudnnDataType_t
MOST_WORKSPACE = 128 << 20  # bytes
ALIGNMENT = 16  # bytes: of every address
ENGINES = 8  # that cuDNN is asked for; the first that makes a plan is taken
NAMES = ("libcudnn.so.9",)

# cudnnBackendDescriptorType_t
POINTWISE, CONVOLUTION, ENGINECFG, ENGINEHEUR, PLAN = 0, 1, 3, 4, 5
OPERATION_CONVOLUTION, OPERATION_BACKWARD_FILTER, OPERATION_BACKWARD_DATA = 10, 11, 12
OPERATION_POINTWISE, OPERATION_GRAPH, VARIANT_PACK, TENSOR = 13, 15, 16, 17
# cudnnBackendAttributeName_t: first numbers of each descriptor's
POINTWISE_MODE, POINTWISE_MATH, POINTWISE_NAN = 0, 1, 2
COMPUTE, CONVOLUTION_MODE, DILATIONS, STEPS, POST_PADDINGS, PRE_PADDINGS, SPATIAL = range(100, 107)
HEUR_MODE, HEUR_GRAPH, HEUR_RESULTS = range(200, 203)
PLAN_HANDLE, PLAN_ENGINECFG, PLAN_WORKSPACE = range(400, 403)
CONVOLUTION_ALPHA, CONVOLUTION_BETA, CONVOLUTION_DESC, CONVOLUTION_W, CONVOLUTION_X, CONVOLUTION_Y = range(700, 706)
DATA_ALPHA, DATA_BETA, DATA_DESC, DATA_W, DATA_DX, DATA_DY = range(706, 712)
FILTER_ALPHA, FILTER_BETA, FILTER_DESC, FILTER_DW, FILTER_X, FILTER_DY = range(712, 718)
POINTWISE_DESC, POINTWISE_X, POINTWISE_B, POINTWISE_Y = range(750, 754)
GRAPH_HANDLE, GRAPH_OPS = 800, 801
BYTE_ALIGNMENT, DATA_TYPE, DIMENSIONS, STRIDES = range(900, 904)
UNIQUE_ID, IS_VIRTUAL = 906, 907
PACK_IDS, PACK_POINTERS, PACK_WORKSPACE = 1000, 1001, 1003
# cudnnBackendAttributeType_t, and what C has for them
HANDLE, OF_DATA_TYPE, BOOLEAN, INT64, FLOAT, POINTER, OF_CONVOLUTION, OF_HEUR, OF_NAN, OF_POINTWISE, DESCRIPTOR = (
    0, 1, 2, 3, 4, 6, 7, 8, 10, 14, 15,
)  # fmt: skip
C_TYPES = {BOOLEAN: ctypes.c_bool, INT64: ctypes.c_int64, FLOAT: ctypes.c_float} | dict.fromkeys(
    (HANDLE, POINTER, DESCRIPTOR), ctypes.c_void_p
)
ADD, RELU = 0, 100  # cudnnPointwiseMode_t
PROPAGATE = 1  # cudnnNanPropagation_t: relu(NaN) is NaN
CROSS_CORRELATION = 1
HEUR_MODE_A = 3
OPERATIONS = {  # the descriptor of each kind, and the names of its attributes
    FORWARD: (
        OPERATION_CONVOLUTION,
        (CONVOLUTION_DESC, CONVOLUTION_X, CONVOLUTION_W, CONVOLUTION_Y, CONVOLUTION_ALPHA, CONVOLUTION_BETA),
    ),
    DATA: (OPERATION_BACKWARD_DATA, (DATA_DESC, DATA_DX, DATA_W, DATA_DY, DATA_ALPHA, DATA_BETA)),
    FILTER: (OPERATION_BACKWARD_FILTER, (FILTER_DESC, FILTER_X, FILTER_DW, FILTER_DY, FILTER_ALPHA, FILTER_BETA)),
}
IDS = {"x": 1, "w": 2, "y": 3, "z": 4, "b": 5}


class CudnnPlan(ctypes.Structure):
    """What `convolve` of cudnn_runtime.py takes, in slots of 8 bytes; `execute` is null where ATen is to do it.

    lock   of the handle: 1 while a thread uses it
    ids    of the tensors, in the order of `count` pointers
    """

    _fields_ = [(name, ctypes.c_int64) for name in (
        "execute", "create", "set", "finalize", "destroy", "set_stream", "handle", "lock", "plan", "workspace", "count",
    )] + [("ids", ctypes.c_int64 * len(IDS))]  # fmt: skip


class CudnnPlans:
    """Makes the plans of a program's convolutions when native code comes to each for the first time.

    slots   one for each convolution: the address of its plan, 0 at first
    """

    def __init__(self, convolutions: Sequence[CudnnConvolution], refused: list[str] | None = None):
        self.convolutions = list(convolutions)
        self.slots = (ctypes.c_int64 * max(len(self.convolutions), 1))()
        self.refused = [] if refused is None else refused
        self._plans: dict[CudnnConvolution, CudnnPlan] = {}  # equal ones share theirs
        self._old: list[Any] = []  # plans that another thread may be reading
        self._lock = fork_lock()

    @property
    def address(self) -> int:
        return ctypes.addressof(self.slots)

    def __call__(self, number: int) -> tuple[()]:
        """Makes the plan of convolution `number`. Never raises NoPlan."""
        wanted = self.convolutions[number]
        with self._lock:
            if wanted not in self._plans:
                self._plans[wanted] = self._made(wanted)
            self.slots[number] = ctypes.addressof(self._plans[wanted])
        return ()

    def forget(self) -> None:
        """PyTorch's settings are others: plans are made anew."""
        with self._lock:
            self.slots[:] = [0] * len(self.slots)
            self._old.append(self._plans)
            self._plans = {}

    def make_all(self) -> None:
        """Makes them all now: some take tens of milliseconds, in which Python may do something else."""
        for number in range(len(self.convolutions)):
            self(number)

    def _made(self, wanted: CudnnConvolution) -> CudnnPlan:
        try:
            return make_plan(wanted)
        except NoPlan as reason:
            self.refused.append(str(reason))
            log.info("mlirc: a convolution is left to ATen: %s", reason)
            return CudnnPlan()


def make_plan(wanted: CudnnConvolution) -> CudnnPlan:
    """Describes the convolution to cuDNN and takes the engine that it thinks best. Raises NoPlan."""
    check_settings()
    lib, device = library(), handle(wanted.device)
    with torch.cuda.device(wanted.device), Descriptors() as made:
        graph = operation_graph(made, wanted, device.handle)
        best, workspace = best_plan(made, graph, device.handle)
        plan = CudnnPlan(handle=device.handle, lock=ctypes.addressof(device.lock), plan=best, workspace=workspace)
    for name, function in (
        ("execute", lib.cudnnBackendExecute),
        ("create", lib.cudnnBackendCreateDescriptor),
        ("set", lib.cudnnBackendSetAttribute),
        ("finalize", lib.cudnnBackendFinalize),
        ("destroy", lib.cudnnBackendDestroyDescriptor),
        ("set_stream", lib.cudnnSetStream),
    ):
        setattr(plan, name, ctypes.cast(function, ctypes.c_void_p).value)
    plan.count = len(wanted.names)
    plan.ids[: plan.count] = [IDS[name] for name in wanted.names]
    return plan


def check_settings() -> None:
    """Raises NoPlan where PyTorch's settings ask for more than cuDNN's own choice."""
    cudnn = torch.backends.cudnn
    if not cudnn.enabled or cudnn.benchmark or cudnn.deterministic or torch.are_deterministic_algorithms_enabled():
        raise NoPlan("PyTorch's settings ask for another choice of algorithms")


# ---- what cuDNN is asked for


class Descriptors:
    """cuDNN's descriptors, which are destroyed when the block ends, but for those that are kept."""

    def __init__(self):
        self.alive: list[int] = []

    def __enter__(self) -> "Descriptors":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in reversed(self.alive):
            library().cudnnBackendDestroyDescriptor(ctypes.c_void_p(descriptor))

    def keep(self, descriptor: int, *needed: int) -> int:
        """The descriptor, which lives on, as do those that it needs."""
        for retained in (descriptor, *needed):
            self.alive.remove(retained)
        return descriptor

    def new(self, kind: int, *attributes: tuple[int, int, Any]) -> int:
        """A finalized descriptor; an attribute is its name, its type, and a value or several. Raises NoPlan."""
        descriptor = self.empty(kind)
        for name, type_, values in attributes:
            values = values if isinstance(values, (tuple, list)) else [values]
            array = (C_TYPES.get(type_, ctypes.c_int32) * len(values))(*values)
            count = ctypes.c_int64(len(values))
            call("BackendSetAttribute", ctypes.c_void_p(descriptor), name, type_, count, array)
        call("BackendFinalize", ctypes.c_void_p(descriptor))
        return descriptor

    def empty(self, kind: int) -> int:
        made = ctypes.c_void_p()
        call("BackendCreateDescriptor", kind, ctypes.byref(made))
        self.alive.append(made.value or 0)
        return made.value or 0


def operation_graph(made: Descriptors, wanted: CudnnConvolution, handle: int) -> int:
    """The convolution and what follows it."""
    infos = dict(zip(wanted.names, wanted.operands, strict=True))
    y = infos["y"]
    steps = "z" * wanted.adds + "b" * wanted.shifts + "r" * wanted.relu
    outs = [tensor(made, y.shape, y.stride, torch.float32, 100 + k, virtual=True) for k in range(len(steps))]
    outs.append(tensor(made, y.shape, y.stride, y.dtype, IDS["y"]))
    x, w = (tensor(made, infos[n].shape, infos[n].stride, infos[n].dtype, IDS[n]) for n in "xw")
    how = made.new(
        CONVOLUTION,
        (SPATIAL, INT64, 2),
        (COMPUTE, OF_DATA_TYPE, DATA_TYPES[torch.float32]),
        (CONVOLUTION_MODE, OF_CONVOLUTION, CROSS_CORRELATION),
        (PRE_PADDINGS, INT64, wanted.padding),
        (POST_PADDINGS, INT64, wanted.padding),
        (DILATIONS, INT64, wanted.dilation),
        (STEPS, INT64, wanted.stride),
    )
    operation, names = OPERATIONS[wanted.kind]
    types = (DESCRIPTOR, DESCRIPTOR, DESCRIPTOR, DESCRIPTOR, FLOAT, FLOAT)
    values = (how, x, w, outs[0], 1.0, 0.0)
    convolution = made.new(operation, *zip(names, types, values, strict=True))
    operations = [convolution]
    for step, before, after in zip(steps, outs, outs[1:], strict=False):
        other = []
        if step == "z":
            other = [tensor(made, infos["z"].shape, infos["z"].stride, infos["z"].dtype, IDS["z"])]
        elif step == "b":
            count = y.shape[1]
            other = [tensor(made, (1, count, 1, 1), (count, 1, count, count), infos["b"].dtype, IDS["b"])]
        operations.append(pointwise(made, RELU if step == "r" else ADD, before, other, after))
    return made.new(OPERATION_GRAPH, (GRAPH_OPS, DESCRIPTOR, operations), (GRAPH_HANDLE, HANDLE, handle))


def tensor(
    made: Descriptors, shape: Sequence[Any], stride: Sequence[Any], dtype: torch.dtype, id_: int, virtual: bool = False
) -> int:
    return made.new(
        TENSOR,
        (DATA_TYPE, OF_DATA_TYPE, DATA_TYPES[dtype]),
        (DIMENSIONS, INT64, list(shape)),
        (STRIDES, INT64, list(stride)),
        (UNIQUE_ID, INT64, id_),
        (BYTE_ALIGNMENT, INT64, ALIGNMENT),
        (IS_VIRTUAL, BOOLEAN, virtual),
    )


def pointwise(made: Descriptors, mode: int, x: int, other: list[int], y: int) -> int:
    how = made.new(
        POINTWISE,
        (POINTWISE_MODE, OF_POINTWISE, mode),
        (POINTWISE_MATH, OF_DATA_TYPE, DATA_TYPES[torch.float32]),
        *([(POINTWISE_NAN, OF_NAN, PROPAGATE)] if mode == RELU else []),
    )
    operands = [(POINTWISE_X, DESCRIPTOR, x), *((POINTWISE_B, DESCRIPTOR, z) for z in other)]
    return made.new(OPERATION_POINTWISE, (POINTWISE_DESC, DESCRIPTOR, how), *operands, (POINTWISE_Y, DESCRIPTOR, y))


def best_plan(made: Descriptors, graph: int, handle: int) -> tuple[int, int]:
    """The plan of the first engine that takes the graph, and its bytes of workspace. Raises NoPlan."""
    heuristics = made.new(ENGINEHEUR, (HEUR_GRAPH, DESCRIPTOR, graph), (HEUR_MODE, OF_HEUR, HEUR_MODE_A))
    room = [made.empty(ENGINECFG) for _ in range(ENGINES)]
    for engine in got(heuristics, HEUR_RESULTS, DESCRIPTOR, room):
        try:
            plan = made.new(PLAN, (PLAN_HANDLE, HANDLE, handle), (PLAN_ENGINECFG, DESCRIPTOR, engine))
            (workspace,) = got(plan, PLAN_WORKSPACE, INT64, [0])
        except NoPlan:
            continue
        if workspace <= MOST_WORKSPACE:
            return made.keep(plan, engine), workspace
    raise NoPlan("cuDNN has no engine for it")


def got(descriptor: int, name: int, type_: int, room: list[int]) -> list[int]:
    """An attribute's values, at most as many as there is room for; descriptors are filled in."""
    array, count = (C_TYPES[type_] * len(room))(*room), ctypes.c_int64()
    size = ctypes.c_int64(len(room))
    call("BackendGetAttribute", ctypes.c_void_p(descriptor), name, type_, size, ctypes.byref(count), array)
    return list(array)[: count.value]


# ---- the library


def call(name: str, *args: Any) -> None:
    """Raises NoPlan where it fails."""
    status = getattr(library(), f"cudnn{name}")(*args)
    if status:
        raise NoPlan(f"cudnn{name} failed with status {status}")


@cache
def library() -> ctypes.CDLL:
    """The cuDNN that PyTorch has loaded. Raises NoPlan where it has none."""
    return loaded("cuDNN 9", NAMES)


@dataclass
class Handle:
    """cuDNN's handle for a GPU, which one thread at a time may use: `lock` is 1 meanwhile."""

    handle: int
    lock: Any


def _new_handle() -> Handle:
    made = ctypes.c_void_p()
    call("Create", ctypes.byref(made))
    return Handle(made.value or 0, ctypes.c_int64(0))


_handles: Handles[Handle] = Handles(_new_handle)


def handle(device: int) -> Handle:
    """The process's handle for GPU number `device`. Raises NoPlan."""
    return _handles.of(device)
