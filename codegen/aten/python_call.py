"""An ATen call of a host program, made from Python."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.codegen.abi.aliases import is_alias, shares_with
from mlirc.codegen.abi.lazy_tensors import in_memory, is_lazy, is_zero
from mlirc.codegen.user_errors import of_the_user
from mlirc.dialects.core import aten_arguments, symbols
from mlirc.dialects.core.symbols import Expr, Int
from mlirc.dialects.core.tensor_info import TensorInfo

aten = torch.ops.aten
SET = "aten.set_.source_Tensor"
"""This operator gives the tensor object other memory, so it must be called with the caller's tensor, not with a detached one."""


class AtenCall:
    """Calls operator `op` with the arguments of `text` (aten_arguments.py), and gives results as their types promise.

    call(*operands, *sizes) -> a tuple of results; `expressions` says which sizes, in order.

    objects    arguments that have no text in IR, such as generators
    results    a TensorInfo for each tensor, None for a number
    aliases    for each result, the operand whose memory it may share, or -1 where it must have memory of its own
    operands   how many operands there are
    bound      symbols whose values are known before the call; a result's size that has others is not checked
    """

    def __init__(
        self,
        op: str,
        text: str,
        objects: Sequence[Any],
        results: Sequence[TensorInfo | None],
        aliases: Sequence[int],
        operands: int,
        bound: Sequence[str] = (),
        location: str = "",
    ):
        self.op, self.text, self.bound, self.location = op, text, tuple(bound), location
        self.function = resolve(op, objects)
        self.arguments = aten_arguments.arguments(text, objects)
        self.results = tuple(results)
        self.aliases = tuple(aliases)
        self.single = self.results[0] if len(self.results) == 1 else None
        self.operands = operands
        self.numbers, self.tensors = operand_kinds(self.function, text)
        self.of_aten = op.startswith("aten.")
        expressions = dict.fromkeys(aten_arguments.size_expressions(text))
        for info in results:
            for size in (*info.shape, *info.stride) if info else ():
                if isinstance(size, Expr) and symbols.free_symbols(size) <= set(bound):
                    expressions[str(size)] = None
        self.expressions = tuple(expressions)

    def __call__(self, *given: Any) -> tuple[Any, ...]:
        operands: Any = given[: self.operands]
        sizes = dict(zip(self.expressions, given[self.operands :], strict=True)) if self.expressions else {}
        if self.numbers:
            operands = [number(x) if k in self.numbers else x for k, x in enumerate(operands)]
        if self.of_aten and self.op != SET:
            operands = [without_gradient(x) for x in operands]
        args, kwargs = self.arguments(operands, sizes.__getitem__)
        try:
            made = self.function(*args, **kwargs) if self.op != SET else without_history(self.function, args, kwargs)
        except Exception as error:
            error.add_note(f"in {self.op}, called by a compiled graph{self.location and ' from ' + self.location}")
            of_the_user(error)
            raise
        plain = self.single and self.single.layout == "strided" and is_as_promised(made, self.single)
        if plain and (self.aliases[0] != -1 or not keeps_one_of(made, operands)):
            return (made,)
        leaves = flat(made)
        if None not in self.results:  # numbers beside tensors became constants when the graph was captured
            leaves = [x for x in leaves if isinstance(x, torch.Tensor)]
        if len(leaves) != len(self.results):
            raise RuntimeError(f"{self.op} gave {len(leaves)} results where the graph has {len(self.results)}")
        shares = shares_with([y for y in operands if isinstance(y, torch.Tensor) and y.layout is torch.strided])
        return tuple(
            [
                self.as_promised(x, info, alias, shares, sizes)
                for x, info, alias in zip(leaves, self.results, self.aliases, strict=True)
            ]
        )

    def as_promised(self, x: Any, info: TensorInfo | None, alias: int, shares: Callable, sizes: dict) -> Any:
        """`x` itself, a view or a copy of it, with the strides of its type, and in an operand's memory only where `alias` allows it.

        shares   tells whether a tensor is in the memory of an operand

        Raises RuntimeError for other sizes or another dtype.
        """
        if info is None:
            return x
        if not isinstance(x, torch.Tensor):
            raise RuntimeError(f"{self.op} gave a {type(x).__name__} where the graph has a tensor")
        if info.layout.startswith("sparse"):
            return own_parts(x, info, shares)
        if x.layout is torch.strided and is_lazy(
            x
        ):  # of repeated elements one is computed, which the view then repeats
            x = in_memory(x) if is_zero(x) else in_memory(x[once(x.shape, x.stride())]).expand(x.shape)
        shape = tuple([value(size, n, sizes) for size, n in zip(info.shape, x.shape, strict=False)])
        if x.dtype != info.dtype or x.shape != shape:
            have, promised = f"{x.dtype} {tuple(x.shape)}", f"{info.dtype} {info.shape}"
            raise RuntimeError(f"{self.op} gave {have} where its meta function promised {promised}")
        if info.layout != "strided":
            return x
        strides = tuple([value(size, n, sizes) for size, n in zip(info.stride, x.stride(), strict=True)])
        if alias == -1 and shares(x):
            return laid_out(x, strides)
        if x.stride() == strides:
            return x
        if x.numel() == 0 or all(a == b or n == 1 for n, a, b in zip(shape, strides, x.stride(), strict=True)):
            return x.as_strided(shape, strides)
        return laid_out(x, strides)


