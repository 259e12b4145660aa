"""Collectives of two processes (gloo): DDP, FSDP2 and tensor parallel give eager's losses; collectives start early, and are waited for late."""

import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("collectives_worker.py")


@pytest.mark.parametrize(
    "kind", [[], pytest.param(["data-parallel"], marks=pytest.mark.full)], ids=["collectives", "data-parallel"]
)
def test_two_processes(tmp_path, kind):
    store = str(tmp_path / "store")
    command = [sys.executable, str(WORKER)]
    workers = [
        subprocess.Popen(
            [*command, str(rank), store, *kind], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(2)
    ]
    try:
        said = [worker.communicate(timeout=240)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], said[0][-3000:] + said[1][-3000:]
