# A number that is copied into a tensor, or filled into a complex one, did not compile.
import torch

from tests.fuzz.tensors import tensor

OPTIONS = {"dynamic": True}


def program(x, z, n, s):
    a = [x.clone().copy_(y) for y in (2.0, n, s, True)]
    b = [x.int().copy_(y) for y in (2.7, -2.7, n, True)]
    c = [x.bool().copy_(y) for y in (0.5, n, False)]
    return a, b, c, z.masked_fill(x > 0, 2.0), z.masked_fill(x > 0, n), torch.full_like(z, 3.0), z.clone().fill_(s)


def make():
    return program


def drive(f, m, see):
    for n, s in ((3, 0.5), (-3, -2.5)):
        see(f(tensor((4,), torch.float32, 1), tensor((4,), torch.complex64, 2), n, s))
