"""One operator of PyTorch's OpInfo database, compiled and compared with eager on some of its own sample inputs."""

import copy
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.testing._internal.common_methods_invocations as database
import torch.utils._pytree as pytree
from torch._prims_common import check_significant_strides
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from tests.fuzz.compare import different
from tests.fuzz.noise import Noise

DIRECTIONS = ("forward", "backward")
SAMPLES = {"forward": 5, "backward": 2}
# Operators that have no float32 kernel are tried in the first of these that they have.
DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)
# All that `make test-all` tries. complex128 is left out: its operators are complex64's, and none of ours.
EVERY_DTYPE = (
    *(torch.float64, torch.float32, torch.bfloat16, torch.float16),
    *(torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64),
)
# A float result may differ from eager's by the order of its additions; what differs by more is asked of tests/fuzz/noise.py.
TOLERANCES = {torch.float64: (1e-9, 1e-12), torch.bfloat16: (2e-2, 1e-3), torch.float16: (4e-3, 1e-4)}
RTOL, ATOL = 1e-4, 1e-5
NOISY_RUNS = 6
# What these return is not defined, only its shape, dtype and strides.
UNDEFINED_VALUES = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}

# OpInfo seeds its random operators inside the call, where Dynamo breaks the graph and the backend sees nothing of them.
# Here the seed is set before the call instead.
database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)


@dataclass(frozen=True)
class Failure:
    """Where a compiled operator went wrong: `error` is one line."""

    operator: str
    direction: str
    sample: int
    error: str
    details: str = ""

    def __str__(self) -> str:
        return f"{self.operator} {self.direction} sample {self.sample}: {self.error}"


class Mismatch(AssertionError):
    """The compiled operator ran, and its answer is not eager's."""


def key(op: OpInfo) -> str:
    """The operator's name with its variant, as known_failures.txt spells it: `nn.functional.pad[constant]`."""
    return f"{op.name}[{op.variant_test_name}]" if op.variant_test_name else op.name


def operators(shard: int = 0, shards: int = 1, device: str = "cpu") -> list[OpInfo]:
    """The operators of one shard. Variants stay together, and nothing moves when operators come or go."""
    chosen = [op for op in op_db if zlib.crc32(op.name.encode()) % shards == shard and dtype_of(op, device=device)]
    return sorted(chosen, key=key)


def dtype_of(op: OpInfo, direction: str = "forward", device: str = "cpu") -> torch.dtype | None:
    """The dtype to try the operator in, or None where it has none on the device (or no gradient)."""
    if direction == "backward":
        return torch.float32 if torch.float32 in _supported(op, direction, device) else None
    return next((dtype for dtype in DTYPES if dtype in _supported(op, direction, device)), None)


def _supported(op: OpInfo, direction: str, device: str) -> set[torch.dtype]:
    """What eager supports on the device."""
    if direction == "forward":
        return set(op.supported_dtypes(device))
    return set(op.supported_backward_dtypes(device)) if op.supports_autograd else set()


def dtypes_of(op: OpInfo, direction: str, device: str = "cpu") -> list[torch.dtype]:
    """The dtypes of `make test-all` that eager supports."""
    supported = _supported(op, direction, device)
    differentiable = lambda dtype: dtype.is_floating_point or dtype.is_complex
    return [d for d in EVERY_DTYPE if d in supported and (direction == "forward" or differentiable(d))]


def check(
    op: OpInfo,
    direction: str,
    backend: str,
    options: dict | None = None,
    dtype: torch.dtype | None = None,
    dynamic: bool | None = None,
    device: str = "cpu",
) -> Failure | None:
    """The first sample of `op` that fails under `backend` and not under aot_eager, or None when there is none."""
    dtype = dtype or dtype_of(op, direction, device)
    if dtype is None:
        return None
    for number, sample in samples(op, direction, dtype, device):
        problem = attempt(op, sample, direction, backend, options, dynamic)
        if problem and not attempt(op, sample, direction, "aot_eager", None, dynamic):
            details = "".join(traceback.format_exception(problem))
            return Failure(key(op), direction, number, first_line(problem), details)
    return None


