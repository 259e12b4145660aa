"""ONNX models through mlirc.compile: open sizes, weights beside the file, calls, packages, and what is refused."""

import sys

import numpy as np
import pytest
import torch

import mlirc
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.onnx_import import package
from mlirc.frontend.onnx_import.graph_module import OnnxError
from mlirc.frontend.package.signature import ArgumentError

onnx = pytest.importorskip("onnx")
parser = onnx.parser


def model(text, opset=21, **weights):
    made = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    made.graph.initializer.extend(onnx.numpy_helper.from_array(x, name) for name, x in weights.items())
    return made


LINEAR = "g (float[batch, 4] x) => (float[batch, n] y) { h = Gemm(x, w, b)  y = Relu(h) }"
W = np.arange(12, dtype=np.float32).reshape(4, 3) / 7 - 1
B = np.array([0.5, -1, 2], np.float32)


def expected(x):
    return torch.relu(torch.from_numpy(x) @ torch.from_numpy(W) + torch.from_numpy(B))


def rows(n):
    return np.random.default_rng(n).standard_normal((n, 4), np.float32)


def test_a_file_with_an_open_size_runs_at_others_and_is_saved(tmp_path):
    path = tmp_path / "linear.onnx"
    onnx.save(model(LINEAR, w=W, b=B), path)
    compiled = mlirc.compile(path)
    assert set(compiled.weights) == {"w", "b"}
    for n in (0, 1, 3, 11):
        torch.testing.assert_close(compiled(rows(n)), expected(rows(n)))
    torch.testing.assert_close(compiled(x=torch.from_numpy(rows(5))), expected(rows(5)))
    compiled.save(tmp_path / "linear.mlirc")
    torch.testing.assert_close(mlirc.load(tmp_path / "linear.mlirc")(torch.from_numpy(rows(2))), expected(rows(2)))


def test_what_models_compute_of_shapes_leaves_no_call_behind():
    made = model(
        """g (float[batch, length, 8] x) => (float[batch, length, 2, m] y) {
            s = Shape(x)  i = Constant<value = int64[2] {0, 1}>()  front = Gather(s, i)
            back = Constant<value = int64[2] {2, -1}>()  sizes = Concat<axis = 0>(front, back)  y = Reshape(x, sizes)
        }"""
    )
    x = torch.randn(3, 5, 8)
    torch.testing.assert_close(mlirc.compile(made)(x), x.reshape(3, 5, 2, 4))


def test_inputs_that_give_sizes_are_fixed_to_the_example():
    made = model("g (float[n] x, int64[2] sizes) => (float[a, b] y) { y = Reshape(x, sizes) }")
    with pytest.raises(OnnxError, match="the input 'sizes' gives sizes"):
        mlirc.compile(made)
    x, sizes = torch.arange(6.0), np.array([2, 3])
    compiled = mlirc.compile(made, (x, sizes))
    torch.testing.assert_close(compiled(x, sizes), x.reshape(2, 3))
    with pytest.raises(ArgumentError, match="compiled for 2 alone"):
        compiled(x, np.array([3, 2]))


def test_branches_and_loops():
    made = model(
        """g (float[4] x, bool c) => (float[4] y) {
            n = Constant<value = int64 {3}>()  go = Constant<value = bool {1}>()
            z = If(c) <then_branch = t () => (float[4] a) { a = Neg(x) }, else_branch = e () => (float[4] b) { b = Abs(x) }>
            y = Loop(n, go, z) <body = l (int64 i, bool p, float[4] v) => (bool q, float[4] u) { q = Identity(p)  u = Add(v, x) }>
        }"""
    )
    x, compiled = torch.randn(4), None
    compiled = mlirc.compile(made)
    for c in (True, False):
        torch.testing.assert_close(compiled(x, torch.tensor(c)), (-x if c else x.abs()) + 3 * x)


