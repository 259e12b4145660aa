"""Entries of the disk cache that are something else: each is ignored with a warning and made anew, nothing waits for it, and the
answer is right."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mlirc.codegen.cache import folder as cache_folder
from mlirc.codegen.cache.entry import CacheEntry
from tests.codegen.cache.test_disk_cache import pointwise, run

PROGRAM = """
import torch
fn = torch.compile(lambda x, w: ((x @ w).relu() * 2 + 1).sum(0), backend="mlirc", options={"fallback": "error"})
w = torch.full((4, 4), 0.5, requires_grad=True)
out = fn(torch.ones(3, 4), w)
out.sum().backward()
print("answer", out.tolist(), w.grad.tolist())
"""


def fifo(path: Path, good: bytes) -> None:
    os.mkfifo(path)


def folder_of_that_name(path: Path, good: bytes) -> None:
    (path / "within").mkdir(parents=True)


def loop(path: Path, good: bytes) -> None:
    path.symlink_to(path)


def dangling(path: Path, good: bytes) -> None:
    path.symlink_to(path.with_suffix(".nowhere"))


def link_to_fifo(path: Path, good: bytes) -> None:
    other = path.parent.parent / f"{path.name}.fifo"
    if not other.exists():
        os.mkfifo(other)
    path.symlink_to(other)


def link_to_good(path: Path, good: bytes) -> None:
    other = path.parent.parent / f"{path.name}.good"
    other.write_bytes(good)
    path.symlink_to(other)


def device(path: Path, good: bytes) -> None:
    path.symlink_to("/dev/zero")


def bound(path: Path, good: bytes) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # a socket's name is short
    try:
        with socket.socket(socket.AF_UNIX) as x:
            x.bind(path.name[-80:])
        os.rename(path.name[-80:], path.name)
    finally:
        os.chdir(before)


def truncated(path: Path, good: bytes) -> None:
    path.write_bytes(good[: len(good) // 2])


def huge(path: Path, good: bytes) -> None:
    path.write_bytes(good)
    os.truncate(path, 1 << 42)


def of_another_user(path: Path, good: bytes) -> None:
    path.write_bytes(good)
    os.chown(path, 12345, 12345)


def unreadable(path: Path, good: bytes) -> None:
    path.write_bytes(good)
    path.chmod(0)


Damage = Callable[[Path, bytes], None]
DAMAGES: list[Damage] = [
    *(fifo, folder_of_that_name, loop, dangling, link_to_fifo, link_to_good, device, bound, truncated, huge),
    pytest.param(of_another_user, marks=pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")),
    pytest.param(unreadable, marks=pytest.mark.skipif(os.geteuid() == 0, reason="root reads anything")),
]  # type: ignore[list-item]


def replace_all(folder: Path, damage: Damage) -> list[Path]:
    """Each entry by what is no entry."""
    found = [path for path in sorted(folder.iterdir()) if path.suffix != ".part"]
    for path in found:
        good = path.read_bytes()
        path.unlink()
        damage(path, good)
    return found


@pytest.mark.parametrize("damage", DAMAGES)
def test_entries_that_are_something_else(folder, damage):
    x = torch.randn(9)
    expected = run(pointwise, x)
    assert {path.suffix for path in replace_all(folder.path, damage)} >= {".graph"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.equal(run(pointwise, x), expected)
        assert torch.equal(run(pointwise, x), expected)
    said = [str(w.message) for w in caught if "disk cache" in str(w.message)]
    assert said and len(said) == len(set(said))
    assert all("\n" not in text and ("ignores" in text or "cannot write" in text) for text in said)


@pytest.mark.full
@pytest.mark.parametrize("damage", DAMAGES)
def test_all_entries_of_a_warm_cache_in_a_new_process(tmp_path, damage):
    environment = os.environ | {"MLIRC_CACHE_DIR": str(tmp_path)}

    def ask() -> str:
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    first = ask()
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert len({path.suffix for path in replace_all(folder, damage)}) > 3
    assert ask() == first and ask() == first


def test_warnings_that_are_errors_lose_no_answer(folder):
    x = torch.randn(9)
    expected = run(pointwise, x)
    replace_all(folder.path, truncated)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert torch.equal(run(pointwise, x), expected)


def test_a_folder_that_goes_while_it_is_used(folder, monkeypatch):
    """What is written last is kept, or lost: the put says so, if at all, by a warning."""
    monkeypatch.setattr(cache_folder, "_PUTS_BETWEEN_SCANS", 1)
    plain = os.replace

    def replace(source, target):
        plain(source, target)
        shutil.rmtree(folder.path)

    monkeypatch.setattr(cache_folder.os, "replace", replace)
    folder.put("graph", ["a"], CacheEntry({}))
    monkeypatch.undo()
    assert folder.get("graph", "a") is None
    folder.put("graph", ["a"], CacheEntry({}))
    assert folder.get("graph", "a") is not None, "a folder that was removed is made again"
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_a_file_where_the_folder_was_is_reported(folder):
    shutil.rmtree(folder.path.parent)
    folder.path.parent.write_text("")
    with pytest.warns(UserWarning, match="cannot write"):
        folder.put("graph", ["a"], CacheEntry({}))


def test_what_cannot_be_removed_stays(folder, monkeypatch):
    folder.put("graph", ["a"], CacheEntry({}))

    def refuses(self, missing_ok=False):
        raise PermissionError(1, "no")

    monkeypatch.setattr(Path, "unlink", refuses)
    folder.shrink(0)
    assert (folder.path / "a.graph").exists()
