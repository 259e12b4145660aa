"""Margin losses whose decompositions in PyTorch differ from their kernels: values and gradients, of every form."""

import pytest
import torch
from torch.nn import functional as F

LABELS = torch.tensor(
    [[1, 3, -1, 2, 0], [0, 1, 2, 3, 4], [-1, 0, 1, 2, 3], [4, -1, 4, 4, 4], [2, 2, -1, 0, 0], [0] * 5]
)
FORMS = {
    "several labels": lambda x, how: F.multilabel_margin_loss(x, LABELS, reduction=how),
    "several labels, one row": lambda x, how: F.multilabel_margin_loss(x[0], LABELS[0], reduction=how),
    "one label": lambda x, how: F.multi_margin_loss(x, LABELS[:, 0].abs(), reduction=how),
    "one label, weights": lambda x, how: F.multi_margin_loss(
        x, LABELS[:, 0].abs(), 2, 0.5, torch.arange(5.0, dtype=x.dtype), reduction=how
    ),
    "one label, one row": lambda x, how: F.multi_margin_loss(x[0], torch.tensor(2), reduction=how),
    "one label, a row of one": lambda x, how: F.multi_margin_loss(x[0], torch.tensor([2]), reduction=how),
}
ELEMENTS = {
    "numbers": torch.randn(6, 5, generator=torch.Generator().manual_seed(1)),
    "differences of zero": torch.arange(30.0).reshape(6, 5).remainder(3),
    "one NaN": torch.arange(30.0).reshape(6, 5).where(torch.arange(5) != 3, torch.nan),
}


def test_as_eager():
    def f(x):
        first, *others = FORMS.values()
        others = [form(x, how) for form, how in zip(others, ("none", "sum", "mean", "none", "none"), strict=True)]
        return [*others, *(first(x, how) for how in ("none", "mean", "sum"))]

    compiled = torch.compile(f, backend="mlirc", options={"fallback": "error"})
    for elements in ELEMENTS.values():
        results = []
        for call in (f, compiled):
            x = elements.clone().requires_grad_()
            losses = call(x)
            torch.cat([(k + 1) * loss.reshape(-1) for k, loss in enumerate(losses)]).sum().backward()
            results.append((losses, x.grad))
        torch.testing.assert_close(results[1], results[0], equal_nan=True)


def test_deprecated_arguments():
    def f(x):
        return F.multi_margin_loss(input=x, target=LABELS[:, 0].abs(), size_average=False), F.multilabel_margin_loss(
            x, LABELS, None, False
        )

    x = ELEMENTS["numbers"]
    torch.testing.assert_close(torch.compile(f, backend="mlirc")(x), f(x))


def test_labels_of_no_class():
    @torch.compile(backend="mlirc", dynamic=True)
    def f(x, target):
        return F.multilabel_margin_loss(x, target), F.multi_margin_loss(x, target[:, -1])

    f(torch.randn(6, 5), LABELS.abs())
    for label in (-2, 5):
        target = LABELS.clone()
        target[2, 4] = label
        with pytest.raises(RuntimeError):
            f(torch.randn(6, 5), target)
