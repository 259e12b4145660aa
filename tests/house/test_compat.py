"""What is private of PyTorch can be missing: with each reach left out, and with all, programs give what eager gives.

docs/compat.md has a row for each.
"""

import importlib
import os
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from mlirc import codegen, frontend
from mlirc.codegen.abi import reach
from mlirc.codegen.cache import folder as cache_folder
from mlirc.codegen.process import background
from tests import sampling
from tests.forked_programs import python

DOCUMENT = Path(__file__).parents[2] / "docs/compat.md"
ROW = re.compile(r"^\| `([\w-]+)` \|(.*)\|$", re.MULTILINE)


def load_all() -> None:
    for package in (codegen, frontend):
        folder = "abi" if package is codegen else "torch_compat"
        found = importlib.import_module(f"{package.__name__}.{folder}")
        for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            importlib.import_module(module.name)
    importlib.import_module("mlirc.codegen.runtime.native_runtime")  # has the one reach that is code of ours


load_all()
KNOWN = dict(reach.known)  # before any test adds its own
NEEDED = sorted(name for name, instead in reach.known.items() if name not in reach.reaches)
REACHES = sorted(reach.reaches)
ONCE = {"restart"}  # asked when the module is imported


def test_the_document_has_a_row_for_each_reach():
    rows = {name: [cell.strip() for cell in rest.split("|")] for name, rest in ROW.findall(DOCUMENT.read_text())}
    assert rows.keys() == KNOWN.keys()
    for name, (file, what, tried, test, without, cost) in rows.items():
        path = DOCUMENT.parents[1] / file.strip("`")
        assert path.is_file() and f'"{name}"' in path.read_text(), f"{name} is not in {file}"
        assert without == KNOWN[name], f"{name}: without it, {KNOWN[name]}"
        assert what and test and cost and torch.__version__[:4] in tried, (
            f"{name} has an empty cell, or was not tried here"
        )


@pytest.mark.parametrize("more", [[], pytest.param(["--whole"], marks=pytest.mark.full)], ids=["a part", "all parts"])
def test_without_one_results_are_the_same(more, tmp_path):
    """In forks of a process in which nothing was compiled: every sixth one of them, several at a time, or each alone."""
    names = [*more, *sampling.some([name for name in REACHES if name not in ONCE], 6)]
    done = run(names, {cache_folder.VARIABLE: str(tmp_path)})
    assert done.stdout == "", f"wrong without {done.stdout.split()}:\n{done.stderr[-6000:]}"


SWITCHES = {  # of a whole process, so that a thread of its own does not leave them behind
    "anomaly mode": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, True),
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype, torch.bfloat16),
    "one thread backward": (torch._C._is_multithreading_enabled, torch._C._set_multithreading_enabled, False),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_of_the_program_takes_none_away(name):
    """What a reach finds that tries real tensors does not depend on how the program had PyTorch set when it was first asked."""
    asked, switch, value = SWITCHES[name]
    found = [one for one in reach.reaches.values() if one.apart and one() is not None]
    assert found
    before = asked()
    switch(value)
    try:
        for one in found:
            background.start(one._find).result()
    finally:
        switch(before)


class Other(TorchDispatchMode):
    """Tensors are not what operators say."""

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        made = operator(*args, **(kwargs or {}))
        return made * 2 if operator is torch.ops.aten.mul.Tensor else made


AROUND = {  # of a thread, when a reach is first asked
    "no saved tensors": lambda: torch.autograd.graph.disable_saved_tensors_hooks("not here"),
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu"),
    "another device": lambda: torch.device("meta"),
    "a dispatch mode": Other,
    "fake tensors": FakeTensorMode,
}
AT_ITS_OWN_TIME = {*ONCE, "library-changes", "result-memory", "unlocked-emission"}
"""Asked once, on a thread that makes ready what every program needs, or after LLVM was."""


@pytest.mark.parametrize("name", [*AROUND, "vmap"])
def test_where_the_program_is_takes_none_away(name):
    """What a reach finds does not depend on the mode, the context or the transform within which it was first asked."""
    found = [one for one in reach.reaches.values() if one.name not in AT_ITS_OWN_TIME and one() is not None]

    def ask(x=None):
        for one in found:
            background.start(one._find).result() if one.apart else one._find()
        return x

    if name == "vmap":
        torch.vmap(ask)(torch.ones(2))
    else:
        with AROUND[name]():
            ask()


def run(names: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = python("-m", "tests.without_reaches", *names, env=os.environ | variables)
    assert done.returncode == 0, done.stderr[-6000:]
    return done


@pytest.mark.parametrize("name", ["all", *(pytest.param(x, marks=pytest.mark.full) for x in [*NEEDED, *ONCE])])
def test_a_process_without_one(name, tmp_path):
    done = run([], {reach.VARIABLE: name, cache_folder.VARIABLE: str(tmp_path)})
    assert "Traceback" not in done.stderr
