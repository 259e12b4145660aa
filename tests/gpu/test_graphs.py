"""Graphs on a GPU, compiled and run, against float64 eager: the limit is twice eager's own error in the same dtype."""

import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import mlirc

OPTIONS = {"fallback": "error"}


def compiled(fn, **arguments):
    return torch.compile(fn, backend="mlirc", options=OPTIONS, **arguments)


def check(fn, *inputs, **arguments):
    """Compares fn compiled with eager, all results as one vector; returns what compiled code gave."""
    given = compiled(fn, **arguments)(*inputs)
    expected = fn(*inputs)
    exact = fn(*(x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs))
    for have, eager, best in zip(leaves(given), leaves(expected), leaves(exact), strict=True):
        assert (have.dtype, have.shape, have.device) == (eager.dtype, eager.shape, eager.device)
        assert have.stride() == eager.stride()
        if not have.is_floating_point():
            assert torch.equal(have, eager)
            continue
        error, own = distance(have, best), distance(eager, best)
        assert error <= 2 * own + 1e-7, f"{error} where eager has {own}"
    return given


def leaves(x):
    return list(x) if isinstance(x, (tuple, list)) else [x]


def distance(x, exact):
    exact = exact.double()
    assert torch.equal(x.isnan(), exact.isnan())
    return ((x.double() - exact).nan_to_num().norm() / exact.nan_to_num().norm().clamp(min=1e-30)).item()


def cuda(*shape, dtype=torch.float32):
    return torch.randn(shape, device="cuda").to(dtype)


DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_elementwise(dtype):
    check(lambda x, y: torch.tanh(x * y + 1) - x.exp(), cuda(33, 65, dtype=dtype), cuda(65, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_and_norm(dtype):
    def fn(x, w):
        return torch.softmax(x, -1), nn.functional.layer_norm(x, (300,), w)

    check(fn, cuda(64, 300, dtype=dtype), cuda(300, dtype=dtype))


def test_integers_and_booleans():
    x = torch.arange(-50, 50, device="cuda").reshape(10, 10)
    check(lambda x: (x // 3, x % 7, (x > 0) & (x < 5), x.sum(0), x.argmax(1), x.cumsum(0)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matmuls(dtype):
    def fn(x, w, b, y):
        return torch.relu(torch.addmm(b, x, w.t())), torch.matmul(y, y.transpose(1, 2)) * 2

    check(fn, cuda(48, 64, dtype=dtype), cuda(96, 64, dtype=dtype), cuda(96, dtype=dtype), cuda(3, 16, 32, dtype=dtype))


def test_transposed_and_sliced():
    check(lambda x: (x.t().exp(), x[1:, ::2].sum(1), torch.cat([x, x * 2], 1).t().contiguous()), cuda(37, 53))


def test_scalars_and_factories():
    def fn(x):
        ramp = torch.arange(x.shape[1], device=x.device)
        return x * 0.5 + ramp, torch.full_like(x, 3.0), torch.zeros(4, device=x.device) + x.sum(), x.tril()

    check(fn, cuda(20, 20))


def test_empty_and_0d():
    check(lambda x, y: (x + y, x.sum(1), y * y), cuda(0, 5), cuda())
    check(lambda x: (x.sum(), x * 2), cuda(0))


def test_no_tensor_is_read_on_an_empty_grid():
    assert compiled(lambda x: x + 1)(torch.empty(0, 3, device="cuda")).shape == (0, 3)


def test_dynamic_sizes():
    fn = compiled(lambda x: torch.softmax(x + 1, -1).sum(0), dynamic=True)
    for rows, columns in ((3, 5), (100, 7), (64, 1000), (2, 2)):
        x = cuda(rows, columns)
        torch.testing.assert_close(fn(x), torch.softmax(x + 1, -1).sum(0))


def test_misaligned_inputs():
    base = cuda(1001)
    fn = compiled(lambda x: x * 2)
    for offset in (0, 1, 3):
        x = base[offset : offset + 512]
        assert torch.equal(fn(x), x * 2)


def test_misaligned_input_is_written_in_place():
    def fn(x):
        x.mul_(2)
        return x + 1

    base = cuda(1001)
    call = compiled(fn)
    for offset in (0, 1, 3):
        mine, eager = base.clone(), base.clone()
        assert torch.equal(call(mine[offset : offset + 512]), fn(eager[offset : offset + 512]))
        assert torch.equal(mine, eager)


@torch.library.custom_op("mlirc_tests::odd_place", mutates_args=())
def odd_place(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[:1], x])[1:]  # begins 4 bytes into its memory


odd_place.register_fake(torch.empty_like)


def test_a_misaligned_result_of_another_operator():
    x = cuda(4096)
    assert torch.equal(compiled(lambda x: odd_place(x + 1) * 2 + x)(x), (x + 1) * 2 + x)


def test_batch_norm_updates_its_buffers():
    torch.manual_seed(0)
    mine, eager = nn.BatchNorm2d(8).cuda(), nn.BatchNorm2d(8).cuda()
    x = cuda(4, 8, 6, 6)
    call = compiled(mine)
    for _ in range(2):
        torch.testing.assert_close(call(x), eager(x))
    torch.testing.assert_close(mine.running_var, eager.running_var)
    assert mine.num_batches_tracked == 2


def test_a_cpu_scalar_takes_part():
    scale = torch.tensor(3.0)
    x = cuda(8)
    assert torch.equal(compiled(lambda x, s: x * s)(x, scale), x * 3)


def test_a_float_that_changes():
    fn = compiled(lambda x, a: x * a, dynamic=True)
    x = cuda(8)
    for a in (0.5, 1.5, 2.5):
        torch.testing.assert_close(fn(x, a), x * a)


def test_cpu_and_gpu_in_one_graph():
    def fn(x, y):
        a = torch.relu(y) * 2
        b = a.to("cuda") + x
        return b.sum(1).cpu() + 1, b, a

    check(fn, cuda(6, 7), torch.randn(6, 7))


def test_item():
    def fn(x):
        return x * x.sum().item()

    x = cuda(10)
    call = torch.compile(fn, backend="mlirc")  # a graph break, or eager
    torch.testing.assert_close(call(x), fn(x))


def test_convolution_in_channels_last():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)).cuda().eval()
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x = cuda(2, 8, 16, 16).to(memory_format=memory_format)
        with torch.no_grad():
            given, expected = compiled(net)(x), net(x)
        torch.testing.assert_close(given, expected, rtol=1e-3, atol=1e-3)
        assert given.stride() == expected.stride()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention(dtype, causal):
    def fn(q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal) + 1

    check(fn, *(cuda(2, 4, 64, 32, dtype=dtype) for _ in range(3)))


def test_attention_trains():
    def loss(fn, *inputs):
        copies = [x.clone().requires_grad_() for x in inputs]
        fn(*copies).sum().backward()
        return [x.grad for x in copies]

    def fn(q, k, v):
        return (nn.functional.scaled_dot_product_attention(q, k, v) * q).tanh()

    inputs = [cuda(2, 4, 64, 32, dtype=torch.bfloat16) for _ in range(3)]
    exact = loss(fn, *(x.double() for x in inputs))
    for have, eager, best in zip(loss(compiled(fn), *inputs), loss(fn, *inputs), exact, strict=True):
        assert distance(have, best) <= 2 * distance(eager, best)


def test_training():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Dropout(0.0), nn.Linear(64, 10)).cuda()
    x, labels = cuda(16, 32), torch.randint(10, (16,), device="cuda")

    def gradients(call):
        net.zero_grad()
        nn.functional.cross_entropy(call(x), labels).backward()
        return [p.grad.clone() for p in net.parameters()]

    for have, expected in zip(gradients(compiled(net)), gradients(net), strict=True):
        torch.testing.assert_close(have, expected, rtol=1e-4, atol=1e-5)


