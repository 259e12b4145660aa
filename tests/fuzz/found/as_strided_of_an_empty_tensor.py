# An empty tensor has no address: as_strided reads the storage that it is a part of.
import torch

from tests.fuzz.tensors import tensor

OPTIONS = {"dynamic": False}


def program(b):
    return b.as_strided((3, 2), (2, 1), 1) + 1, b.sum()


def make():
    return program


def drive(f, m, see):
    whole = tensor((4, 3), torch.float32, 57)
    see(f(whole[:, 3:]))
    see(f(whole[4:]))
    with torch.no_grad():
        see(f(whole[:, 1:]))
