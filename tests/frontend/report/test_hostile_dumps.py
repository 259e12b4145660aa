"""options={"dump": DIR} where nothing can be written: the answer is right, nothing waits, and one warning says why."""

import os
import resource
import signal
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from mlirc.frontend.report.capture_folder import write_file

FIRST = "{:03d}_inference_0_import.mlir"  # of numbers that are taken


@contextmanager
def seconds(limit: int):
    """Raises in what waits for longer."""

    def raise_(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, raise_)
    signal.alarm(limit)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def small_files():
    """Of any file no more than some bytes are written, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def occupied(path: Path, make) -> Path:
    """A folder in which something else has the names of the files."""
    path.mkdir()
    for k in range(8):
        make(path / FIRST.format(k))
    return path


def loop(path: Path) -> Path:
    path.symlink_to(path)
    return path


def file(path: Path) -> Path:
    path.write_text("mine")
    return path


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def behind_a_link(path: Path) -> Path:
    target = file(path.with_name("target"))
    return occupied(path, lambda at: at.symlink_to(target))


FOLDERS = {
    "a file": file,
    "within a file": lambda path: file(path) / "below",
    "a fifo": fifo,
    "a loop": loop,
    "within a loop": lambda path: loop(path) / "below",
    "a device": lambda path: Path("/dev/full"),
    "of the kernel": lambda path: Path("/proc/self"),
    "a long name": lambda path: path / ("x" * 300),
    "a zero": lambda path: f"{path}\0",
    "half a character": lambda path: f"{path}\ud800",
    "nothing": lambda path: "",
    "fifos in it": lambda path: occupied(path, os.mkfifo),
    "folders in it": lambda path: occupied(path, os.mkdir),
    "links in it": behind_a_link,
}


BESIDE = ("fifos in it", "folders in it", "links in it")  # the numbers after these are free


def function(x):
    return x * torch.tensor([2.0, 3.0]) + 1


def answered(folder, text: str = "no file can be written") -> None:
    torch._dynamo.reset()
    x = torch.ones(3, 2)
    wanted, also = function(x), function(x).sum() * 2
    with warnings.catch_warnings(record=True) as caught, seconds(60), torch.no_grad():
        warnings.simplefilter("always")
        compiled = torch.compile(function, backend="mlirc", options={"dump": folder, "fallback": "error"})
        assert torch.equal(compiled(x), wanted)
        options = {"dump": folder, "fallback": "error"}
        assert torch.equal(torch.compile(lambda x: function(x).sum() * 2, backend="mlirc", options=options)(x), also)
    said = [str(x.message) for x in caught if "mlirc" in str(x.message)]
    assert len(said) == bool(text), said
    assert text in "".join(said) and "\n" not in "".join(said)


@pytest.mark.parametrize("what", FOLDERS)
def test_nothing_can_be_written(what, tmp_path):
    answered(FOLDERS[what](tmp_path / "dump"), "" if what in BESIDE else "no file can be written")
    if (tmp_path / "target").exists():
        assert (tmp_path / "target").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_may_not_be_written(tmp_path):
    tmp_path.chmod(0o500)
    answered(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, loop, lambda path: path.symlink_to(file(path.with_name("b")))])
def test_what_is_no_file_is_not_written(make, tmp_path):
    make(tmp_path / "a")
    with pytest.raises(OSError), seconds(10):
        write_file(str(tmp_path / "a"), b"secret")
    assert not (tmp_path / "b").exists() or (tmp_path / "b").read_text() == "mine"


def test_a_second_process_writes_over_nothing(tmp_path):
    for _ in range(2):
        answered(tmp_path, "")
    first = (tmp_path / "000.json").read_bytes()
    answered(tmp_path, "")
    names = {path.name for path in tmp_path.iterdir()}
    assert {f"00{k}.json" for k in range(6)} | {f"dynamo_00{k}.json" for k in range(6)} < names
    assert (tmp_path / "000.json").read_bytes() == first


def test_a_full_disk(tmp_path):
    with small_files():
        answered(tmp_path / "dump")


def test_a_name_of_several_lines_is_a_name(tmp_path):
    folder = tmp_path / "a\nb\r\n\x1b[31m é"
    answered(folder, "")
    assert len(list(folder.iterdir())) >= 10


def test_a_fifo_that_somebody_reads_gets_nothing_and_waits_for_nobody(tmp_path):
    readers: list[int] = []

    def read(path: Path) -> None:
        os.mkfifo(path)
        readers.append(os.open(path, os.O_RDONLY | os.O_NONBLOCK))

    try:
        answered(occupied(tmp_path / "dump", read), "")
        for path in (tmp_path / "dump").glob("*_inference_0_import.mlir"):
            if path.is_fifo():
                with pytest.raises(OSError, match="no file"):
                    write_file(str(path), b"secret")
        assert not any(os.read(x, 1) for x in readers)
    finally:
        for x in readers:
            os.close(x)


def test_warnings_that_are_errors_lose_no_answer(tmp_path):
    torch._dynamo.reset()
    x = torch.ones(3, 2)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", UserWarning)
        compiled = torch.compile(
            function, backend="mlirc", options={"dump": str(file(tmp_path / "x")), "fallback": "error"}
        )
        assert torch.equal(compiled(x), function(x))


def test_threads_that_dump_into_one_folder(tmp_path):
    torch._dynamo.reset()
    found: list[torch.Tensor] = []

    def work(k: int) -> None:
        with torch.no_grad():
            fn = torch.compile(lambda x: x * k, backend="mlirc", options={"dump": tmp_path, "fallback": "error"})
            found.append(fn(torch.ones(2)) - k + 1)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2, 5)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    assert len(found) == 3 and all(torch.equal(x, torch.ones(2)) for x in found)
    assert len(list(tmp_path.glob("*.mlir"))) == 15
