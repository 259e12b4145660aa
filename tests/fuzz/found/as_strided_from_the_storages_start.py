# An explicit offset of as_strided counts from the storage's start, wherever the tensor itself begins at this call.
import torch

from tests.fuzz.tensors import tensor

OPTIONS = {}


def program(b):
    return b.as_strided((2,), (1,), 1) + 1, b.sum()


def make():
    return program


def drive(f, m, see):
    whole = tensor((12,), torch.float32, 57)
    for k in (0, 1, 2, 5):
        see(f(whole[k : k + 4]))
