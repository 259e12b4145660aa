"""torch.compile(fn, backend="mlirc") against eager: what a user of it relies on."""

import threading
import warnings

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from mlirc.frontend import statistics
from mlirc.frontend.errors import UnsupportedGraph

STRICT = {"fallback": "error"}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    statistics.reset()


def compiled(fn, **options):
    return torch.compile(fn, backend="mlirc", options=STRICT, **options)


def check(fn, *args, strides=True, **options):
    """Same values, dtypes, strides as eager, on copies of the arguments; the arguments end up the same too."""
    eager_args = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    ours_args = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    with torch.no_grad():
        expected = fn(*eager_args)
        result = compiled(fn, **options)(*ours_args)
    torch.testing.assert_close(result, expected, equal_nan=True, check_stride=strides)
    torch.testing.assert_close(ours_args, eager_args, equal_nan=True)
    return result


def test_elementwise_chain():
    check(lambda x, y: (x + y).relu() * torch.sigmoid(x), torch.randn(5, 7), torch.randn(7))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (17,), (2, 3, 5)])
def test_shapes(shape):
    check(lambda x: (x * 2 + 1).sum() + torch.tanh(x), torch.randn(shape))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_float_dtypes(dtype):
    check(lambda x: nn.functional.gelu(x) + x.softmax(-1), torch.randn(4, 33).to(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_integers_wrap_around(dtype):
    big = torch.iinfo(dtype).max
    check(
        lambda x, y: (x + y, x * y, x - y, x.sum(), x > y),
        torch.tensor([big, 1, 2], dtype=dtype),
        torch.tensor([1, big, 3], dtype=dtype),
    )


def test_special_values():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-45, 3e38])
    result = check(
        lambda x: (x + 0.0, x * 1.0, -x, x.exp(), x.clamp(-1, 1), x.relu(), x.max(), torch.maximum(x, -x)), x
    )
    assert torch.signbit(result[2][4]), "-(0.0) is -0.0"


def test_strided_inputs_and_outputs():
    x = torch.randn(6, 8)
    check(lambda x: x + 1, x.t())
    check(lambda x: (x * 2).t(), x)
    check(lambda x: x.permute(1, 0) + x.permute(1, 0).contiguous(), x)
    check(lambda x: x[1:5:2, ::3] * 2, x)
    check(lambda x: x.expand(4, 6, 8) + 1, x)
    check(lambda x: nn.functional.relu(x), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))


def test_inputs_that_are_mutated():
    def fn(x, y):
        x.add_(y)
        y.mul_(2)
        return x * y

    check(fn, torch.randn(4, 5), torch.randn(4, 5))


def test_input_mutated_through_a_view():
    def fn(x):
        x[1:3].fill_(7.0)
        x.t()[0] += 1
        return x.sum()

    check(fn, torch.randn(4, 5))


def test_swap_of_two_inputs():
    def fn(x, y):
        t = x.clone()
        x.copy_(y)
        y.copy_(t)

    check(fn, torch.randn(9), torch.randn(9))


def test_outputs_alias_as_in_eager():
    fn = compiled(lambda x: (x, x.view(-1), (x + 1), (x + 1)))
    with torch.no_grad():
        x = torch.randn(3, 4)
        same, view, a, b = fn(x)
    assert same.data_ptr() == x.data_ptr() and view.data_ptr() == x.data_ptr()
    assert a.data_ptr() != b.data_ptr(), "two results of eager's are two tensors, though equal"
    a.add_(1)
    torch.testing.assert_close(b, x + 1)


def test_a_result_is_not_an_argument():
    x = torch.randn(4)
    with torch.no_grad():
        result = compiled(lambda x: (x * 1, x.clone(), x.to(torch.float32)))(x)
    result[0].zero_()
    result[1].zero_()
    assert x.abs().sum() > 0
    assert result[2] is x


def test_results_outlive_the_next_call():
    fn = compiled(lambda x: (x.exp() + 1).t())
    with torch.no_grad():
        first = fn(torch.zeros(3, 4))
        fn(torch.ones(3, 4))
    torch.testing.assert_close(first, torch.full((4, 3), 2.0))


def test_a_changing_float_does_not_recompile():
    counter = CompileCounterWithBackend("mlirc")
    fn = torch.compile(lambda x, s: x * s + s, backend=counter)
    x = torch.randn(8)
    with torch.no_grad():
        for s in (0.5, 0.25, -3.0, 7.5):
            torch.testing.assert_close(fn(x, s), x * s + s)
    assert counter.frame_count <= 2


def test_sizes_become_symbolic_by_themselves():
    counter = CompileCounterWithBackend("mlirc")
    fn = torch.compile(lambda x: (x.softmax(-1) @ x.t()).sum(0) + x.shape[0], backend=counter)
    with torch.no_grad():
        for n in (4, 7, 33, 2, 65):
            x = torch.randn(n, n + 3)
            torch.testing.assert_close(fn(x), (x.softmax(-1) @ x.t()).sum(0) + n, rtol=1e-4, atol=1e-4)
    assert counter.frame_count == 2


@pytest.mark.thinned(4)
@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 63])
def test_dynamic_sizes(n):
    check(
        lambda x: nn.functional.layer_norm(x + 1, (x.shape[-1],)) if x.shape[-1] else x + 1,
        torch.randn(3, n),
        dynamic=True,
    )


def test_gradients():
    model = nn.Sequential(nn.Linear(12, 33), nn.GELU(), nn.LayerNorm(33), nn.Linear(33, 5))
    x = torch.randn(7, 12, requires_grad=True)
    expected = torch.autograd.grad(model(x).square().mean(), [x, *model.parameters()])
    result = torch.autograd.grad(compiled(model)(x).square().mean(), [x, *model.parameters()])
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-6)


