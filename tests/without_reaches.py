"""A small battery of compiled programs against eager, and processes that go through it.

python -m tests.without_reaches            does without what MLIRC_WITHOUT names
python -m tests.without_reaches NAME ...   does without each in a child of its own, and prints the names of those that failed
"""

import os
import sys
import threading
import traceback

import torch
from torch import nn

from mlirc.codegen.abi import reach

ON_GPU = {"cuda-generator", "raw-stream", "storage-use", "tf32"}  # never asked for where there is none


def battery(fallback: str = "eager", warm: bool = True) -> None:
    """Inference, training, sizes that are symbols, a warm cache, several threads: each result is eager's."""
    for _ in range(1 + warm):  # the second time out of the disk cache, if there is one
        torch._dynamo.reset()
        inference(fallback)
        training(fallback)
        sizes(fallback)
    threads(fallback)


def compiled(fn, fallback, **how):
    return torch.compile(fn, backend="mlirc", options={"fallback": fallback}, **how)


def inference(fallback: str) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4)).eval(), torch.randn(3, 6)
    run = compiled(model, fallback)
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x))
        model[0].weight.data.mul_(2)
        torch.testing.assert_close(run(x), model(x))
        large = torch.randn(1100, 1100)  # its result has memory of the pool
        twice = compiled(lambda x: (x + 1).sort(0)[0], fallback)
        torch.testing.assert_close(twice(large), (large + 1).sort(0)[0])
        kept = twice(large)
        torch.testing.assert_close(twice(large + 1), (large + 2).sort(0)[0])
        torch.testing.assert_close(kept, (large + 1).sort(0)[0])


def training(fallback: str) -> None:
    def fn(x, w):
        y = nn.functional.gelu(x @ w)
        return y.square().mean(), y, y.t()

    torch.manual_seed(1)
    x, w = torch.randn(5, 4), torch.randn(4, 3)
    found = []
    for run in (compiled(fn, fallback), fn):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        loss, y, _ = run(a, b)
        loss.backward(retain_graph=True)
        (y.sum() * 2).backward()
        found.append((loss, y, a.grad, b.grad))
    torch.testing.assert_close(*found)


def sizes(fallback: str) -> None:
    run = compiled(lambda x, n: (x * n).cumsum(0) + x.shape[0], fallback, dynamic=True)
    for rows, n in ((3, 2), (7, -5)):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(run(x, n), (x * n).cumsum(0) + rows)


def threads(fallback: str) -> None:
    run, x, wrong = compiled(lambda x: x.sin().sum(1), fallback), torch.randn(40, 8), []

    def calls() -> None:
        try:
            for _ in range(20):
                torch.testing.assert_close(run(x), x.sin().sum(1))
        except BaseException as error:
            wrong.append(error)

    made = [threading.Thread(target=calls) for _ in range(3)]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    assert not wrong, wrong


def children(names: list[str]) -> None:
    """Nothing was compiled before they are forked, so each child finds all that it does not do without."""
    for name in names:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                without(name)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            print(name, flush=True)


def without(name: str) -> None:
    os.environ[reach.VARIABLE] = name
    for one in reach.reaches.values():
        one.forget()
    if name not in ON_GPU or torch.cuda.is_available():
        battery(warm=name in ("trace-result", "trace-metadata"))
    assert reach.reaches[name]() is None and reach.VARIABLE in reach.reaches[name].why, "it was found"


if __name__ == "__main__":
    if sys.argv[1:]:
        from tests.house import test_compat  # noqa: F401  # loads all

        children(sys.argv[1:])
    else:
        battery()
