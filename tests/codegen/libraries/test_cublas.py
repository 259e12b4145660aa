"""Products by cuBLASLt, as far as a machine without a GPU can tell: what cuBLAS is asked for, and the code around it."""

import ctypes
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from mlirc.codegen.frame.gpu_calls import CublasMatmul
from mlirc.codegen.host.host_program import HostProgram
from mlirc.codegen.libraries import cublas, cublas_plans, cublas_runtime
from mlirc.codegen.libraries.cublas import KEY, CublasPlan
from mlirc.codegen.libraries.cublas_plans import CublasPlans
from mlirc.codegen.libraries.cublas_problem import CublasMatrix, Problem, problem_of
from mlirc.codegen.libraries.gpu_library import NoPlan
from mlirc.codegen.llvm.machine_code import compile_ir, load_libraries
from mlirc.dialects.core import symbols
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.frontend.performance import gpu_libraries
from tests.memory_level import written as written_text

F32 = torch.float32


def by_columns(memory: torch.Tensor, matrix: CublasMatrix, batch: int) -> torch.Tensor:
    """What cuBLAS reads: element (i, j) at i + j * lead."""
    return memory.as_strided((batch, matrix.rows, matrix.columns), (matrix.step, 1, matrix.lead))


def computed(problem: Problem, memory: list[torch.Tensor]) -> None:
    """d = op(a) op(b) (+ c or a bias), written to the last of `memory`, whose order is the product's."""
    *addend, a, b, out = memory
    first, second = (b, a) if problem.swapped else (a, b)
    x, y = (by_columns(m, how, problem.batch) for m, how in ((first, problem.a), (second, problem.b)))
    x = x.mT if problem.transpose_a else x
    y = y.mT if problem.transpose_b else y
    result = x @ y
    if addend:
        more = addend[0][: problem.d.rows, None] if problem.bias else by_columns(addend[0], problem.c, problem.batch)
        result = result + more
    by_columns(out, problem.d, problem.batch).copy_(result)


