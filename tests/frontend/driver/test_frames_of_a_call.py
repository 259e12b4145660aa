"""How many Python functions of ours a call of a compiled model runs: the fixed cost of a step is theirs."""

import sys

import torch
from torch._dynamo import eval_frame

FOLDERS = ("/frontend/", "/codegen/", "/lowering/", "/dialects/")


def frames(work) -> tuple[int, int]:
    """Frames of ours, and of the wrappers that keep Dynamo from tracing, of a call."""
    ours, wrappers = [], []

    def hear(frame, event, _):
        if event == "call":
            code = frame.f_code
            if "site-packages" not in code.co_filename and any(part in code.co_filename for part in FOLDERS):
                ours.append(code.co_name)
            if code.co_filename == eval_frame.__file__ and code.co_name == "_fn":
                wrappers.append(code.co_name)

    sys.setprofile(hear)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(ours), len(wrappers)


def model():
    made = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return torch.compile(made, backend="mlirc", options={"cache": False, "fallback": "error"}), torch.randn(4, 8)


def of_eager() -> int:
    """The wrappers of a call that the backend `eager` compiled: Dynamo's own."""
    call = torch.compile(torch.nn.Linear(8, 8), backend="eager")
    x = torch.randn(4, 8)
    call(x)
    return frames(lambda: call(x))[1]


def test_a_training_step():
    call, x = model()
    step = lambda: call(x).sum().backward()
    for _ in range(3):
        step()
    ours, wrappers = frames(step)
    assert ours <= 28
    assert wrappers <= of_eager() + 2  # and one each for the backward pass and its graph


def test_a_call_without_gradients():
    call, x = model()
    with torch.no_grad():
        for _ in range(3):
            call(x)
        ours, wrappers = frames(lambda: call(x))
    assert ours <= 6
    assert wrappers <= of_eager()