def test_autocast():
    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10)).cuda()
    x = cuda(16, 32)
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        given, expected = compiled(net)(x), net(x)
    assert given.dtype == torch.bfloat16
    torch.testing.assert_close(given, expected, rtol=1.6e-2, atol=1e-3)


BAD_INDEX = """
import sys, torch
x = torch.randn(10, device="cuda")
good, bad = torch.tensor([1, 2], device="cuda"), torch.tensor([1, 12], device="cuda")
call = torch.compile(lambda x, i: x[i] * 2, backend="mlirc", mode=sys.argv[1])
for _ in range(5):
    assert torch.equal(call(x, good), x[good] * 2)
torch.cuda.synchronize()
call(x, bad)
if sys.argv[2] == "exit":
    sys.exit()
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print("synchronization:", str(error).splitlines()[0])
try:
    call(x, good)
except IndexError as error:
    print("next call:", error)
"""


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_bad_index_is_told_when_its_stream_is_synchronized(mode):
    """In a process of its own, which loses its GPU, as in eager."""
    done = subprocess.run([sys.executable, "-c", BAD_INDEX, mode, "go on"], capture_output=True, text=True)
    assert "synchronization: CUDA error" in done.stdout and "next call: index 12" in done.stdout, done


def test_a_bad_index_that_nobody_waits_for_is_told_at_the_end():
    done = subprocess.run([sys.executable, "-c", BAD_INDEX, "default", "exit"], capture_output=True, text=True)
    assert "index 12 was out of bounds for size 10" in done.stderr, done


def test_another_stream():
    fn = compiled(lambda x: (x * 2 + 1).sum(0))
    x = cuda(1000, 1000)
    fn(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        x.add_(1)
        result = fn(x)
    stream.synchronize()
    torch.testing.assert_close(result, (x * 2 + 1).sum(0))


def test_other_threads():
    fn = compiled(lambda x: torch.softmax(x, -1) * 2)
    x = cuda(64, 64)
    expected = fn(x)
    found = []

    def work():
        found.extend(torch.equal(fn(x), expected) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200 and all(found)


def test_second_gpu(second_gpu):
    fn = compiled(lambda x: torch.softmax(x, -1) * 2)
    x = cuda(64, 64)
    y = x.to(second_gpu)
    torch.testing.assert_close(fn(y).cpu(), fn(x).cpu())
    assert fn(y).device == second_gpu and torch.cuda.current_device() == 0


def test_two_gpus_in_one_graph(second_gpu):
    fn = compiled(lambda x, y: ((x * 2).to(second_gpu) + y).sum())
    x, y = cuda(64, 64), cuda(64, 64).to(second_gpu)
    torch.testing.assert_close(fn(x, y), ((x * 2).to(second_gpu) + y).sum())


def test_out_of_memory_is_pytorchs_error():
    with pytest.raises(Exception, match="out of memory"):
        compiled(lambda x: (x.expand(1 << 20, 1 << 20) + 1).exp())(cuda(1))


def test_explain_counts_kernels():
    told = mlirc.explain(lambda x: torch.softmax(x, -1) * 2)(cuda(8, 8))
    assert len(told.data["graphs"][0]["kernels"]) == 1
