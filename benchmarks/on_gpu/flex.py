"""Patterns of flex_attention in bfloat16 on a GPU: what they see of the scores, and their calls, forward and backward."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

BATCH, HEADS, ROWS, SIZE = 4, 16, 4096, 128
WINDOW, DOCUMENT = 512, 600


@dataclass(frozen=True)
class Pattern:
    """`seen`: the fraction of all scores that are not masked."""

    name: str
    mask_mod: Callable | None
    score_mod: Callable | None
    seen: float

    def call(self, size: int = SIZE) -> tuple[Callable, list[torch.Tensor]]:
        """A function of the tensors with it, which need gradients; `size` of a head."""
        mask: Any = self.mask_mod and create_block_mask(self.mask_mod, None, None, ROWS, ROWS, device="cuda")
        shape = BATCH, HEADS, ROWS, size
        inputs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
        return (lambda q, k, v: flex_attention(q, k, v, self.score_mod, mask)), inputs

    def step(self, call: Callable, inputs: list[torch.Tensor], training: bool) -> None:
        with torch.set_grad_enabled(training):
            result = call(*inputs)
        if training:
            torch.autograd.grad(result.sum(), inputs)

    def operations(self, training: bool) -> float:
        """Operations of the matmuls, two for each multiply-add: two matmuls, and five more for gradients."""
        return (7 if training else 2) * 2.0 * BATCH * HEADS * ROWS * ROWS * SIZE * self.seen


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i >= j) & (i - j < WINDOW)


def document(b, h, i, j):
    return (i // DOCUMENT == j // DOCUMENT) & (i >= j)


def alibi(s, b, h, i, j):
    return s + torch.exp2(-0.5 * (h + 1)) * (j - i)


def soft_cap(s, b, h, i, j):
    return 20 * torch.tanh(s / 20)


PATTERNS = [
    Pattern("full", None, None, 1.0),
    Pattern("causal", causal, None, 0.5),
    Pattern("sliding window", window, None, WINDOW / ROWS),
    Pattern("alibi", causal, alibi, 0.5),
    Pattern("document mask", document, None, DOCUMENT / 2 / ROWS),
    Pattern("soft cap", causal, soft_cap, 0.5),
]
