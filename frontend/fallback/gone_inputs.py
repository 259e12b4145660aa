"""Arguments of a compiled call that nobody may hold any more when its graph runs again.

    z = first(x)        z is gone where no backward graph needs it: `first` runs again for it, in eager, on x
    r = second(z)

A call holds no argument of its own: its memory is the caller's to free.
"""

import weakref
from typing import Any

import torch

from mlirc.frontend.torch_compat.aot_autograd import calls
from mlirc.frontend.torch_compat.fake_tensors import base_of


class Reference:
    """A weak reference to an argument: () is that, the view of its base where it was a view that is gone, None where nothing is left.

    edge    has the argument's history and no memory, and its shape where it may be taken again: then it has the history of what is gone, and
            a gradient that nobody may differentiate is one of what is gone, too
    source  the node of an earlier call that gave it or its base, the number of the result, and how that is laid out
    kept    what that call gave again, until the argument's own call runs again
    """

    __slots__ = ("base", "edge", "kept", "place", "source", "tensor")

    def __init__(self, x: torch.Tensor):
        self.tensor = weakref.ref(x)
        base = base_of(x)
        is_leaf = x.requires_grad and x.grad_fn is None  # whoever asks for its gradient holds it
        is_view = not is_leaf and base is not None and base.dtype == x.dtype and type(x) is torch.Tensor
        self.base = weakref.ref(base) if base is not None and is_view else None
        self.source = source_of(base if base is not None and is_view else x)
        taken_again = is_view or self.source is not None
        self.edge = None if x.grad_fn is None else edge_of(x) if taken_again else x.as_strided((0,), (1,)).clone()
        self.kept: torch.Tensor | None = None
        if taken_again:
            self.place = layout_of(x)

    def __call__(self) -> torch.Tensor | None:
        x = self.tensor()
        base = self.base() if x is None and self.base is not None else None
        return x if base is None else self.with_history(base.detach().as_strided(*self.place))

    def taken(self) -> torch.Tensor | None:
        """The argument, computed again if need be, with its history."""
        kept, self.kept = self.kept, None
        x = self()
        if x is None and (value := self.computed() if kept is None else kept) is not None:
            x = self.with_history(value)
        return x

    def again(self) -> torch.Tensor | None:
        """The argument, computed again if need be: then it is kept until `taken`, so that a row of calls computes each argument once."""
        x = self()
        if x is None and self.kept is None:
            self.kept = self.computed()
        return self.kept if x is None else x

    def computed(self) -> torch.Tensor | None:
        if self.source is None:
            return None
        node, number, layout = self.source
        results = node.given.again(node)
        found = results[number] if results is not None and number < len(results) else None
        if not isinstance(found, torch.Tensor) or layout_of(found) != layout:
            return None
        return found.data if self.base is None else found.data.as_strided(*self.place)

    def with_history(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return x if self.edge is None else OfHistory.apply(self.edge, x)  # type: ignore[return-value]


def source_of(x: torch.Tensor) -> tuple[Any, int, Any] | None:
    """The node of the compiled call that gave a tensor, which number of its results it is, and its layout; None for any other tensor, and for one
    that was written to since."""
    node = x.grad_fn
    if node is None or not calls.is_call(node) or not hasattr(node, "given") or x._version:
        return None
    return node, x.output_nr, layout_of(x)


def layout_of(x: torch.Tensor) -> tuple[torch.Size, tuple[int, ...], int]:
    return x.shape, x.stride(), int(x.storage_offset())


def edge_of(x: torch.Tensor) -> torch.Tensor:
    made = torch.ops.aten._unsafe_view.default(x, x.shape)  # no view: it would hold the memory that is replaced
    made.data = torch.empty((), dtype=x.dtype, device=x.device).expand(x.shape)
    return made


class OfHistory(torch.autograd.Function):
    """A tensor, with the history of another one of its shape."""

    @staticmethod
    def forward(ctx: Any, edge: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None
