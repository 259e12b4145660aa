"""Models for C: compiled with their header, called without Python's and PyTorch's code, compared with eager."""

import ctypes
import re
import subprocess
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn.attention.flex_attention import flex_attention

import mlirc
from mlirc.codegen.llvm.machine_code import load_object
from mlirc.codegen.llvm.processor import why_not_here
from mlirc.frontend.package.packaged_graph import PackageError
from mlirc.lowering.target import NAMED
from tests.frontend.package.c_program import COMPILER, CError, CProgram, Tensor, described

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler is here, which mlirc itself never needs")


class Network(nn.Module):
    """Matmuls of all shapes, rows, a table, an integer, results that share memory."""

    def __init__(self):
        super().__init__()
        self.table, self.linear, self.norm = nn.Embedding(10, 8), nn.Linear(8, 12), nn.LayerNorm(12)

    def forward(self, tokens, x, n):
        h = self.norm(torch.nn.functional.gelu(self.linear(self.table(tokens) + x[:, :n])))
        return torch.softmax(h @ h.transpose(1, 2), -1), h, h.transpose(0, 1), (x * 3).sin().pow(2) + tokens.shape[0]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    torch.manual_seed(0)
    model, folder = Network().eval(), tmp_path_factory.mktemp("c")
    shapes = {"tokens": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, "x": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, "n": Dim.DYNAMIC}
    compiled = mlirc.compile(model, arguments(3, 5, 9), dynamic_shapes=shapes)
    compiled.export_c(folder, "network")
    return model, folder, compiled


@pytest.fixture(scope="module")
def program(network):
    return CProgram(network[1], "network")


def arguments(batch, length, longer):
    return torch.randint(10, (batch, length)), torch.randn(batch, longer, 8), length


def equal(found, expected):
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y.detach(), rtol=2e-5, atol=2e-5)


@needs_compiler
def test_a_model_of_any_sizes(network, program):
    for sizes in ((3, 5, 9), (2, 2, 3), (7, 40, 41)):
        given = arguments(*sizes)
        for arena in (True, False):
            equal(program(*given, arena=arena), network[0](*given))


@needs_compiler
def test_each_kind_of_processor_that_runs_here(network, program):
    given = arguments(3, 5, 9)
    for kind, name in enumerate(("cpu-avx2", "cpu-avx512")):
        if not why_not_here(NAMED[name]):
            other = CProgram(network[1], "network")
            assert not other.library.set_kind(other.model, kind)
            equal(other(*given), network[0](*given))


@needs_compiler
def test_object_needs_no_python_and_no_torch(network):
    unresolved = subprocess.run(["nm", "-u", network[1] / "network.o"], capture_output=True, text=True, check=True)
    names = set(unresolved.stdout.split()) - {"U", "w"}
    assert "free" in names
    assert not [x for x in names if x.startswith(("Py", "_Py", "aoti_", "Sleef", "mkl", "cblas", "_Z"))]


@needs_compiler
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t, x, n: (t.int(), x, n), "'tokens' has dtype 5; expected 4"),
        (lambda t, x, n: (t[0], x, n), "'tokens' has 1 dimensions; expected 2"),
        (lambda t, x, n: (t, x[:, :, :7].contiguous(), n), "'x' has the size 7 in dimension 2; expected 8"),
        (lambda t, x, n: (t, x.transpose(0, 1).contiguous().transpose(0, 1), n), "'x' has the stride"),
        (lambda t, x, n: (t, x[:2], n), "'x' has the size 2 in dimension 0; expected 3"),
        (lambda t, x, n: (t[:1], x[:1], n), "= 1; the model was compiled for 2 to"),
        (lambda t, x, n: (t, x, n + 1), "expected"),
        (lambda t, x, n: (t, x, 2**62), "'n' is 4611686018427387904; expected 5"),
        (lambda t, x, n: (t + 20, x, n), "index 2"),
        (lambda t, x, n: (t - 30, x, n), "index -"),
    ],
)
def test_calls_that_are_wrong(program, change, said):
    with pytest.raises(CError, match=said):
        program(*change(*arguments(3, 5, 9)))


@needs_compiler
def test_memory_that_is_wrong(program):
    given, results = program.inputs(arguments(3, 5, 9)), (Tensor * 4)()
    program.call("shapes", given, results, None)
    run = lambda: program.call("run", program.model, given, results, None)
    with pytest.raises(CError, match="result 0 takes 300 bytes, and has 0"):
        results[0].bytes = 0
        run()
    results[0].bytes = 300
    with pytest.raises(CError, match="no memory"):
        run()
    memory = torch.zeros(10_000, dtype=torch.uint8)
    start = memory.data_ptr() + -memory.data_ptr() % 64
    for k, x in enumerate(results):
        x.data = start + 64 * k
    with pytest.raises(CError, match="result 1 and result 0 share memory"):
        run()
    results[0].data = start + 4
    with pytest.raises(CError, match="multiple of 64"):
        run()
    results[0].data = given[1].data + -given[1].data % 64
    with pytest.raises(CError, match="result 0 and 'x' share memory"):
        run()
    given[1].data = None
    with pytest.raises(CError, match="'x' has no memory"):
        run()


