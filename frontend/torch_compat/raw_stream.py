"""The handle of a GPU's current stream."""

import torch

from mlirc.codegen.abi.reach import reach


def current_stream_handle(device: int) -> int:
    ask = raw_stream()
    return torch.cuda.current_stream(device).cuda_stream if ask is None else ask(device)


@reach("raw-stream", instead="a Stream object is made to ask")
def raw_stream():
    """PyTorch's function that gives it without making an object."""
    ask = torch._C._cuda_getCurrentRawStream
    device = torch.cuda.current_device()
    assert ask(device) == torch.cuda.current_stream(device).cuda_stream
    return ask
