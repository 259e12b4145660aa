"""Memory-bound kernels, in and out of the cache: bytes a second against a plain copy's, alternating in one process.

The floor of each is the fewest bytes it can move (every input read once, every output written once) over what a copy of
as many bytes reaches. A kernel is a function of tensors; `copy` is one of them, so that it is measured in the same way.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn import functional

from mlirc.measurement.alternate import alternate, spread
from mlirc.measurement.error import CallResults, RelativeError, error_of

SIZES = {"in cache": 256, "in memory": 16384}
"""Rows of 3072 float32: 3 MB a tensor, and 200 MB."""
WIDTH = 3072


@dataclass(frozen=True)
class Kernel:
    """function(*tensors) -> tensor or tuple of tensors; `inputs(rows)` makes float32 tensors and integers for it.

    mutated   how many of the first inputs are written in place, and so read and written
    """

    name: str
    function: Callable[..., Any]
    inputs: Callable[[int], list[torch.Tensor]]
    mutated: int = 0

    def bytes(self, rows: int) -> int:
        """The fewest bytes that one call can move."""
        inputs = self.inputs(rows)
        outputs = self.call(self.function, inputs)
        return sum(x.nbytes for x in inputs) + sum(x.nbytes for x in outputs)

    def call(self, function: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """What a call gives, with the inputs that it has written."""
        given = function(*inputs)
        outputs = [given] if isinstance(given, torch.Tensor) else list(given or ())
        return inputs[: self.mutated] + outputs


def rows_of(*more: Callable[[int], torch.Tensor]) -> Callable[[int], list[torch.Tensor]]:
    return lambda rows: [torch.randn(rows, WIDTH), *(make(rows) for make in more)]


def same(rows: int) -> torch.Tensor:
    return torch.randn(rows, WIDTH)


def weight(_rows: int) -> torch.Tensor:
    return torch.randn(WIDTH)


def layer_norm(x, w, b):
    return functional.layer_norm(x, (WIDTH,), w, b)


def rms_norm(x, w):
    return functional.rms_norm(x, (WIDTH,), w, 1e-6)


def softmax(x):
    return x.softmax(-1)


def gelu_add_layer_norm(h, w, b):
    return functional.layer_norm(functional.gelu(h) + h, (WIDTH,), w, b)


def cross_entropy(x, labels):
    return functional.cross_entropy(x, labels)


def adam(p, m, v, g):
    """One step of Adam (Kingma & Ba, 2015) in place, at a fixed step number."""
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def rotary(x, cos, sin):
    """Rotary embedding of heads of 64 (Su et al., 2021)."""
    heads = x.view(-1, WIDTH // 64, 64)
    half = torch.cat((-heads[..., 32:], heads[..., :32]), -1)
    return heads * cos[:, None] + half * sin[:, None]


def angles(rows: int) -> torch.Tensor:
    return torch.randn(rows, 64)


def labels(rows: int) -> torch.Tensor:
    return torch.randint(WIDTH, (rows,))


def squares(rows: int) -> torch.Tensor:
    return torch.rand(rows, WIDTH)


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("copy", torch.clone, rows_of()),
        Kernel("layer_norm", layer_norm, rows_of(weight, weight)),
        Kernel("rms_norm", rms_norm, rows_of(weight)),
        Kernel("softmax", softmax, rows_of()),
        Kernel("gelu_add_layer_norm", gelu_add_layer_norm, rows_of(weight, weight)),
        Kernel("cross_entropy", cross_entropy, rows_of(labels)),
        Kernel("adam", adam, rows_of(same, squares, same), mutated=3),
        Kernel("rotary", rotary, rows_of(angles, angles)),
    )
}


def measure_kernel(kernel: Kernel, size: str, backends: list[str], rounds: int) -> list[dict[str, Any]]:
    """A row for each backend: steady seconds, error against float64, and `copy_fraction`: its bytes a second over those of
    an eager copy into memory that is there already, which alternates with it."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    rows, inputs = SIZES[size], kernel.inputs(SIZES[size])
    calls = {backend: under(kernel.function, backend) for backend in backends}
    errors = {backend: kernel_error(kernel, call, inputs) for backend, call in calls.items()}
    source = torch.randn(kernel.bytes(rows) // 8)
    target = torch.empty_like(source)
    steps: dict[str, Callable[[], Any]] = {"copy": lambda: target.copy_(source)}
    steps |= {backend: lambda call=call: call(*inputs) for backend, call in calls.items()}
    with torch.no_grad():
        samples = alternate(steps, rounds)
    steady = {name: spread(taken.wall) for name, taken in samples.items()}
    found = []
    for backend in backends:
        row = {"setting": f"{kernel.name} {size}", "model": kernel.name, "way": f"kernels {size}", "dtype": "float32"}
        row |= {"backend": backend, "steady": steady[backend], "error": asdict(errors[backend])}
        row["copy_fraction"] = steady["copy"]["median"] / steady[backend]["median"]
        row["limit"] = steady["copy"]["median"]
        row["accurate"] = "eager" not in errors or errors[backend].within(errors["eager"], torch.float32)
        found.append(row)
    return found


def under(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    if backend == "eager":
        return function
    return torch.compile(function, backend=backend, options={"fallback": "error"} if backend == "mlirc" else None)


def kernel_error(kernel: Kernel, call: Callable[..., Any], inputs: list[torch.Tensor]) -> RelativeError:
    exact = [x.double() if x.is_floating_point() else x.clone() for x in inputs]
    with torch.no_grad():
        given = kernel.call(call, [x.clone() for x in inputs])
        return error_of(CallResults(given, []), CallResults(kernel.call(kernel.function, exact), []))