@needs_compiler
def test_weights_in_the_place_of_others(network):
    program, given = CProgram(network[1], "network"), arguments(3, 5, 9)
    other = Network().eval()
    for name, x in other.named_parameters():
        program.set_weight(name, x)
    equal(program(*given), other(*given))
    with pytest.raises(CError, match="no weight 'linear'"):
        program.set_weight("linear", torch.zeros(12, 8))
    with pytest.raises(CError, match="size 8 in dimension 0; expected 12"):
        program.set_weight("linear.weight", torch.zeros(8, 12))
    equal(program(*given), other(*given))


@needs_compiler
def test_threads(network, program):
    wrong = []

    def work(batch):
        given = arguments(batch, 6, 8)
        expected = network[0](*given)
        for _ in range(20):
            try:
                equal(program(*given), expected)
            except (AssertionError, CError) as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in (2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class Written(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(4)
        self.convolution = nn.Conv2d(3, 4, 3)

    def forward(self, x, y):
        y.add_(1)
        h = self.norm(self.convolution(x))
        return torch.cond(h.sum() > 0, lambda h: h.sin(), lambda h: h.cos(), (h,)), x, x[1:]


@needs_compiler
def test_what_a_model_writes_to_and_results_that_are_arguments(tmp_path):
    model = Written().train()
    x, y = torch.randn(2, 3, 8, 8), torch.zeros(4)
    mlirc.compile(model, (x, y)).export_c(tmp_path, targets=["avx2"])
    program = CProgram(tmp_path, "model", "-Wl,--no-as-needed", "-lgomp")
    program.library.set_threads(program.model, 2)
    for count in (1, 2):
        mine = torch.full((4,), 5.0)
        equal(program(x, mine), model(x, y))
        assert mine.tolist() == [6.0] * 4
        assert model.norm.num_batches_tracked == count
    with pytest.raises(CError, match="share memory"):
        program(x, x[0, 0, 0, :4])


@needs_compiler
def test_the_program_of_the_documentation(tmp_path):
    text = (Path(__file__).parents[3] / "docs/features.md").read_text()
    found = re.search(r"```c\n(.*?)```", text, re.DOTALL)
    assert found is not None and COMPILER is not None
    (tmp_path / "program.c").write_text(found[1])
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    nn.init.ones_(model[0].weight)
    nn.init.constant_(model[0].bias, 0.25)
    mlirc.compile(model, (torch.randn(2, 4),), dynamic_shapes=({0: Dim.DYNAMIC},)).export_c(tmp_path, "network")
    command = [COMPILER, "program.c", "network.o", "-lm", "-o", "program"]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert subprocess.run([tmp_path / "program"], capture_output=True, check=True).stdout == b"1.250000\n"


def test_without_a_compiler_the_object_is_called_as_it_is(tmp_path):
    mlirc.compile(lambda x: torch.relu(x @ x.t()), (torch.randn(5, 7),), dynamic_shapes=({0: Dim.DYNAMIC},)).export_c(
        tmp_path, targets=["sse4"]
    )
    code = load_object((tmp_path / "model.o").read_bytes())
    assert ctypes.CFUNCTYPE(ctypes.c_int32)(code.address("model_sse4_ready"))() == 1
    run = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_void_p)
    x, y, memory = torch.randn(3, 7), torch.empty(3, 3), torch.empty(4096)
    arena = memory.data_ptr() + -memory.data_ptr() % 64
    slots = lambda *values: (ctypes.c_int64 * len(values))(*values)
    found = run(code.address("model_sse4_graph"))(
        slots(x.data_ptr()), slots(y.data_ptr()), slots(3), arena, 1, slots(0, 0)
    )
    assert found == 0
    torch.testing.assert_close(y, torch.relu(x @ x.t()))


def test_flex_attention_is_compiled(tmp_path):
    """For Python's packages and for C: no part of it is PyTorch's."""

    def attention(q, k, v, slopes):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + slopes[h] * (j - i))

    given = *torch.randn(3, 1, 2, 16, 8), torch.rand(2)
    compiled = mlirc.compile(attention, given)
    compiled.save(tmp_path / "m.mlirc")
    compiled.export_c(tmp_path)
    torch.testing.assert_close(
        mlirc.load(tmp_path / "m.mlirc")(*given), torch.compile(attention, backend="eager")(*given)
    )


def test_what_c_has_not_is_named(tmp_path):
    compiled = mlirc.compile(lambda x: torch.sort(x)[0] + torch.kthvalue(x, 1)[0], (torch.eye(3),))
    with pytest.raises(PackageError, match=r"(?s)aten.sort.*aten.kthvalue"):
        compiled.export_c(tmp_path)
    compiled = mlirc.compile(lambda x: torch.relu(x), (torch.ones(3),))
    for wrong in ({"name": "my model"}, {"targets": ["avx1"]}, {"targets": []}):
        with pytest.raises(PackageError):
            compiled.export_c(tmp_path, **wrong)
    compiled.save(tmp_path / "m.mlirc")
    with pytest.raises(PackageError, match="where it is compiled"):
        mlirc.load(tmp_path / "m.mlirc").export_c(tmp_path)
    assert described(3).rank == 0
    assert [x.name for x in tmp_path.iterdir()] == ["m.mlirc"]