def test_gradient_twice_through_different_sizes():
    fn = compiled(lambda x, w: (x @ w).tanh().sum(), dynamic=True)
    w = torch.randn(6, 4, requires_grad=True)
    for n in (3, 8, 5):
        x = torch.randn(n, 6)
        (grad,) = torch.autograd.grad(fn(x, w), w)
        (expected,) = torch.autograd.grad((x @ w).tanh().sum(), w)
        torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-5)


def test_batch_norm_updates_its_buffers():
    ours = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    eager = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    eager.load_state_dict(ours.state_dict())
    fn = compiled(ours)
    for _ in range(3):
        x = torch.randn(2, 3, 9, 9)
        torch.testing.assert_close(fn(x), eager(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dict(ours.named_buffers()), dict(eager.named_buffers()))


def test_random_numbers_are_those_of_eager():
    def fn(x):
        return nn.functional.dropout(x, 0.5) + torch.rand_like(x), torch.randn(3)

    x = torch.randn(100)
    torch.manual_seed(3)
    expected = fn(x)
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(fn)(x), expected)


def test_graph_break_and_python_in_between():
    def fn(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y.relu() + 1

    check(fn, torch.randn(5))


def test_operators_without_an_op_of_ours():
    check(lambda x: torch.linalg.inv(x @ x.t() + torch.eye(4)), torch.randn(4, 4), strides=False)
    check(lambda x: torch.view_as_real(torch.fft.fft(x) * 2).sum(-1), torch.randn(8))
    check(lambda x: torch.sort(x, descending=True), torch.randn(9))
    check(lambda x: torch.complex(x, x + 1).conj() * 2, torch.randn(3))


def test_custom_operator():
    @torch.library.custom_op("mlirc_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x):
        return torch.empty_like(x)

    check(lambda x: torch.ops.mlirc_test.twice(x + 1) - 1, torch.randn(6))


def test_control_flow_operator():
    def fn(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    check(fn, torch.ones(3))
    torch._dynamo.reset()
    check(fn, -torch.ones(3))


def test_inference_mode():
    with torch.inference_mode():
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(lambda x: x.exp().sum(0))(x), x.exp().sum(0))


def test_autocast():
    layer = nn.Linear(16, 16)
    x = torch.randn(4, 16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(layer)(x), layer(x), rtol=2e-2, atol=2e-2)


def test_errors_of_eager_are_errors():
    with pytest.raises(IndexError, match=r"out of range|out of bounds"), torch.no_grad():
        compiled(lambda w, i: nn.functional.embedding(i, w) * 2)(torch.randn(4, 8), torch.tensor([1, 9]))


def test_two_threads_in_one_graph():
    fn = compiled(lambda x: (x.exp() @ x.t()).softmax(-1) * 2)
    inputs = [torch.randn(40, 40) for _ in range(2)]
    with torch.no_grad():
        expected = [fn(x).clone() for x in inputs]
        wrong = []

        def work(k):
            with torch.no_grad():
                for _ in range(50):
                    if not torch.equal(fn(inputs[k]), expected[k]):
                        wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.skipif(
    torch.__version__ < (2, 13), reason="PyTorch 2.11 crashes where several threads trace, with aot_eager too"
)
def test_compiling_from_several_threads():
    results = {}

    def work(k):
        with torch.no_grad():
            results[k] = torch.compile(lambda x: x * k + 1, backend="mlirc", options=STRICT)(torch.ones(3))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        torch.testing.assert_close(results[k], torch.full((3,), k + 1.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"falback": "error"}, "no option 'falback'.*fallback"),
        ({"fallback": "never"}, "'never'.*'eager', 'error'"),
        ({"fallback": 3}, "takes text"),
        ({"pipeline": "gpux"}, "'cpu'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(Exception, match=message):
        torch.compile(lambda x: x + 1, backend="mlirc", options=options)(torch.ones(2))


def test_fallback_is_counted_and_warned_about(monkeypatch):
    from mlirc.frontend.driver import steps

    def broken(module, *args, **kwargs):
        raise ValueError("a bug")

    monkeypatch.setattr(steps, "begin_module", broken)
    with pytest.warns(UserWarning, match=r"runs in eager.*a bug"), torch.no_grad():
        result = torch.compile(lambda x: x + 1, backend="mlirc")(torch.ones(2))
    torch.testing.assert_close(result, torch.full((2,), 2.0))
    assert sum(statistics.fallbacks.values()) == 1


def test_unsupported_device():
    x = torch.ones(2, device="meta")
    assert torch.compile(lambda x: x + 1, backend="mlirc")(x).device == x.device  # in eager, counted
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"meta.*mlirc compiles for: cpu"):
        torch.compile(lambda x: x + 1, backend="mlirc", options={"fallback": "error"})(x)


def test_what_torch_jit_traced_is_not_left_to_eager_in_silence():
    x = torch.randn(3, 4)
    traced, scripted = torch.jit.trace(nn.Linear(4, 4), x), torch.jit.script(sine)
    with pytest.warns(UserWarning, match="traced"):
        compiled = torch.compile(traced, backend="mlirc")
    torch.testing.assert_close(compiled(x), traced(x))
    with pytest.raises(UnsupportedGraph, match="traced"):
        torch.compile(traced, backend="mlirc", options={"fallback": "error"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.compile(traced, backend="eager")
        torch.compile(traced, backend="mlirc", disable=True)
    torch.testing.assert_close(torch.compile(scripted, backend="mlirc", fullgraph=True)(x), scripted(x))


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1
