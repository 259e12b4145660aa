# Fake tensors had other strides than eager's kernels give: powers, norms, losses, operands of other layouts.
import torch
import torch.nn.functional as F

from tests.fuzz.tensors import tensor

OPTIONS = {"dynamic": True}


def program(a, b, c):
    powers = [0**a, 2.0**c, torch.pow(a, b), torch.ldexp(b, c), F.logsigmoid(a)]
    norms = [F.batch_norm(a, None, None, training=True), F.batch_norm(c[None], None, None, training=True)]
    two = [
        torch.copysign(a, b),
        torch.xlogy(c, b),
        torch.angle(torch.complex(a, a)),
        c.logical_and(b),
    ]
    return [*powers, *norms, *two, (0**a).transpose(0, 1), F.logsigmoid(a).reshape(-1)]


def make():
    return program


def drive(f, m, see):
    for n in (5, 7):
        a_leaf = tensor((n, 4), torch.float32, n, "positive").requires_grad_()
        b = tensor((n,), torch.float32, n + 1, "positive")
        c = tensor((n, 8), torch.float32, n + 2, "positive")[:, ::2].mT
        r = f(a_leaf.mT, b, c)
        see(r)
        r[0].sum().backward()
        see(a_leaf.grad)
        a = tensor((n, 4), torch.float32, n, "positive")[:, :1].expand(n, 4).mT
        with torch.inference_mode():
            see(f(a, b, c))
