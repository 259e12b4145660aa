"""The background pauses for calls of quick code, but not while a thread that compiles another graph waits for what the background holds."""

import threading
import time

import pytest

from mlirc.frontend.budget import pace


def pause() -> float:
    """Seconds that give_way takes after a second of work."""
    pace._here.since = time.monotonic() - 1
    try:
        start = time.monotonic()
        pace.give_way()
        return time.monotonic() - start
    finally:
        pace._here.since = None


@pytest.mark.parametrize("waiting", [False, True])
def test_a_pause(waiting):
    held, traced = threading.Event(), threading.Event()

    def trace():
        held.wait(30)
        with pace.tracing():
            traced.set()

    thread = threading.Thread(target=trace)
    thread.start()
    with pace.calling():
        with pace.alone():
            if waiting:
                held.set()
                end = time.monotonic() + 30
                while not pace._hurries and time.monotonic() < end:
                    time.sleep(0.001)
            seconds = pause()
            assert not traced.is_set()
        held.set()
        thread.join(30)
    assert traced.is_set()
    assert (seconds < pace.LONGEST / 2) == waiting, seconds
    assert not pace._hurries and not pace._calls
