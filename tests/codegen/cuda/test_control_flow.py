"""Branches and loops of host programs for a GPU, executed without one (tests/simulated_gpu.py): eager's answers, and what the GPU is asked for."""

import ctypes
import threading
import time
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as each
from torch.utils._pytree import tree_leaves

from mlirc.codegen.llvm.machine_code import compile_ir
from mlirc.frontend import statistics
from tests.frontend.capture import test_nested_regions as nested
from tests.frontend.capture import test_regions as regions
from tests.memory_level import written
from tests.simulated_gpu import SimulatedGpu, simulated_gpu

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def gpu():
    with simulated_gpu() as found:
        yield found


@pytest.fixture(autouse=True)
def forget(gpu):
    torch._dynamo.reset()
    statistics.reset()
    gpu.asked.clear()


FAST = {(regions.rotated, False), (regions.branches_within, True), (regions.many_scanned, True)}


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("fn", "dynamic"),
    [
        pytest.param(*chosen, marks=() if chosen in FAST else pytest.mark.full)
        for chosen in product(regions.ALL, (False, True))
    ],
)
def test_eagers_answer(fn, dynamic, gpu):
    torch.manual_seed(0)
    inputs = torch.randn(4, 4), torch.randn(4, 4)
    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, dynamic=dynamic, options=gpu.options)
    for sign in (1, -1):
        given = [sign * x for x in inputs]
        kept = [x.clone() for x in given]
        with torch.no_grad():
            torch.testing.assert_close(tree_leaves(compiled(*given)), tree_leaves(fn(*given)), equal_nan=True)
        torch.testing.assert_close(given, kept, rtol=0, atol=0)
    called = {name for graph in statistics.graphs for name in graph.aten}
    assert called == ({"aten.sort.default"} if fn is regions.library_calls else set())


@pytest.mark.full
@pytest.mark.parametrize("seed", range(12))
def test_random_bodies(seed, gpu):
    """Carried values that are exchanged, kept, and computed of two."""
    generator = torch.Generator().manual_seed(seed)
    dtypes = [torch.float32, torch.int64, torch.float32, torch.int32, torch.bfloat16, torch.float32][: 3 + seed % 4]
    values = [(torch.randn(3, 5, generator=generator) * 4).to(dtype) for dtype in dtypes]
    other, body = torch.randn(5, generator=generator), regions.random_body(generator, dtypes)
    want = values
    for _ in range(seed % 5):
        want = body(want, other)

    def fn(other, *values):
        return regions.times(seed % 5, lambda n, *values: body(values, other), *values)[1:]

    with torch.no_grad():
        compiled = torch.compile(fn, backend="mlirc", fullgraph=True, dynamic=seed % 2 == 1, options=gpu.options)
        torch.testing.assert_close(list(compiled(other, *values)), list(want))


def branch(x, y):
    return torch.cond(x.sum() > 0, lambda x, y: (x @ y.t()) @ x, lambda x, y: x.sin() * y, (x, y))


def steps(x, y):
    """Of rows that do not begin at multiples of 16 bytes, with a branch within."""
    turn = lambda c, x: torch.cond(c.sum() > 0, lambda c, x: c.sin() + x, lambda c, x: c * x, (c, x))
    return scan(lambda c, x: (turn(c, x), (c + x).softmax(0)), y[0] * 0 + 1, x)


def rows(x, y):
    return each(lambda a, b: (a * b).exp().cumsum(0), x, y[0])


@pytest.mark.parametrize(
    ("fn", "dynamic"),
    [
        pytest.param(*chosen, marks=() if chosen in ((branch, False), (rows, True)) else pytest.mark.full)
        for chosen in product((branch, steps, rows), (False, True))
    ],
)
def test_gradients(fn, dynamic, gpu):
    torch.manual_seed(1)
    x, y = torch.randn(5, 3), torch.randn(5, 3)
    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, dynamic=dynamic, options=gpu.options)
    for sign in (1, -1):
        found = []
        for run in (fn, compiled):
            given = [z.detach().clone().requires_grad_() for z in (sign * x, y)]
            made = tree_leaves(run(*given))
            found.append([*made, *torch.autograd.grad(torch.stack([(z * z).sum() for z in made]).sum(), given)])
        torch.testing.assert_close(found[1], found[0])
    assert not any("higher_order" in name for graph in statistics.graphs for name in graph.aten)


def asked(gpu: SimulatedGpu, fn: Callable, *inputs: torch.Tensor) -> list[str]:
    """What one call asks the GPU for."""
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(fn, backend="mlirc", options=gpu.options)(*inputs), fn(*inputs))
    return gpu.asked


def test_the_host_waits_once_for_each_branch(gpu):
    """And for each turn of a loop; a scan waits for nothing, and no value is copied that a kernel can write in place."""
    x = torch.rand(6, 4)
    body = ["launch lt", "read", "launch mul_sin", "launch add"]
    loop = asked(gpu, lambda x: regions.times(3, lambda n, a: ((a * 0.9).sin(),), x), x)
    assert sorted(loop) == sorted(["copy", "copy", *body * 3, "launch lt", "read"])
    gpu.asked.clear()
    assert asked(gpu, lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), x) == [
        "launch sum_gt",
        "read",
        "launch sin",
    ]
    gpu.asked.clear()
    many = asked(gpu, lambda x: scan(lambda c, x: ((c + x).sin(), c * x), x[0], x), x)
    assert "read" not in many and "align" not in many and many.count("copy") == 1