def test_functions_of_the_model_and_attributes_handed_through():
    made = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "own" : 1]> g (float[4] x) => (float[4] y) { y = own.f<k = 0.25>(x) }
        <domain: "own", opset_import: ["" : 21]> f <k>(x) => (y) { y = LeakyRelu<alpha: float = @k>(x) }"""
    )
    x = torch.randn(4)
    torch.testing.assert_close(mlirc.compile(made)(x), torch.nn.functional.leaky_relu(x, 0.25))


def beside(tmp_path):
    path = tmp_path / "m.onnx"
    big = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    made = model("g (float[2, 64] x) => (float[2, 64] y) { y = MatMul(x, w) }", w=big)
    onnx.save(made, path, save_as_external_data=True, location="m.data", size_threshold=0)
    return path, big


def test_weights_beside_the_file(tmp_path):
    path, big = beside(tmp_path)
    x = torch.randn(2, 64)
    torch.testing.assert_close(mlirc.compile(path)(x), x @ torch.from_numpy(big))


@pytest.mark.parametrize("place", ["../outside", "/etc/passwd", "missing", "link"])
def test_weights_outside_of_the_folder_are_refused(tmp_path, place):
    (tmp_path / "in").mkdir()
    (tmp_path / "outside").write_bytes(bytes(1 << 15))
    (tmp_path / "in/link").symlink_to(tmp_path / "outside")
    path, _ = beside(tmp_path / "in")
    made = onnx.load(path, load_external_data=False)
    made.graph.initializer[0].external_data[0].value = place
    path.write_bytes(made.SerializeToString())
    with pytest.raises(OnnxError, match=r"the weight 'w': its file '.*' is not in the model's folder"):
        mlirc.compile(path)


def test_a_file_that_is_too_short_for_its_weights(tmp_path):
    path, _ = beside(tmp_path)
    (tmp_path / "m.data").write_bytes(bytes(100))
    with pytest.raises(OnnxError, match=r"the weight 'w': its file 'm.data' has no 16384 bytes at 0"):
        mlirc.compile(path)


REFUSED = {
    "an unknown operator": (
        "g (float[2] x) => (float[2] y) { y = Fancy(x) }",
        r"gives 'y' \(Fancy\): mlirc has no operator Fancy",
    ),
    "an unknown domain": (
        "g (float[2] x) => (float[2] y) { y = a.b.Add(x, x) }",
        r"no operator Add of the domain 'a.b'",
    ),
    "a cycle": (
        "g (float[2] x) => (float[2] y) { a = Add(x, b)  b = Neg(a)  y = Neg(b) }",
        r"\(Add\): no node before it gives 'b'",
    ),
    "texts": (
        "g (string[2] x) => (string[2] y) { y = Identity(x) }",
        "the input 'x': PyTorch has no tensors of string",
    ),
    "sequences": ("g (seq(float[2]) x) => (float[2] y) { y = SequenceAt(x, x) }", "the input 'x' is a sequence"),
    "sizes that do not fit": ("g (float[2, 3] x) => (float[2, 3] y) { y = MatMul(x, x) }", r"\(MatMul\): .*"),
    "a missing attribute": (
        "g (float[2] x) => (float[2] y) { y = Concat(x, x) }",
        r"\(Concat\): it has no attribute 'axis'",
    ),
    "sizes of the call": (
        "g (float[2] x) => (float[n] y) { i = Cast<to = 7>(x)  y = ConstantOfShape(i) }",
        "the input 'x' gives sizes",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_compiled_is_one_line_that_names_the_node(kind):
    text, message = REFUSED[kind]
    with pytest.raises(OnnxError, match=message) as caught:
        mlirc.compile(model(text))
    assert "\n" not in str(caught.value)


def test_older_operator_sets_and_other_files_are_refused(tmp_path):
    with pytest.raises(OnnxError, match="operator set 12; mlirc takes 13 to"):
        mlirc.compile(model("g (float[2] x) => (float[2] y) { y = Neg(x) }", opset=12))
    path = tmp_path / "cut.onnx"
    for content in (model(LINEAR, w=W, b=B).SerializeToString()[:-5], b"no model", b""):
        path.write_bytes(content)
        with pytest.raises(OnnxError, match=r"cut\.onnx is no ONNX model"):
            mlirc.compile(path)
    with pytest.raises(FileNotFoundError):
        mlirc.compile(tmp_path / "none.onnx")


def test_a_call_with_other_sizes_or_dtypes_is_refused():
    compiled = mlirc.compile(model(LINEAR, w=W, b=B))
    for wrong in (np.zeros((2, 5), np.float32), np.zeros((2, 4), np.float64), np.zeros(4, np.float32)):
        with pytest.raises(ArgumentError, match="'x'"):
            compiled(wrong)
    with pytest.raises(TypeError, match="the model takes x"):
        compiled(rows(2), rows(2))


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    package.onnx.cache_clear()
    with pytest.raises(UnsupportedGraph, match=r"pip install 'mlirc\[onnx\]'"):
        mlirc.compile("m.onnx")
    package.onnx.cache_clear()


NUMBERS = np.array([1, 2, 3], np.float32)
CHANGED = {
    "sum": ("c = Add(a, b)  y = Mul(x, c)", {"a": NUMBERS, "b": NUMBERS + 5}),
    "cast": ("c = Cast<to = 1>(a)  y = Mul(x, c)", {"a": np.array([1, 2, 3])}),
    "with a shape": ("s = Shape(x)  f = Cast<to = 1>(s)  p = Mul(f, a)  q = ReduceSum<keepdims = 0>(p)  y = Add(x, q)", {"a": NUMBERS[:2]}),
    "comparison": ("c = Greater(a, b)  d = Not(c)  y = Where(d, x, b)", {"a": NUMBERS, "b": NUMBERS[::-1].copy()}),
    "bound": ("y = Clip(x, a)", {"a": np.float32(0.5)}),
    "exponent": ("y = Pow(x, a)", {"a": np.float32(2)}),
}  # fmt: skip


@pytest.mark.thinned(2)
@pytest.mark.parametrize("body", CHANGED)
def test_a_change_of_a_few_numbers_is_seen(body):
    """They are known while the graph is traced, and so is what is computed of them."""
    nodes, weights = CHANGED[body]
    made = model(f"g (float[n, 3] x) => (float[n, 3] y) {{ {nodes} }}", **weights)
    x = rows(4)[:, :3]
    compiled = mlirc.compile(made)
    before = compiled(x)
    with torch.no_grad():
        compiled.weights["a"].add_(1)
    changed = {name: (w + 1).astype(w.dtype) if name == "a" else w for name, w in weights.items()}
    after = mlirc.compile(model(f"g (float[n, 3] x) => (float[n, 3] y) {{ {nodes} }}", **changed))(x)
    torch.testing.assert_close(compiled(x), after)
    assert not torch.equal(before, after)


def test_what_the_graph_asks_of_sizes_is_told():
    made = model("g (float[n, 3] x) => (float[j, k] y) { y = Reshape(x, sizes) }", sizes=np.array([2, -1]))
    with pytest.warns(UserWarning, match="fixes or relates sizes that the ONNX model leaves open"):
        compiled = mlirc.compile(made)
    x = torch.randn(6, 3)
    torch.testing.assert_close(compiled(x), x.reshape(2, 9))
    with pytest.raises(ArgumentError):
        compiled(torch.randn(5, 3))
