"""The folder of the disk cache: what is damaged, foreign or refused does not count; what was used last is kept."""

import os
import re
import stat

import pytest
import torch
from click.testing import CliRunner

from mlirc.cli import main
from mlirc.codegen.cache import folder as cache_folder
from mlirc.codegen.cache.entry import MAGIC, CacheEntry, DamagedEntry, pack, unpack
from mlirc.codegen.cache.folder import CacheFolder, RefusedFolder
from mlirc.codegen.runtime.runtime_code import runtime_code
from mlirc.frontend import statistics
from mlirc.frontend.cache.answer_cache import cached_answer
from tests.codegen.cache.test_disk_cache import files, pointwise, run, states

# ---- damaged, foreign, refused


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    at = len(content) - 100
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def other_version(content: bytes) -> bytes:
    return content.replace(MAGIC, MAGIC.replace(b"1", b"2"), 1)


@pytest.mark.parametrize("damage", [cut, flip, other_version, lambda content: b"", lambda content: b"not ours " * 99])
def test_a_damaged_file_is_reported_and_made_anew(folder, damage):
    x = torch.randn(9)
    expected = run(pointwise, x)
    (path,) = files(folder)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    with pytest.warns(UserWarning, match=f"ignores {re.escape(str(path))} and makes it anew"):
        assert torch.equal(run(pointwise, x), expected)
    assert torch.equal(run(pointwise, x), expected)
    assert states() == ["miss", "miss", "hit"] and len(files(folder)) == 1
    unpack(path.read_bytes(), path.stem)


def replace(path, entry):
    """What somebody else wrote, behind a right hash; nothing was warned of yet."""
    path.write_bytes(pack([path.stem], entry))
    cache_folder.warn.cache_clear()


def test_an_entry_that_cannot_be_loaded(folder):
    x = torch.randn(9)
    run(pointwise, x)
    (path,) = files(folder)
    good = path.read_bytes()
    entry = unpack(good, path.stem)
    no_code = CacheEntry(entry.data, [b"no object file"] * len(entry.blobs))
    for odd in (
        no_code,
        CacheEntry(entry.data),
        CacheEntry({}),
        CacheEntry({"graph": [3]}),
        CacheEntry(entry.data | {"report": 3}, entry.blobs),
    ):
        replace(path, odd)
        with pytest.warns(UserWarning, match="it cannot be loaded"):
            assert torch.equal(run(pointwise, x), pointwise(x))
        assert set(states()) == {"miss"} and len(path.read_bytes()) == len(good)


def test_code_and_answers_that_cannot_be_loaded(folder):
    text = "define i64 @three() { ret i64 3 }"
    for _ in range(2):
        assert runtime_code(text).address("three") and cached_answer("mask", "question", lambda: True)
        assert len(files(folder, "runtime")) == len(files(folder, "mask")) == 1
    for kind, ask in (
        ("runtime", lambda: runtime_code(text).address("three")),
        ("mask", lambda: cached_answer("mask", "question", lambda: True)),
    ):
        for odd in (CacheEntry({}), CacheEntry({"names": {}}, [b"no object file"])):
            replace(files(folder, kind)[0], odd)
            with pytest.warns(UserWarning, match="and makes it anew"):
                assert ask()


def test_what_is_no_file(folder):
    os.mkfifo(folder.path / "a.graph")
    with pytest.warns(UserWarning, match="it is no file"):
        assert folder.get("graph", "a") is None


def test_an_entry_under_another_name(folder):
    folder.put("graph", ["a"], CacheEntry({}))
    os.rename(folder.path / "a.graph", folder.path / "b.graph")
    with pytest.warns(UserWarning, match="written under another name"):
        assert folder.get("graph", "b") is None


def test_what_unpack_takes():
    entry = CacheEntry({"x": [1, "é"]}, [b"", b"abc"])
    content = pack(["a", "b"], entry)
    assert unpack(content, "b") == entry
    for k in range(len(content)):
        with pytest.raises(DamagedEntry):
            unpack(content[:k], "a")
        with pytest.raises(DamagedEntry):
            unpack(content[:k] + bytes([content[k] ^ 1]) + content[k + 1 :], "a")
    with pytest.raises(DamagedEntry):
        unpack(content + b"x", "a")
    with pytest.raises(DamagedEntry):
        unpack(content, "c")


def test_folders_that_others_may_write_to_are_refused(tmp_path, monkeypatch):
    ours = tmp_path / "ours"
    CacheFolder(ours)
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    ours.chmod(0o777)
    with pytest.raises(RefusedFolder, match="chmod 700"):
        CacheFolder(ours)
    ours.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(ours)
    with pytest.raises(RefusedFolder, match="not a folder"):
        CacheFolder(link)
    monkeypatch.setattr(os, "getuid", lambda: ours.stat().st_uid + 1)
    with pytest.raises(RefusedFolder, match="belongs to user"):
        CacheFolder(ours)


def test_without_a_folder_everything_works(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(file))
    cache_folder.warn.cache_clear()
    statistics.reset()
    with pytest.warns(UserWarning, match=r"runs without a disk cache: .*MLIRC_CACHE_DIR names another"):
        run(pointwise, torch.randn(5))
    assert states() == ["off: its folder was refused"]
    monkeypatch.setenv("MLIRC_CACHE_DIR", "off")
    run(pointwise, torch.randn(5))
    assert states() == ["off: MLIRC_CACHE_DIR is 'off'"]


def test_a_write_that_fails_is_reported(folder, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="cannot write to .*: No space left"):
        assert run(pointwise, torch.ones(3)).tolist() == [3, 3, 3]
    assert not list(folder.path.iterdir())


# ---- size


def test_what_was_used_last_is_kept(tmp_path):
    folder = CacheFolder(tmp_path / "c")
    for k, key in enumerate("abcd"):
        folder.put("graph", [key], CacheEntry({}, [bytes(1000)]))
        os.utime(folder.path / f"{key}.graph", (0, k))
    folder.put("kernels", ["x", "y"], CacheEntry({}, [bytes(1000)]))
    count, total = folder.size()
    each = (folder.path / "a.graph").stat().st_size
    assert count == 6 and total < 5 * each + 100  # x and y are one file
    assert folder.get("graph", "a")
    folder.shrink(3 * each + 100)
    assert [path.name for path in sorted(folder.path.iterdir())] == ["a.graph", "d.graph", "x.kernels", "y.kernels"]
    folder.shrink(0)
    assert folder.size() == (0, 0)


def test_the_command_line(folder):
    folder.put("graph", ["a"], CacheEntry({}, [bytes(2_000_000)]))
    told = CliRunner().invoke(main, ["cache", "info"])
    assert told.exit_code == 0 and told.output.startswith(f"{folder.path}: 1 entry, 2.0 MB of at most 1074 MB")
    assert CliRunner().invoke(main, ["cache", "clear"]).output == f"{folder.path}: removed 1 entry, 2.0 MB\n"
    assert folder.size() == (0, 0)


@pytest.mark.parametrize("step", ["replace", "link"])
def test_an_interrupt_while_an_entry_is_written_leaves_no_file(tmp_path, monkeypatch, step):
    kept = CacheFolder(tmp_path / "cache")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache_folder.os, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.put("kind", ["one", "two"], CacheEntry({}))
    assert not [path for path in kept.path.iterdir() if path.suffix == ".part"]
    monkeypatch.undo()
    kept.put("kind", ["one", "two"], CacheEntry({}))
    assert all(kept.get("kind", key) for key in ("one", "two"))
