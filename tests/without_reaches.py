"""A small battery of compiled programs against eager, and processes that go through it.

python -m tests.without_reaches            does without what MLIRC_WITHOUT names
python -m tests.without_reaches NAME ...   does without them in children, several in each, and prints the names of those that failed
    --whole                                with each in a child of its own, and all parts that ask for it in place of one
"""

import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from typing import TextIO

import torch
from torch import nn

import mlirc
from mlirc.codegen.abi import reach

OF_A_WARM_CACHE = {"trace-result", "trace-metadata", "global-switches"}
ON_GPU = {"cuda-generator", "raw-stream", "storage-use", "tf32"}  # never asked for where there is none
GROUPS = 3


def battery(fallback: str = "eager") -> None:
    """Inference, training, sizes that are symbols, a warm cache, a budget for compiling, several threads: each result is eager's."""
    for _ in range(2):  # the second time out of the disk cache, if there is one
        torch._dynamo.reset()
        for part in PARTS[:-1]:
            part(fallback)
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


def budget(fallback: str) -> None:
    """Quick code, then the best code."""
    model, x = nn.Sequential(nn.Linear(6, 9), nn.Tanh()), torch.randn(3, 6)
    run = torch.compile(model, backend="mlirc", options={"fallback": fallback, "compile_seconds": 0})
    for _ in range(2):
        torch.testing.assert_close(run(x), model(x))
        run(x).sum().backward()
        mlirc.finish_compiling()


PARTS = [inference, training, sizes, budget, threads]


def children(names: list[str], whole: bool) -> None:
    """Nothing was compiled before they are forked, so each child finds all that it does not do without.

    Each does the part that compiles most, training, if that asks for what it does without. A child does without several
    reaches, of different files; what the absence of the others kept from being asked for has a child of its own.
    """
    parts = parts_of_each()
    names = [name for name in names if name not in ON_GPU or torch.cuda.is_available()]
    groups = [[name] for name in names]
    if not whole:
        parts = {name: [training] if training in asking else asking[:1] for name, asking in parts.items()}
        cold = [name for name in names if name not in OF_A_WARM_CACHE]
        groups = [*(cold[k::GROUPS] for k in range(GROUPS)), *([name] for name in names if name in OF_A_WARM_CACHE)]
    while groups:
        group = groups.pop(0)
        with tempfile.TemporaryFile("w+") as hidden:
            if not in_child(lambda group=group, hidden=hidden: without(group, parts, hidden)):
                print(*group, flush=True)
            hidden.seek(0)
            groups += [[name] for name in hidden.read().split()] if len(group) > 1 else []


def in_child(work: Callable[[], object]) -> bool:
    """Whether a child that does this ends without an exception."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def parts_of_each() -> dict[str, list[Callable[[str], None]]]:
    """The parts of the battery that ask for a reach, by its name. Each part runs in a child in which none was asked for."""
    found: dict[str, list[Callable[[str], None]]] = {}
    for part in PARTS:
        with tempfile.TemporaryFile("w+") as asked:

            def tell(part=part, asked=asked) -> None:
                forget_all()
                part("eager")
                asked.write("\n".join(name for name, one in reach.reaches.items() if one.was_asked))
                asked.flush()

            assert in_child(tell), f"{part.__name__} fails with all of them"
            asked.seek(0)
            for name in asked.read().split():
                found.setdefault(name, []).append(part)
    return found


def forget_all() -> None:
    for one in reach.reaches.values():
        one.forget()


def without(names: list[str], parts: dict[str, list[Callable[[str], None]]], hidden: TextIO) -> None:
    """Writes to `hidden` the names that a part asks for, and did not here."""
    os.environ[reach.VARIABLE] = ",".join(names)
    forget_all()
    if OF_A_WARM_CACHE.intersection(names):
        battery()
    else:
        for part in PARTS:
            if any(part in parts.get(name, []) for name in names):
                part("eager")
    hidden.writelines(f"{name}\n" for name in names if parts.get(name) and not reach.reaches[name].was_asked)
    hidden.flush()
    for name in names:
        assert reach.reaches[name]() is None and reach.VARIABLE in reach.reaches[name].why, "it was found"


if __name__ == "__main__":
    if sys.argv[1:]:
        from mlirc.frontend.driver import driver, observers, steps  # noqa: F401  # each child would: half of its time
        from mlirc.frontend.entry import backend  # noqa: F401
        from tests.house import test_compat  # noqa: F401  # loads all

        children([name for name in sys.argv[1:] if name != "--whole"], "--whole" in sys.argv)
    else:
        battery()
