# A sum over dimensions of size 1 was its operand: -0.0, where a sum begins at 0.0.
from tests.fuzz.tensors import tensor

OPTIONS = {}


def program(a):
    return a.sum(-1), a.cumsum(-1), a.mean(-1), a.double().sum(), a.nansum(-1)


def make():
    return program


def drive(f, m, see):
    a = tensor((3, 1), seed=26, values="zeros").neg()
    see(f(a))
