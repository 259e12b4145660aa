"""`mlirc doctor`: what it says of this machine, and that it finds what is broken."""

import os

import torch

from tests.forked_programs import python


def doctor(**environment):
    return python("-m", "mlirc", "doctor", env=os.environ | environment)


def test_a_machine_that_is_well():
    done = doctor(MLIRC_WITHOUT="")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "all is well" and f"  torch {torch.__version__}" in lines
    assert "  cpu: a graph and its gradient give what eager gives" in lines
    assert "FAILS" not in done.stdout and f"MLIRC_CACHE_DIR={os.environ['MLIRC_CACHE_DIR']}"[:40] in done.stdout
    assert any(line.startswith("  ") and line.endswith(" work") for line in lines)


def test_what_is_missing_is_told():
    done = doctor(MLIRC_WITHOUT="storage-layout")
    assert done.returncode == 0
    assert "without storage-layout, large results are new memory in every call" in done.stdout


def test_what_nothing_can_be_compiled_without():
    done = doctor(MLIRC_WITHOUT="fake-tensors")
    assert done.returncode == 1 and "FAILS" in done.stdout
    assert done.stdout.splitlines()[-1] == "something is wrong: see the lines that say FAILS"
    assert "Traceback" not in done.stderr
