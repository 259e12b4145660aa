"""The dtypes of the results that an operator's kernel gives, where its meta function may promise others: found by calling it.

Asked of elementwise operators, losses and softmaxes whose operands have several dtypes. The operator is called once for each
combination, on a thread without modes: with one element in each operand, or, where it is not elementwise, with zeros of the
operands' own sizes, if they are few.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.fx.node import map_aggregate

from mlirc.codegen.process import background
from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves

aten = torch.ops.aten

UNTAGGED = (
    aten._prelu_kernel.default,
    aten._prelu_kernel_backward.default,
    aten.addr.default,
    aten.argmax.default,
    aten.argmin.default,
    aten.elu_backward.default,
    aten.hardshrink_backward.default,
    aten.hardsigmoid_backward.default,
    aten.hardswish.default,
    aten.hardswish_backward.default,
    aten.hardtanh_backward.default,
    aten.huber_loss.default,
    aten.huber_loss_backward.default,
    aten.ldexp.Tensor,
    aten.leaky_relu_backward.default,
    aten.log_sigmoid_backward.default,
    aten.log_sigmoid_forward.default,
    aten.mish_backward.default,
    aten.mse_loss.default,
    aten.mse_loss_backward.default,
    aten.native_dropout_backward.default,
    aten.rrelu_with_noise_backward.default,
    aten.rsub.Tensor,
    aten.smooth_l1_loss.default,
    aten.smooth_l1_loss_backward.default,
    aten.soft_margin_loss.default,
    aten.soft_margin_loss_backward.default,
    aten.softplus_backward.default,
    aten.softshrink_backward.default,
    aten.threshold_backward.default,
)
"""What one element of each operand is enough for, though PyTorch does not tag it as elementwise."""

WHOLE = ("loss", "softmax", "cross_entropy")  # in names of operators that are tried with whole tensors
MOST = 2**20  # elements of operands
_known: dict[str, list[torch.dtype] | None] = {}


def with_dtypes_of_kernel(target: Any, args: tuple, kwargs: dict, result: torch.Tensor) -> torch.Tensor:
    """A fake result, in the dtype that the operator's kernel gives."""
    tensors = list(tensors_of((*args, *kwargs.values())))
    if len({x.dtype for x in tensors}) < 2 or not may_be_tried(target, tensors):
        return result
    found = dtypes_of_kernel(target, args, kwargs)
    if found is None or len(found) != 1 or found[0] == result.dtype:
        return result
    return result.to(found[0])


def tensors_of(arguments: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among an operator's arguments, whose schema has no deeper tree than lists: PyTorch's trees take 60 us for them."""
    for x in arguments:
        if isinstance(x, torch.Tensor):
            yield x
        elif isinstance(x, (list, tuple)):
            yield from tensors_of(x)


def may_be_tried(target: Any, tensors: Sequence[torch.Tensor], any_operator: bool = False) -> bool:
    """Whether a call tells the dtypes, and is cheap. `any_operator`: of one that is not elementwise, too."""
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    if torch.Tag.nondeterministic_seeded in target.tags or not tensors:
        return False
    if not {x.device.type for x in tensors} <= {"cpu", "cuda"}:
        return False
    if is_elementwise(target):
        return True
    whole = any_operator or any(word in target._schema.name for word in WHOLE)
    return whole and sum(map(_elements, tensors)) <= MOST


def dtypes_of_kernel(target: Any, args: Any, kwargs: Any) -> list[torch.dtype] | None:
    """The dtypes of the results; None where the call raises."""
    one = is_elementwise(target)
    # a quotient of integers is a number of the default dtype
    key = f"{target} {torch.get_default_dtype()} {map_aggregate((args, kwargs), _shown if one else _shown_whole)}"
    if key not in _known:
        operands: Any = map_aggregate((args, kwargs), one_element if one else _zeros)
        _known[key] = background.apart(_call, target, *operands)
    return _known[key]


def is_elementwise(target: Any) -> bool:
    return torch.Tag.pointwise in target.tags or target in UNTAGGED


def dtypes_of(results: Any) -> list[torch.dtype]:
    return [x.dtype for x in tree_leaves(results) if isinstance(x, torch.Tensor)]


def _call(target: Callable, args: tuple, kwargs: dict) -> list[torch.dtype] | None:
    try:
        with torch.no_grad():
            args, kwargs = made((args, kwargs))
            return dtypes_of(target(*args, **kwargs))
    except Exception as error:
        raise_of_handler(error)
        return None


def _elements(x: torch.Tensor) -> int:
    """How many the tensor has where the graph was traced; too many where that is not known."""
    return math.prod(_size(n) for n in x.shape)


def _size(n: Any) -> int:
    """A size where the graph was traced."""
    if isinstance(n, int):
        return n
    return MOST + 1 if n.node.hint is None else int(n.node.hint)


def _shown(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return f"{x.dtype}[{x.dim()}] {x.device.type}"
    return x if isinstance(x, int | float | complex | str | torch.dtype | None) else type(x).__name__


def _shown_whole(x: Any) -> Any:
    return f"{x.dtype}{list(map(_size, x.shape))} {x.device.type}" if isinstance(x, torch.Tensor) else _shown(x)


class _Wanted:
    """A tensor to be made where the operator is called."""

    def __init__(self, made: Callable, shape: Sequence[int], like: torch.Tensor):
        self.made, self.shape, self.dtype, self.device = made, shape, like.dtype, like.device


def made(x: Any) -> Any:
    return map_aggregate(x, lambda y: y.made(y.shape, dtype=y.dtype, device=y.device) if isinstance(y, _Wanted) else y)


def _zeros(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return _Wanted(torch.zeros, [_size(n) for n in x.shape], x)
    return _size(x) if isinstance(x, torch.SymInt) else one_element(x)


def one_element(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return _Wanted(torch.ones, (1,) * x.dim(), x)
    if isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool):
        return {torch.SymInt: 1, torch.SymFloat: 1.0}.get(type(x), True)
    return x