def own_parts(x: torch.Tensor, info: TensorInfo, shares: Callable) -> torch.Tensor:
    """A sparse result, whose indices and elements are copied where they are in an operand's memory, which does not outlive the call."""
    if str(x.layout) != f"torch.{info.layout}" or x.dtype != info.dtype or x.dim() != info.rank:
        raise RuntimeError(
            f"the result is a {x.layout} of {x.dtype} where the graph has a {info.layout} of {info.dtype}"
        )
    if x.layout is not torch.sparse_coo:
        return x.clone()
    parts = aten._indices.default(x), aten._values.default(x)
    if not any(map(shares, parts)):
        return x
    own = [laid_out(part, part.stride()) if shares(part) else part for part in parts]  # its strides choose kernels
    kind = {"dtype": x.dtype, "layout": x.layout, "device": x.device, "is_coalesced": x.is_coalesced()}
    make = aten._sparse_coo_tensor_with_dims_and_tensors.default
    return make(x.sparse_dim(), x.dense_dim(), x.shape, *own, **kind)


def without_history(function: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return function(*args, **kwargs)


def once(shape: Sequence[int], *strides: Sequence[int]) -> tuple[slice, ...]:
    """The part of a tensor that has each element of memory once: of dimensions with stride 0 in all of `strides` the first index."""
    repeated = [n > 1 and not any(steps) for n, *steps in zip(shape, *strides, strict=True)]
    return tuple([slice(0, 1) if x else slice(None) for x in repeated])


def laid_out(x: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy with these strides, which are 0 only where those of `x` are."""
    made = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
    part = once(x.shape, strides, x.stride())
    made[part].copy_(x[part])
    return made


def resolve(op: str, objects: Sequence[Any]) -> Any:
    """The operator's callable; "object.3" is one of `objects`."""
    return objects[int(op.removeprefix("object."))] if op.startswith("object.") else aten_arguments.resolve(op)


def is_as_promised(x: Any, info: TensorInfo) -> bool:
    """Whether a result can be given back as it is, but for the memory that it is in."""
    return (
        type(x) is torch.Tensor
        and x.dtype is info.dtype
        and x.shape == info.shape
        and x.stride() == info.stride
        and not is_lazy(x)
    )


def keeps_one_of(x: torch.Tensor, operands: Sequence[Any]) -> bool:
    return any(isinstance(y, torch.Tensor) and y.layout is torch.strided and is_alias(x, y) for y in operands)


def value(size: Int, actual: int, sizes: dict[str, int]) -> int:
    return size if isinstance(size, int) else sizes.get(str(size), actual)


def without_gradient(x: Any) -> Any:
    """An operand as a kernel sees it behind autograd: some of ATen's refuse tensors that require one."""
    return x.detach() if isinstance(x, torch.Tensor) and x.requires_grad else x


def number(x: Any) -> Any:
    return x.item() if isinstance(x, torch.Tensor) else x


def operand_kinds(function: Any, text: str) -> tuple[frozenset[int], frozenset[int]]:
    """The operands that the schema takes as numbers, and those that it takes as tensors.

    A Python float that may change from call to call is a 0-d tensor in the graph. Where the schema takes a number, it is made one again.
    """
    if not isinstance(function, torch._ops.OpOverload):
        return frozenset(), frozenset()
    positional, keywords = aten_arguments.parse(text)
    schema = function._schema.arguments
    given = [*zip(schema, positional, strict=False), *((a, keywords[a.name]) for a in schema if a.name in keywords)]
    numbers, tensors = set(), set()
    for argument, value in given:
        found = tensors if "Tensor" in str(argument.type) else numbers
        for x in value if isinstance(value, list) else (value,):
            if isinstance(x, dict) and "$" in x:
                found.add(x["$"])
    return frozenset(numbers), frozenset(tensors)


def flat(made: Any) -> list[Any]:
    """The results of an operator in a list: nested lists opened, None left out."""
    if isinstance(made, torch.Tensor):
        return [made]
    if made is None:
        return []
    if isinstance(made, (list, tuple)):
        return [leaf for item in made for leaf in flat(item)]
    if isinstance(made, dict):
        return [leaf for item in made.values() for leaf in flat(item)]
    return [made]