@st.composite
def strided(draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense, a transposed, or a padded tensor of `shape`."""
    *batch, rows, columns = shape
    lead = draw(st.sampled_from([0, 3]))
    transposed = draw(st.booleans())
    inner = (1, rows + lead) if transposed else (columns + lead, 1)
    size = (columns if transposed else rows) * max(inner)
    return (*([size + draw(st.sampled_from([0, 5]))] if batch else []), *inner)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_cublas_is_asked_for_is_the_product(data):
    m, n, k = (data.draw(st.sampled_from([1, 2, 5])) for _ in range(3))
    batch = [data.draw(st.integers(2, 3))] if data.draw(st.booleans()) else []
    addend = data.draw(st.sampled_from([None, "bias", "matrix"]))
    if addend == "bias" and batch:
        addend = None
    shapes = [(*batch, m, k), (*batch, k, n), (*batch, m, n)]
    strides = [data.draw(strided(shape)) for shape in shapes]
    if addend == "matrix":
        strides.insert(0, data.draw(strided(shapes[-1])))
        shapes.insert(0, shapes[-1])
    elif addend == "bias":
        shapes.insert(0, (n,))
        strides.insert(0, (1,))
    memory = [torch.randn(400, dtype=torch.float64) for _ in shapes]
    tensors = [x.as_strided(shape, stride) for x, shape, stride in zip(memory, shapes, strides, strict=True)]
    infos = tuple(TensorInfo(F32, s, t, "cuda:0") for s, t in zip(shapes, strides, strict=True))
    try:
        problem = problem_of(CublasMatmul(infos, ()), ())
    except NoPlan:
        assert addend  # only where an addend lies otherwise than the result
        return
    for matrix in (problem.a, problem.b, problem.c, problem.d):
        assert matrix.lead >= matrix.rows  # as cuBLAS demands
    expected = tensors[-3] @ tensors[-2]
    if addend:
        expected = expected + tensors[0]
    before = memory[-1].clone()
    computed(problem, memory)
    torch.testing.assert_close(tensors[-1], expected)
    tensors[-1].copy_(before.as_strided(shapes[-1], strides[-1]))
    assert torch.equal(memory[-1], before)  # nothing beside the result was written


def test_symbolic_sizes_and_what_cublas_has_no_words_for():
    s = symbols.symbol("s0")
    x, w = TensorInfo(F32, (s, 8), device="cuda:0"), TensorInfo(F32, (8, 16), (1, 8), "cuda:0")
    out = TensorInfo(F32, (s, 16), device="cuda:0")
    problem = problem_of(CublasMatmul((x, w, out), ("s0",)), (5,))
    assert problem.d == CublasMatrix(16, 5, 16, 0) and problem.a == CublasMatrix(8, 16, 8, 0) and problem.transpose_a
    with pytest.raises(NoPlan, match="empty"):
        problem_of(CublasMatmul((x, w, out), ("s0",)), (0,))
    apart = TensorInfo(F32, (s, 8), (32, 2), "cuda:0")
    with pytest.raises(NoPlan, match="dense"):
        problem_of(CublasMatmul((apart, w, out), ("s0",)), (5,))


# ---- native code, with a library of our own in cuBLAS's place

CREATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_int)
SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
DESTROY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
POINTER = ctypes.c_void_p
MATMUL = ctypes.CFUNCTYPE(ctypes.c_int, *[POINTER] * 14, ctypes.c_size_t, POINTER)


@pytest.fixture
def native():
    load_libraries()
    code = compile_ir(cublas_runtime.llvm_ir(), opt_level=0)
    types = [POINTER, ctypes.c_int64, *[POINTER] * 6, *[ctypes.c_int32] * 3, POINTER]
    yield ctypes.CFUNCTYPE(ctypes.c_int32, *types)(code.address("multiply")), code


class Library:
    """Notes what is called; `status` is what every call gives."""

    def __init__(self):
        self.calls, self.settings, self.status, self.live = [], {}, 0, 0
        self.functions = {
            "matmul": MATMUL(self.multiply),
            "desc_create": CREATE(self.create),
            "desc_set": SET(self.set),
        }
        self.functions["desc_destroy"] = DESTROY(self.destroy)

    def multiply(self, *args):
        self.calls.append(args)
        return self.status

    def create(self, made, compute, scale):
        made[0] = 77
        self.live += 1
        return 0

    def set(self, desc, attribute, value, size):
        kind = ctypes.c_int64 if size == 8 else ctypes.c_int32
        self.settings[attribute] = kind.from_address(value).value
        return 0

    def destroy(self, desc):
        self.live -= 1
        return 0


def prepared(monkeypatch, bias: bool):
    """Plans whose descriptors are numbers, and the library that they call."""
    library = Library()

    def fill(plan, product, alignment, values):
        for name, function in library.functions.items():
            setattr(plan, name, ctypes.cast(function, POINTER).value)
        plan.handle, plan.desc, plan.a, plan.b, plan.c, plan.d = range(1, 7)
        plan.has_bias, plan.swapped, plan.transpose_a, plan.beta = bias, True, 1, cublas.float_bits(1.0)
        plan.epilogue = cublas.EPILOGUE_GELU_BIAS
        if values == (13,):
            raise NoPlan("thirteen")

    monkeypatch.setattr(cublas_plans, "fill", fill)
    info = TensorInfo(F32, (4, 4), device="cuda:0")
    return CublasPlans([CublasMatmul((info,) * 3, ("s0",))] * 2), library


@pytest.mark.parametrize("bias", [False, True])
def test_plans_are_found_by_sizes_and_alignment(native, monkeypatch, bias):
    multiply, _ = native
    plans, library = prepared(monkeypatch, bias)
    head, key = plans.address + 8, (ctypes.c_int64 * 2)()

    def call(size, a=1 << 20, vector=1 << 16):
        key[1] = size
        return multiply(head, 2, key, a, 1 << 21, 1 << 22, 1 << 22, vector if bias else 0, 0, 0, 0, 99)

    assert call(5) == cublas_runtime.NO_PLAN and key[0] == 256
    assert plans(1, 256, 5) == ()
    assert call(5) == 0 and len(library.calls) == 1
    assert call(6) == cublas_runtime.NO_PLAN
    assert call(5, a=(1 << 20) + 16) == cublas_runtime.NO_PLAN and key[0] == 16
    plans(1, 16, 5), plans(1, 256, 13)
    assert call(5, a=(1 << 20) + 16) == 0 and call(5) == 0 and call(13) == cublas_runtime.ATEN
    assert plans.refused == ["thirteen"]
    assert plans.slots[0] == 0  # the other product has none
    handle, desc, _, first, a, second, b, _, c, c_layout, d, d_layout, _, scratch, size, stream = library.calls[1]
    assert (handle, desc, a, b, c_layout, d_layout, stream) == (1, 77 if bias else 2, 3, 4, 5, 6, 99)
    assert (first, second, c, d) == (1 << 21, (1 << 20) + 16, 1 << 22, 1 << 22)
    assert (scratch, size) == (None, 0)
    if bias:
        assert library.settings == {3: 1, 4: 0, 7: cublas.EPILOGUE_GELU_BIAS, 8: 1 << 16} and library.live == 0
    library.status = 15
    assert call(5) == cublas_runtime.ATEN and library.live == 0


def test_the_key_follows_the_fields():
    assert ctypes.sizeof(CublasPlan) == 8 * KEY and "FIELD" not in cublas_runtime.llvm_ir()


MODULE = """
func.func @graph(%x: X, %w: W, %b: B) -> O attributes {mlirc.arena = "0", mlirc.device_arenas = {"cuda:0" = "64*s0"}} {
  %0 = "mlirc.slot"() {offset = "0"} : () -> O
  "mlircx.call"(%b, %x, %w, %0) {callee = "addmm", inputs = 3 : i64} : (B, X, W, O) -> ()
  %1 = "mlirc.allocate"() : () -> O
  "mlircx.call"(%0, %x, %w, %1) {callee = "addmm", inputs = 3 : i64} : (O, X, W, O) -> ()
  "mlircx.call"(%b, %x, %w, %0) {callee = "addmm_gelu", inputs = 3 : i64} : (B, X, W, O) -> ()
  return %1 : O
}
"""
TYPES = {"X": '?x8xf32, {size = "s0, 8"', "W": "8x16xf32, {", "O": '?x16xf32, {size = "s0, 16"', "B": "16xf32, {"}


def written(dtype: str) -> HostProgram:
    text = MODULE
    for name, type_ in TYPES.items():
        comma = "" if type_.endswith("{") else ", "
        text = re.sub(rf"\b{name}\b", f'tensor<{type_.replace("f32", dtype)}{comma}device = "cuda:0"}}>', text)
    return written_text(text)


def test_a_host_program_asks_for_its_products():
    program = written("f32")
    assert [(len(product.operands), product.gelu) for product in program.matmuls] == [
        (4, False),
        (4, False),
        (4, True),
    ]
    assert program.matmuls[0].symbols == ("s0",) and program.matmuls[0].operands[0].shape == (16,)
    assert "matmuls" in program.links and "multiply" in program.links
    plans = re.findall(r"store i64 (\d+), ptr %operands\d+$", program.text, re.MULTILINE)
    assert plans == ["0", "1", "2"]  # each product lets Python make its own plan, not another one's
    assert program.text.count("@aoti_torch_cuda_addmm_out(") == 3  # declared once, and out of line for each product
    assert program.text.count("@aoti_torch_cuda__addmm_activation(") == 2


def test_what_cublaslt_is_not_asked_for():
    program = written("f64")
    assert program.matmuls == [] and program.text.count("@aoti_torch_cuda_addmm_out(") == 3
    assert program.text.count("@aoti_torch_cuda__addmm_activation(") == 2


def test_libraries_are_loaded_while_a_graph_is_compiled(monkeypatch):
    """Once for each GPU and dtype, whatever the sizes; nothing is loaded for products on a CPU."""
    begun = []
    monkeypatch.setattr(gpu_libraries, "_begun", set())
    monkeypatch.setattr(gpu_libraries.background, "start", lambda _, work, *what: begun.append((work.__name__, *what)))
    with FakeTensorMode():
        gpu, cpu = torch.empty(8, 8, device="cuda"), torch.empty(8, 8)
        half = torch.empty(8, 8, device="cuda", dtype=torch.float16)
        graph = make_fx(lambda x, y, z: (x @ x @ x, y @ y, z @ z))(gpu, half, cpu)
    for _ in range(2):
        gpu_libraries.load(graph)
    device = torch.device("cuda:0")
    assert begun == [("_multiply", device, torch.float32), ("_multiply", device, torch.float16)]