WAIT = """
declare i32 @usleep(i32)
define i32 @read_memory(i64 %to_at, i64 %from_at, i64 %size, ptr %stream) {
entry:
  %flag = inttoptr i64 FLAG to ptr
  store volatile i64 1, ptr %flag
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %seen = load volatile i64, ptr %flag
  %answered = icmp ne i64 %seen, 1
  %late = icmp eq i64 %k, 5000
  %stop = or i1 %answered, %late
  br i1 %stop, label %end, label %body
body:
  %next = add i64 %k, 1
  %slept = call i32 @usleep(i32 1000)
  br label %head
end:
  %to = inttoptr i64 %to_at to ptr
  %from = inttoptr i64 %from_at to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  %code = zext i1 %late to i32
  ret i32 %code
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def test_other_threads_run_while_the_host_waits(monkeypatch):
    """The wait for a predicate is native code that ends when another Python thread has answered: with the interpreter's lock held it never would."""
    flag = torch.zeros(1, dtype=torch.int64)
    code = compile_ir(WAIT.replace("FLAG", str(flag.data_ptr())))
    named = SimulatedGpu.function
    wait = lambda self, name, types: code.address(name) if name == "read_memory" else named(self, name, types)
    monkeypatch.setattr(SimulatedGpu, "function", wait)
    answers, called = [], threading.Event()

    def answer():
        cell = ctypes.c_int64.from_address(flag.data_ptr())
        while not called.is_set():
            if cell.value == 1:
                answers.append(sum(range(1000)))
                cell.value = 2
            time.sleep(0.0005)

    fn = lambda x: while_loop(lambda n, x: x.sum() < 10, lambda n, x: (n + 1, x + 1), (torch.tensor(0), x))
    with simulated_gpu() as gpu, torch.no_grad():
        compiled = torch.compile(fn, backend="mlirc", fullgraph=True, options=gpu.options)
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            found = compiled(torch.zeros(4))
        finally:
            called.set()
            thread.join()
    assert found[0] == 3 and len(answers) == 4


def test_what_begins_anywhere_is_moved(gpu):
    """An input that is no multiple of 16 bytes: it is read, within a loop too, where the kernel expects it."""
    x = torch.rand(65)[1:]
    loop = asked(gpu, lambda x: regions.times(2, lambda n, a: ((a * x).sin(),), x + 1), x)
    assert loop.count("align") == 3


def test_equal_layers_are_one_function(gpu):
    """It is launched from one place, three times."""
    asked(gpu, nested.layers, torch.randn(4, 4), torch.randn(4, 4))
    assert gpu.asked == ["multiply", "launch relu"] * 3
    text, links = gpu.programs[-1].text, gpu.programs[-1].links
    assert text.count(f"@links, i64 {links.index('launch')})") == 1 and text.count("call i32 @region_0(") == 3


@pytest.mark.full
@pytest.mark.parametrize(
    "fn", [nested.layers, nested.within, nested.casts, nested.numbers, nested.written, nested.Layers()]
)
def test_gradients_of_layers(fn, gpu):
    torch.manual_seed(0)
    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    expected = nested.called(fn, x, w)
    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, options=gpu.options)
    torch.testing.assert_close(nested.called(compiled, x, w), expected)


NUMBER = """
func.func @graph(%x: T) -> (G, T) attributes {mlirc.results = ["g0", "g1"]} {
  %0 = "mlirc.copy"(%x) : (T) -> G
  %1 = "mlirc.copy"(%0) : (G) -> T
  return %0, %1 : G, T
}
"""


