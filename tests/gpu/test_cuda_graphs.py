"""Mode "reduce-overhead": what is replayed is what eager gives, and what cannot be recorded says why."""

import pytest
import torch
from torch import nn

from mlirc.frontend import statistics


def compiled(fn, **arguments):
    statistics.reset()
    return torch.compile(fn, backend="mlirc", mode="reduce-overhead", **arguments)


def said():
    return [graph.cuda_graph for graph in statistics.graphs]


def cuda(*shape):
    return torch.randn(shape, device="cuda")


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 10)).cuda()


def test_replays_follow_inputs_and_parameters():
    model = net()
    call = compiled(model)
    with torch.no_grad():
        for k in range(8):
            if k == 5:
                model[0].weight.mul_(2)
            x = cuda(16, 32)
            torch.testing.assert_close(call(x), model(x), rtol=1e-4, atol=1e-5)
    assert said() == ["recorded"]


def test_a_result_is_never_seen_to_change():
    call = compiled(lambda x: torch.softmax(x, -1))
    inputs = [cuda(8, 8) for _ in range(8)]
    results = [call(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, torch.softmax(x, -1))
    assert said() == ["recorded"]


def test_results_are_lent_in_turns():
    """Nothing is copied for a caller who lets go of a result once the next one is there; a part of one is held too."""
    call = compiled(lambda x: torch.softmax(x, -1))
    places = set()
    for k in range(10):
        x = cuda(8, 8)
        result = call(x)
        torch.testing.assert_close(result, torch.softmax(x, -1))
        places.add(result.data_ptr())
        result.zero_()
        if k == 5:
            part, places = result[:2], set()
    assert len(places) == 2 and not part.any()
    del result, part
    assert {call(cuda(8, 8)).data_ptr() for _ in range(4)} < places
    call(cuda(8, 8)).resize_(1 << 20)  # its memory is the allocator's then
    for _ in range(4):
        x = cuda(8, 8)
        torch.testing.assert_close(call(x), torch.softmax(x, -1))


def test_results_that_another_stream_reads():
    call = compiled(lambda x: x * 2 + 1)
    stream, x = torch.cuda.Stream(), torch.ones(1 << 20, device="cuda")
    for _ in range(3):
        call(x)
    with torch.cuda.stream(stream):
        late = cuda(4096, 4096)
        y = call(x)
        for _ in range(20):
            late = torch.tanh(late @ late)
        total = y.sum() + late[0, 0] * 0
        del y
    assert call(-x)[0] == -1
    torch.cuda.synchronize()
    assert total == 3 * x.numel()


def test_inference_mode_and_no_grad_in_turns():
    model = net()
    call = compiled(model)
    for _ in range(4):
        for mode in (torch.inference_mode, torch.no_grad):
            x = cuda(16, 32)
            with mode():
                result = call(x)
            assert result.is_inference() == (mode is torch.inference_mode)
            torch.testing.assert_close(result, model(x), rtol=1e-4, atol=1e-5)


def test_a_parameter_in_other_memory():
    model = net()
    call = compiled(model)
    x = cuda(16, 32)
    with torch.no_grad():
        for k in range(8):
            if k == 5:
                model[0].weight.data = cuda(64, 32)
            torch.testing.assert_close(call(x), model(x), rtol=1e-4, atol=1e-5)


def test_every_size_has_its_recording():
    call = compiled(lambda x: torch.softmax(x, -1) * 2, dynamic=True)
    for _ in range(5):
        for rows in (3, 5, 7):
            x = cuda(rows, 9)
            torch.testing.assert_close(call(x), torch.softmax(x, -1) * 2)
    assert said() == ["recorded"]


def test_training():
    mine, eager = net(), net()
    call = compiled(mine)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (mine, eager)]
    for _ in range(8):
        x, labels = cuda(16, 32), torch.randint(10, (16,), device="cuda")
        for fn, optimizer in zip((call, eager), optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(fn(x), labels).backward()
            optimizer.step()
    for a, b in zip(mine.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert said() == ["recorded", "recorded"]


def test_two_forward_calls_before_their_backward_calls():
    model = net()
    call = compiled(model)
    for _ in range(6):
        x, y = cuda(16, 32), cuda(16, 32)
        gradients = []
        for fn in (call, model):
            model.zero_grad()
            a, b = fn(x), fn(y)
            (a.sum() + b.square().sum()).backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        for have, expected in zip(*gradients, strict=True):
            torch.testing.assert_close(have, expected, rtol=1e-4, atol=1e-4)


def test_a_buffer_that_is_written():
    mine, eager = nn.BatchNorm1d(8).cuda(), nn.BatchNorm1d(8).cuda()
    call = compiled(mine)
    with torch.no_grad():
        for _ in range(6):
            x = cuda(32, 8)
            torch.testing.assert_close(call(x), eager(x))
    torch.testing.assert_close(mine.running_mean, eager.running_mean)
    assert said() == ["recorded"]


def test_an_input_that_is_written():
    def fn(x):
        x.mul_(2)
        return x.sum()

    call = compiled(fn)
    for _ in range(8):
        x = cuda(100)
        y = x.clone()
        torch.testing.assert_close(call(x), fn(y))
        assert torch.equal(x, y)


def test_random_numbers_differ():
    call = compiled(lambda x: nn.functional.dropout(x, 0.5))
    x = torch.ones(1000, device="cuda")
    results = [call(x) for _ in range(6)]
    assert len({tuple(r.tolist()) for r in results}) == 6


@pytest.mark.parametrize(
    ("fn", "inputs", "why"),
    [
        (lambda x, y: x + y.cuda(), lambda: (cuda(8), torch.randn(8)), "on the CPU"),
        (lambda x, s: x * s, lambda: (cuda(8), torch.tensor(2.0)), "on the CPU"),
    ],
    ids=["a cpu input", "a cpu scalar"],
)
def test_why_not(fn, inputs, why):
    call = compiled(fn)
    for _ in range(4):
        given = inputs()
        torch.testing.assert_close(call(*given), fn(*given))
    assert len(said()) == 1 and said()[0].startswith("not recorded") and why in said()[0]


def test_a_routine_that_waits():
    call = compiled(lambda x: torch.linalg.inv(x) + 1)
    for _ in range(5):
        x = cuda(8, 8) + 8 * torch.eye(8, device="cuda")
        torch.testing.assert_close(call(x), torch.linalg.inv(x) + 1)
    assert len(said()) == 1
    assert cuda(3).shape == (3,)  # random numbers are drawn as before


def test_another_stream():
    call = compiled(lambda x: (x * 2 + 1).sum(0))
    x = cuda(1000, 1000)
    for _ in range(5):
        call(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = call(x)
    stream.synchronize()
    torch.testing.assert_close(result, (x * 2 + 1).sum(0))


@pytest.mark.parametrize("rows", [64, 1 << 15])
def test_what_is_held_is_in_no_recordings_way(rows):
    """Recordings use memory again and again for what they compute on the way; nobody's result lies there, not another graph's either."""
    w = cuda(1024, 1024) * 0.04

    def on_the_way(x):
        for _ in range(3):
            x = torch.relu(x @ w)
        return x

    programs = [lambda x: on_the_way(x).sum(0), lambda x: on_the_way(x)[:, :64] * 2, lambda x: on_the_way(x).amax(1)]
    calls = [compiled(program) for program in programs]
    held = []
    with torch.no_grad():
        for _ in range(8):
            for program, call in zip(programs, calls, strict=True):
                x = cuda(rows, 1024)
                held = [*held[-4:], (call(x), program(x))]
                for result, want in held:
                    torch.testing.assert_close(result, want, rtol=1e-3, atol=1e-3 * want.abs().max().item())
    assert said() == ["recorded"] * len(programs)


def test_a_callers_own_cuda_graph_keeps_nothing_for_others():
    """Folded weights that are computed in it are there when it is replayed, and in no call before."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()).cuda().eval()
    call, x = torch.compile(model, backend="mlirc"), cuda(2, 8, 10, 10)
    with torch.no_grad():
        for _ in range(3):
            call(x)
        model[0].weight.mul_(2)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call(x)
        torch.testing.assert_close(call(x), model(x), rtol=1e-3, atol=1e-3)
        graph.replay()
        torch.testing.assert_close(result, model(x), rtol=1e-3, atol=1e-3)


def test_parameters_that_change_between_streams():
    """What is kept of them is computed in one stream, and read in another one right after that."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()).cuda().eval()
    x, other = cuda(2, 8, 10, 10), torch.cuda.Stream()
    for mode in ("default", "reduce-overhead"):
        torch._dynamo.reset()
        call = torch.compile(model, backend="mlirc", mode=mode)
        with torch.no_grad():
            for k in range(6):
                model[0].weight.mul_(1.5 if k % 2 else 0.7)
                torch.cuda.synchronize()
                late = cuda(4096, 4096)
                for _ in range(10):
                    late = late @ late * 1e-3
                call(x)
                with torch.cuda.stream(other):
                    result = call(x)
                other.synchronize()
                torch.testing.assert_close(result, model(x), rtol=1e-3, atol=1e-3)