def samples(op: OpInfo, direction: str, dtype: torch.dtype, device: str = "cpu") -> Iterator[tuple[int, tuple]]:
    """Numbered (args, kwargs) of the operator, spread over all that OpInfo has: the first ones tend to be alike."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = list(op.sample_inputs(device, dtype, requires_grad=direction == "backward"))
    count = min(SAMPLES[direction], len(every))
    for number in sorted({i * (len(every) - 1) // max(count - 1, 1) for i in range(count)}):
        sample = every[number]
        yield number, ((sample.input, *sample.args), sample.kwargs)


def attempt(
    op: OpInfo, sample: tuple, direction: str, backend: str, options: dict | None, dynamic: bool | None = None
) -> Exception | None:
    """What went wrong with one sample, or None. A sample that eager itself refuses is no failure of anybody's."""
    function = with_tensors_as_arguments(op, sample)
    execute = run_backward if direction == "backward" else run_forward
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = execute(function, sample)
        except Exception:
            return None
        torch._dynamo.reset()
        try:
            compiled = torch.compile(function, backend=backend, options=options, dynamic=dynamic)
            noisy = lambda: [_noisy(execute, function, sample, seed) for seed in range(NOISY_RUNS)]
            compare(execute(compiled, sample), expected, op.name not in UNDEFINED_VALUES, noisy)
        except Exception as problem:
            return problem
    return None


def with_tensors_as_arguments(op: OpInfo, sample: tuple) -> Callable:
    """`op` as a function of the sample's tensors alone: what is left (sizes, flags) is a constant of the graph."""
    leaves, structure = pytree.tree_flatten(sample)
    constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors):
        filled = list(constants)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        args, kwargs = pytree.tree_unflatten(filled, structure)
        return op.op(*args, **kwargs)

    return call


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def run_forward(function: Callable, sample: tuple) -> tuple:
    """The outputs, and the inputs after the call: some operators write to them."""
    inputs = [tensor.detach().clone() for tensor in tensors_of(sample)]
    torch.manual_seed(1)
    with torch.no_grad():
        return function(*inputs), inputs


def run_backward(function: Callable, sample: tuple) -> tuple:
    """The outputs, and the gradients of a fixed weighting of them with respect to every input that wants one."""
    inputs = [copy.copy(t.detach().clone()).requires_grad_(t.requires_grad) for t in tensors_of(sample)]
    torch.manual_seed(1)
    outputs = function(*inputs)
    differentiable = [out for out in tensors_of(outputs) if out.requires_grad]
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    if not differentiable or not wanted:
        return outputs, []
    weights = [torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out) for out in differentiable]
    gradients = torch.autograd.grad(differentiable, wanted, weights, allow_unused=True)
    return outputs, list(gradients)


def _noisy(execute: Callable, function: Callable, sample: tuple, seed: int) -> list:
    """Eager with other last bits."""
    with Noise(seed):
        return pytree.tree_leaves(execute(function, sample))


def compare(actual: Any, expected: Any, values: bool, noisy: Callable[[], list[list]] | None = None) -> None:
    """Raises Mismatch unless both have the same structure, dtypes, shapes, strides and (nearly) the same numbers.

    `noisy` gives eager's own results with other last bits: what rounding alone changes as much is no mismatch.
    """
    found, found_structure = pytree.tree_flatten(actual)
    wanted, wanted_structure = pytree.tree_flatten(expected)
    if found_structure != wanted_structure:
        raise Mismatch(f"returned {found_structure}, eager {wanted_structure}")
    for k, (a, e) in enumerate(zip(found, wanted, strict=True)):
        if not isinstance(e, torch.Tensor):
            if a != e and not (a != a and e != e):
                raise Mismatch(f"returned {a!r}, eager {e!r}")
            continue
        for what in ("dtype", "layout", "shape", "requires_grad"):
            if getattr(a, what) != getattr(e, what):
                raise Mismatch(f"{what} {getattr(a, what)}, eager {getattr(e, what)}")
        if e.layout == torch.strided and not check_significant_strides(a, e)[0]:
            raise Mismatch(f"shape {tuple(e.shape)}: strides {a.stride()}, eager {e.stride()}")
        if values:
            try:
                rtol, atol = TOLERANCES.get(e.dtype, (RTOL, ATOL))
                torch.testing.assert_close(a, e, rtol=rtol, atol=atol, equal_nan=True)
            except AssertionError as problem:
                if noisy is None or e.layout != torch.strided or not _explained(a, e, [run[k] for run in noisy()]):
                    raise Mismatch(" ".join(str(problem).split())) from None


def _explained(a: torch.Tensor, e: torch.Tensor, noisy: list[torch.Tensor]) -> bool:
    """Whether eager's own last bits, changed at random, carry a result as far."""
    if any(n.shape != e.shape for n in noisy):
        return True
    plain = [x.detach().resolve_conj().resolve_neg().cpu() for x in (e, a, *noisy)]
    return not different(plain[0], plain[1], plain[2:]).any()


def first_line(problem: Exception) -> str:
    """The exception on one line. Dynamo wraps what a backend raises: its own words are the useful ones."""
    problem = getattr(problem, "inner_exception", None) or problem
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"[:300]
