"""Trains a small GPT on text that it makes: sums of two digits. `python examples/train_gpt.py [STEPS]`.

The whole step, forward and backward, is compiled; the losses are those of eager.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

ALPHABET = "0123456789+=\n"
LENGTH = 8  # of "12+34=46" and its like


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(len(ALPHABET), width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(ALPHABET))

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def texts(count: int) -> torch.Tensor:
    """Token ids of sums: (count, LENGTH), int64."""
    pairs = torch.randint(0, 50, (count, 2)).tolist()
    lines = [f"{a:02}+{b:02}={a + b:02}"[:LENGTH] for a, b in pairs]
    return torch.tensor([[ALPHABET.index(c) for c in line] for line in lines])


def main(steps: int) -> list[float]:
    torch.manual_seed(0)
    model = GPT()
    compiled = torch.compile(model, backend="mlirc")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(steps):
        ids = texts(64)
        logits = compiled(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step}: loss {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
