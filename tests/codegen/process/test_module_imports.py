"""A fork waits for other threads' imports of the compiler's modules, whose locks no thread of the child would give back."""

import importlib
import os
import signal
import threading
import time

import pytest

import mlirc
from mlirc.codegen.process import background, module_imports  # noqa: F401  # sees to forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_child_imports_what_another_thread_was_importing(tmp_path, monkeypatch):
    monkeypatch.setattr(mlirc, "__path__", [*mlirc.__path__, str(tmp_path)])
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(0.3)\nready = True\n")
    thread = threading.Thread(target=importlib.import_module, args=("mlirc.slow_module",))
    thread.start()
    while module_imports.none_begun():
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        ready = importlib.import_module("mlirc.slow_module").ready
        os._exit(0 if ready else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()
    assert module_imports.none_begun()
