# A value kept in the memory of a result was read there again, after the result had been written: rows too long for the
# stack, or of a size that is a symbol, with two folds after that result.
import torch
import torch.nn.functional as F

from tests.fuzz.tensors import tensor

OPTIONS = {}


def program(b):
    v = F.softmax(b, -1)
    e = v.exp()
    w = e / e.sum(-1, keepdim=True)
    return v, F.log_softmax(v, -1, dtype=torch.float64), F.softmax(v * 3, -1), w, F.softmax(e + w, -1)


def make():
    return program


def drive(f, m, see):
    for size in (5, 40, 70, 9000):
        see(f(tensor((size,), torch.float32, size)), f(tensor((3, size), torch.float32, size)))
