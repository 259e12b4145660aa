"""Serves images in batches of any size with one compiled ResNet: `python examples/serve_resnet.py`.

The batch is a symbol. PyTorch traces three times, for a batch of 1, for 2 to 15 and for more, as its own convolutions differ
there; each other size runs at once. `freeze` is the promise that the weights stay as they are.
"""

import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        y = self.norm1(self.conv1(x)).relu()
        return (self.norm2(self.conv2(y)) + self.skip(x)).relu()


def resnet(classes: int = 10) -> nn.Module:
    """Images (batch, 3, 32, 32) to scores (batch, classes)."""
    blocks = [Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)]
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes)).eval()


def main() -> list[float]:
    """The largest differences from eager, a batch size each."""
    torch.manual_seed(0)
    model = resnet()
    served = torch.compile(model, backend="mlirc", dynamic=True, options={"freeze": True})
    differences = []
    with torch.inference_mode():
        for batch in (4, 1, 7, 32, 2):
            images = torch.randn(batch, 3, 32, 32)
            start = time.perf_counter()
            scores = served(images)
            milliseconds = 1000 * (time.perf_counter() - start)
            differences.append((scores - model(images)).abs().max().item())
            print(f"batch {batch}: {milliseconds:.1f} ms, classes {scores.argmax(1).tolist()[:8]}")
    return differences


if __name__ == "__main__":
    main()
