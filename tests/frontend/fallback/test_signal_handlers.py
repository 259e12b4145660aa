"""What a signal handler of the user's raises within our code reaches the user, and the next call is a compiled one."""

import functools
import signal
import sys
import warnings

import pytest
import torch

from mlirc.codegen.process.signal_handlers import handlers_error
from mlirc.frontend import statistics
from tests.faults import fault, name_of
from tests.frontend.fallback.test_fault_injection import PROGRAMS, SOME, functions_of, with_mlirc


class Alarm(Exception):
    pass


class Late(Alarm, TimeoutError):
    """An OSError, too."""


made: list[Alarm] = []


def fail(error):
    made.append(error)
    raise error


def function(*_):
    fail(Alarm("of a handler"))


class Object:
    def __call__(self, *_):
        fail(Late("of a handler"))

    def method(self, *_):
        fail(Alarm("of a handler"))


HANDLERS = {
    "function": function,
    "method": Object().method,
    "object": Object(),
    "partial": functools.partial(function, 1),
}


@pytest.fixture
def alarm():
    before = signal.getsignal(signal.SIGALRM)
    yield lambda name: signal.signal(signal.SIGALRM, HANDLERS[name])
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", HANDLERS)
def test_whose_error_it_is(name, alarm):
    alarm(name)
    with pytest.raises(Alarm) as raised:
        signal.raise_signal(signal.SIGALRM)
    error = raised.value
    assert handlers_error(error) is error
    wrapped = RuntimeError("ours")
    wrapped.__cause__ = error
    assert handlers_error(wrapped) is error
    assert handlers_error(ValueError("no handler's")) is None


def lost(program, function, expected):
    """What is wrong where a signal comes while the function is called: "", or a line that says so."""
    statistics.reset()
    made.clear()
    raised, told, hook = None, [], sys.unraisablehook
    sys.unraisablehook = told.append  # where Python itself goes on: a finalizer
    with warnings.catch_warnings(), fault(function, signal.SIGALRM):
        warnings.simplefilter("error")
        try:
            program(with_mlirc)
        except Exception as error:
            raised = error
        finally:
            sys.unraisablehook = hook
    if not made or told:
        return ""  # it was called on another thread, or not at all
    if raised is None or "of a handler" not in str(raised):  # Dynamo wraps what a backend raises
        return f"the handler's error is lost: {raised!r}"
    if statistics.fallbacks:
        return f"counted: {dict(statistics.fallbacks)}"
    try:
        torch.testing.assert_close(program(with_mlirc), expected)
    except Exception as error:
        return f"the next call raises {error!r}"
    return f"the next call falls back: {dict(statistics.fallbacks)}" if statistics.fallbacks else ""


def check(program, functions, alarm):
    expected = program(lambda fn: fn)
    wrong = []
    for k, function in enumerate(functions):
        alarm(list(HANDLERS)[k % len(HANDLERS)])
        if (why := lost(program, function, expected)) != "":
            wrong.append(f"{name_of(function)}: {why[:300]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("program", SOME)
def test_in_some_functions(program, alarm):
    functions = functions_of(program)
    frontend = [f for f in functions if ".frontend." in f.__module__]
    others = [f for f in functions if ".frontend." not in f.__module__]
    check(program, frontend[3::40] + others[3::500], alarm)


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS)
def test_in_every_function(program, alarm):
    check(program, functions_of(program), alarm)