@pytest.mark.parametrize("number", [True, -3, 2.5, -0.0, float("nan"), 1 << 40, -(1 << 62)])
def test_numbers_between_the_host_and_the_gpu(number, gpu):
    dtypes = {
        "i1": torch.bool,
        "bf16": torch.bfloat16,
        "f16": torch.float16,
        "f32": torch.float32,
        "f64": torch.float64,
    }
    dtypes |= {"i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
    for name, dtype in dtypes.items():
        x = torch.tensor(number, dtype=torch.int64 if isinstance(number, int) else torch.float64).to(dtype)
        gpu.asked.clear()
        run = gpu.compile(NUMBER.replace("T", f"tensor<{name}>").replace("G", f'tensor<{name}, {{device = "cuda:0"}}>'))
        for found in run([x]):
            assert found.dtype == dtype and torch.equal(bits(found), bits(x))
        assert gpu.asked == ["write", "read"]


def bits(x):
    return x.reshape(1).view(torch.uint8)


COUNTED = """
func.func @graph(%n: tensor<i64>, %x: X) -> X attributes {mlirc.results = ["g0"]} {
  %r:2 = "mlircx.while_loop"(%n, %x) ({
    func.func @condition(%n1: tensor<i64>, %x1: X, %goes_on: tensor<i1>) {
      %0 = "mlirc.constant"() {value = "4"} : () -> tensor<i64>
      %1 = "mlirc.lt"(%n1, %0) : (tensor<i64>, tensor<i64>) -> tensor<i1>
      "mlirc.assign"(%goes_on, %1) : (tensor<i1>, tensor<i1>) -> ()
      return
    }
  }, {
    func.func @body(%n1: tensor<i64>, %x1: X) {
      %0 = "mlirc.constant"() {value = "1"} : () -> tensor<i64>
      %1 = "mlirc.add"(%n1, %0) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %2 = "mlirc.cast"(%n1) : (tensor<i64>) -> tensor<f32>
      %3 = "mlirc.add"(%x1, %2) : (X, tensor<f32>) -> X
      %4 = "mlirc.sin"(%3) : (X) -> X
      "mlirc.assign"(%n1, %1) : (tensor<i64>, tensor<i64>) -> ()
      "mlirc.assign"(%x1, %4) : (X, X) -> ()
      return
    }
  }) {carried = 2 : i64} : (tensor<i64>, X) -> (tensor<i64>, X)
  return %r#1 : X
}
"""


def test_a_counter_on_the_host_is_waited_for_by_nobody(gpu):
    x = torch.randn(5)
    (found,) = gpu.compile(COUNTED.replace("X", 'tensor<5xf32, {device = "cuda:0"}>'))([torch.tensor(1), x])
    torch.testing.assert_close(found, ((x + 1).sin() + 2).sin().add(3).sin())
    assert gpu.asked == ["copy", *["write", "launch add_sin"] * 3]


CUDA, SECOND = ('tensor<8xf32, {device = "cuda:K"}>'.replace("K", k) for k in "01")
RUN = '"mlircx.run"(X, Y) ({}) {kernel = "KERNEL", symbols = "", messages = [], inputs = 1 : i64, label = "k"} : (T, T) -> ()'
TRITON = """
"mlirc.triton"() {sym_name = "NAME", source = "", signature = ["*fp32", "*fp32"], constants = {}, grid = ["1", "1", "1"],
                  divisible = [0, 1], num_warps = 4 : i64, num_stages = 1 : i64} : () -> ()
"""


def run(kernel: str, x: str, y: str, type_: str) -> str:
    return (
        RUN.replace("KERNEL", kernel)
        .replace("X", x)
        .replace("Y", y)
        .replace("T)", f"{type_})")
        .replace("(T,", f"({type_},")
    )


LOOP = f"""
func.func @graph(%n: tensor<i1>, %x: {CUDA}, %z: {SECOND}) -> {CUDA} attributes {{mlirc.arena = "64", mlirc.device_arenas = {{"cuda:0" = "128"}}}} {{
  %m = "mlirc.slot"() {{offset = "0"}} : () -> tensor<i1>
  %y = "mlirc.allocate"() : () -> {CUDA}
  %0 = "mlirc.slot"() {{offset = "64"}} : () -> tensor<0xui8>
  %1 = "mlirc.slot"() {{offset = "64"}} : () -> tensor<64xui8, {{device = "cuda:0"}}>
  "mlircx.while_loop"(%n, %x, %z, %m, %y, %0, %1) ({{
    func.func @condition(%n1: tensor<i1>, %x1: {CUDA}, %z1: {SECOND}, %goes_on: tensor<i1>) attributes {{mlirc.arena = "0"}} {{
      "mlircx.call"(%n1, %goes_on) {{callee = "copy", inputs = 1 : i64}} : (tensor<i1>, tensor<i1>) -> ()
      return
    }}
  }}, {{
    func.func @body(%n1: tensor<i1>, %x1: {CUDA}, %z1: {SECOND}) attributes {{mlirc.arena = "0", mlirc.device_arenas = {{"cuda:0" = "64"}}}} {{
      %2 = "mlirc.slot"() {{offset = "0"}} : () -> {CUDA}
      %3 = "mlirc.allocate"() : () -> {SECOND}
      {run("first", "%x1", "%2", CUDA)}
      {run("second", "%z1", "%3", SECOND)}
      "mlirc.release"(%3) : ({SECOND}) -> ()
      {run("first", "%2", "%x1", CUDA)}
      return
    }}
  }}) {{inputs = 3 : i64, carried = 2 : i64, arenas = 2 : i64}}
    : (tensor<i1>, {CUDA}, {SECOND}, tensor<i1>, {CUDA}, tensor<0xui8>, tensor<64xui8, {{device = "cuda:0"}}>) -> ()
  return %y : {CUDA}
}}
{TRITON.replace("NAME", "first")}{TRITON.replace("NAME", "second")}
"""


def test_a_loop_on_two_gpus_enters_each_anew():
    """A turn begins on another GPU than the last one ended on, or than the program was on before."""
    program = written(LOOP)
    assert [(k.kernel, k.device) for k in program.launched] == [("first", 0), ("second", 1)]
    entered = program.links.index("enter_device")
    body = program.text[program.text.index("body") :]
    assert body.count(f"@links, i64 {entered})") == 3, "the first, the second, and the first again"
