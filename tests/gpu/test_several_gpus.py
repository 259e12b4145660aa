"""Compiled code on the second GPU, while the first is current, and on both at once."""

import copy
import gc
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

OPTIONS = {"fallback": "error"}


class Block(nn.Module):
    """A product with a bias, attention, a GELU, norms and a convolution: what libraries and kernels of ours do."""

    def __init__(self, width=256):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.conv, self.norm = nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)

    def forward(self, x, image):
        b, s, d = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, s, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, s, d))
        x = x + self.down(F.gelu(self.up(self.between(x))))
        return x, F.relu(self.norm(self.conv(image)))


class Setting:
    """The block on a GPU, compiled, and a copy that is not."""

    def __init__(self, device, training, **arguments):
        torch.manual_seed(0)
        self.training = training
        self.module = Block().to(device, torch.bfloat16).train(training)
        self.twin, self.exact = copy.deepcopy(self.module), copy.deepcopy(self.module).double()
        options = {} if "mode" in arguments else {"options": OPTIONS}
        self.call = torch.compile(self.module, backend="mlirc", **options, **arguments)
        self.x = torch.randn(4, 128, 256, device=device, dtype=torch.bfloat16)
        self.image = torch.randn(8, 8, 32, 32, device=device, dtype=torch.bfloat16)

    def step(self, module, call, *inputs):
        """Results, or gradients in training."""
        if not self.training:
            with torch.no_grad():
                return call(*inputs)
        module.zero_grad(set_to_none=True)
        x, image = call(*inputs)
        (x.double().square().mean() + image.double().square().mean()).backward()
        return [p.grad for p in module.parameters()]

    def check(self, shift=0.0):
        """Against float64, all as one vector: the limit is twice eager's own error."""
        inputs = self.x + shift, self.image
        given, expected = self.step(self.module, self.call, *inputs), self.step(self.twin, self.twin, *inputs)
        assert [x.device for x in given] == [x.device for x in expected]
        exact = vector(self.step(self.exact, self.exact, *(x.double() for x in inputs)))
        error, own = ((vector(x) - exact).norm() / exact.norm() for x in (given, expected))
        assert error <= 2 * own + 1e-6, f"{error} where eager has {own}"


def vector(tensors):
    return torch.cat([x.double().flatten() for x in tensors])


@pytest.mark.parametrize("training", [False, True])
def test_second_gpu_while_the_first_is_current(second_gpu, training):
    gc.collect()  # what other tests left on the first GPU goes now
    before = torch.cuda.memory_allocated(0)
    setting = Setting(second_gpu, training)
    for shift in (0.0, 1.0):
        setting.check(shift)
        assert torch.cuda.current_device() == 0
    assert torch.cuda.memory_allocated(0) <= before
    Setting(torch.device("cuda:0"), training).check()
    setting.check()


def test_a_stream_of_the_second_gpu(second_gpu):
    setting = Setting(second_gpu, False)
    setting.check()
    with torch.cuda.device(second_gpu), torch.cuda.stream(torch.cuda.Stream(second_gpu)):
        late = torch.randn(4096, 4096, device=second_gpu)
        for _ in range(20):
            late = torch.tanh(late @ late)
        setting.x = setting.x + late[:1, :1].to(torch.bfloat16)  # there only after a while
        setting.check()


def test_cuda_graphs_on_the_second_gpu(second_gpu):
    for device in (torch.device("cuda", 0), second_gpu):  # the first one's recordings are in a stream of its own
        setting = Setting(device, False, mode="reduce-overhead")
        for shift in range(5):
            setting.check(shift)


@pytest.mark.parametrize("training", [False, True])
def test_both_at_once(second_gpu, training):
    """Compiled one after the other: while a thread traces, PyTorch lets no other one call what is compiled."""
    failures, tracing, compiled = [], threading.Lock(), threading.Barrier(2, timeout=60)

    def work(index):
        try:
            torch.cuda.set_device(index)
            with torch.cuda.stream(torch.cuda.Stream(index)):
                with tracing:
                    setting = Setting(torch.device("cuda", index), training)
                    setting.check()
                compiled.wait()
                for k in range(20):
                    setting.check(k / 8)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, second_gpu.index)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
