# Eager refuses a norm whose parameters have another dtype than its input, but for float32 beside a half type.
import torch
import torch.nn.functional as F

from tests.fuzz.tensors import tensor

OPTIONS = {}


def program(x, w, k):
    match k:
        case 0:
            return F.layer_norm(x, (4,), w, w)
        case 1:
            return F.group_norm(x, 2, w, w)
        case 2:
            return F.batch_norm(x, None, None, w, w, training=True)
        case 3:
            return F.batch_norm(x, w.abs(), w.abs(), w, w)
        case _:
            return F.rms_norm(x, (4,), w)


def make():
    return program


def drive(f, m, see):
    dtypes = (torch.float32, torch.float64, torch.bfloat16)
    for k in range(5):
        for a in dtypes:
            for b in dtypes:
                try:
                    see(f(tensor((3, 4), a, 1), tensor((4,), b, 2), k))
                except RuntimeError as error:
                    see(type(error).__name__, k, str(a), str(b))
