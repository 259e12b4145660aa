"""Exceptions for wrong uses of mlirc; each says what is wrong, where, and what to do."""


class MlircError(RuntimeError):
    """Base of every error that mlirc raises on purpose."""


class OptionError(MlircError, ValueError):
    """An unknown option, or a value of the wrong type or out of range."""


class DeviceError(MlircError):
    """A tensor lives on a device that mlirc has no code generator for."""


class UnsupportedGraph(MlircError):
    """A construct that mlirc cannot compile. The graph runs in eager instead, counted, unless options={"fallback": "error"}."""


class CompilationError(MlircError):
    """A bug in mlirc: a pass or the code generator failed. Names the pass, the op, the user's source line, and a file that reproduces it."""


class NoText(Exception):
    """The graph has something in it that cannot be written down, for the disk cache: says what."""
