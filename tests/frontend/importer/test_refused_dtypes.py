"""A dtype for which eager's kernel is not written raises the same in a compiled graph, whatever the meta function says."""

import itertools
import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from mlirc.dialects.core.dialect import IMPORTS, load_ops
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer.refused_dtypes import refused
from mlirc.frontend.strides.kernel_dtypes import is_elementwise

UNARY = """
bitwise_not abs frac floor ceil round trunc sign erfinv signbit nan_to_num argmax argmin logical_not neg positive
"""
ACTIVATIONS = """
relu relu6 silu gelu elu celu selu mish softplus softsign tanhshrink hardtanh hardsigmoid hardswish hardshrink
softshrink leaky_relu logsigmoid
"""
BINARY = """
bitwise_and bitwise_or bitwise_xor bitwise_left_shift gcd sub hypot logaddexp logaddexp2 nextafter fmod remainder
maximum atan2
"""
FUNCTIONS = {name: getattr(torch, name) for name in UNARY.split()}
FUNCTIONS |= {name: getattr(F, name) for name in ACTIVATIONS.split()}
FUNCTIONS |= {f"{name}(x, x)": lambda x, f=getattr(torch, name): f(x, x) for name in BINARY.split()}
FUNCTIONS |= {f"{name}(x, 1.5)": lambda x, f=getattr(torch, name): f(x, 1.5) for name in ("bitwise_and", "sub")}
FUNCTIONS |= {
    f"{name}(x, True)": lambda x, f=getattr(torch, name): f(x, True) for name in ("add", "sub", "rsub", "mul")
}
FUNCTIONS |= {"rsub(x, y)": lambda x: torch.rsub(x, x > 0), "True - x": lambda x: True - x}
FUNCTIONS |= {
    "arange": lambda x: torch.arange(0, 3, dtype=x.dtype),
    "linspace": lambda x: torch.linspace(0, 3, 4, dtype=x.dtype),
    "eye": lambda x: torch.eye(3, dtype=x.dtype),
}


def outcome(function, x):
    try:
        with torch.no_grad():
            function(x)
    except Exception as error:
        error = getattr(error, "inner_exception", None) or error
        return {"TorchRuntimeError": "RuntimeError"}.get(type(error).__name__, type(error).__name__)
    return None


@pytest.mark.thinned(1)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16], ids=str)
def test_what_eager_refuses_is_refused(dtype):
    x = torch.tensor([1, 2, 0]).to(dtype)
    raising = {name: outcome(f, x) for name, f in FUNCTIONS.items() if outcome(f, x)}
    assert len(raising) >= 5
    for name, wanted in raising.items():
        torch._dynamo.reset()
        found = outcome(torch.compile(FUNCTIONS[name], backend="mlirc", options={"fallback": "error"}), x)
        if found != wanted:  # while a graph is captured PyTorch raises other types
            torch._dynamo.reset()
            assert found == outcome(torch.compile(FUNCTIONS[name], backend="aot_eager"), x), name


def test_what_eager_takes_stays_compiled():
    import mlirc

    def f(x, mask, n):
        return (x + n) * 2 & 3, mask & (x > n), torch.where(mask, x.abs(), -x), ~mask, x // 3

    x = torch.arange(-4, 4)
    torch._dynamo.reset()
    data = mlirc.explain(f)(x, x > 0, 2).data
    assert not data["graphs"][0]["aten"]


LOSSES = ("binary_cross_entropy_with_logits", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_two_dtypes_has_the_dtype_of_eager(name):
    function = getattr(F, name)
    compared = 0
    for one, other in itertools.permutations((torch.float64, torch.float32), 2):
        x, y = torch.rand(3, dtype=one), torch.rand(3, dtype=other)
        if outcome(lambda x, f=function, y=y: f(x, y), x) is None:
            torch._dynamo.reset()
            with warnings.catch_warnings():  # what a version of PyTorch promises wrongly runs in eager
                warnings.simplefilter("ignore")
                torch.testing.assert_close(
                    torch.compile(function, backend="mlirc")(x, y), function(x, y), rtol=0.02, atol=0
                )
            compared += 1
    assert compared or name in ("smooth_l1_loss", "huber_loss")


def test_a_result_of_another_dtype_than_promised_is_refused():
    """As torch 2.11 promises of a binary cross entropy of logits."""
    gm = make_fx(torch.sub, tracing_mode="fake")(torch.rand(3), torch.rand(3, dtype=torch.float64))
    (call,) = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.sub.Tensor)
    assert not refused(call)
    call.meta["val"] = call.meta["val"].float()
    with pytest.raises(UnsupportedGraph, match=r"float64.*where.*float32"):
        refused(call)


def test_the_default_dtype_changes():
    """A quotient of integers has the default dtype of the moment that it is traced."""

    def f(x):
        return x / 3, x.sigmoid()

    compiled = torch.compile(f, backend="mlirc", options={"fallback": "error"})
    before = torch.get_default_dtype()
    try:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float32):
            torch.set_default_dtype(dtype)
            torch.testing.assert_close(compiled(torch.arange(4)), f(torch.arange(4)))
    finally:
        torch.set_default_dtype(before)


NUMBERS = "number|Scalar"


def elementwise_operators():
    """Those that have an op of ours."""
    load_ops()
    found = [x for x in IMPORTS if isinstance(x, torch._ops.OpOverload) and x._schema.name.startswith("aten::")]
    return sorted((x for x in found if is_elementwise(x)), key=str)


def operands(overload):
    """Tensors of several dtypes, and numbers, True among them, for the operands that an operator needs; none where it takes others."""
    kinds = [str(a.type) for a in overload._schema.arguments if not a.kwarg_only and a.default_value is None]
    if not 0 < len(kinds) < 4 or not all(kind == "Tensor" or re.search(NUMBERS, kind) for kind in kinds):
        return []
    dtypes = (torch.bool, torch.int64, torch.float32, torch.float16)[: 4 if len(kinds) < 3 else 2]
    tensors = [torch.ones(2, dtype=dtype) for dtype in dtypes]
    return itertools.product(*([*tensors] if kind == "Tensor" else [True, 2] for kind in kinds))


@pytest.mark.parametrize("part", range(4))
@pytest.mark.thinned(1)
def test_every_elementwise_operator_is_refused_as_by_eager(part):
    compared = 0
    for overload in elementwise_operators()[part::4]:
        for given in operands(overload):
            tensors = [x for x in given if isinstance(x, torch.Tensor)]

            def call(*tensors, overload=overload, given=given):
                rest = iter(tensors)
                return overload(*(next(rest) if isinstance(x, torch.Tensor) else x for x in given))

            try:
                graph = make_fx(call, tracing_mode="fake")(*tensors).graph
            except Exception:  # what is refused while tracing is no matter of ours
                continue
            calls = [node for node in graph.nodes if node.op == "call_function"]
            try:
                found = any(map(refused, calls))
            except UnsupportedGraph:
                continue
            compared += 1
            wanted = outcome(lambda xs, call=call: call(*xs), tensors) is not None
            if overload is not torch.ops.aten.gelu_backward.default:  # oneDNN's refuses some at some sizes
                assert found == wanted, f"{overload} of {given}"
    assert compared > 50
