"""What the tests of commands share: runs one in this process; `bad` gives the one line that it fails with."""

import sys

from click.testing import CliRunner

from mlirc.cli import main


def run(*arguments, text=""):
    before = sys.modules["__main__"]  # a script's module takes its place
    try:
        return CliRunner().invoke(main, [str(a) for a in arguments], input=text)
    finally:
        sys.modules["__main__"] = before


def good(*arguments, text=""):
    done = run(*arguments, text=text)
    assert done.exit_code == 0, (done.stderr, done.exception)
    return done


def bad(*arguments, text="", code=1):
    done = run(*arguments, text=text)
    assert (done.exit_code, done.stdout) == (code, ""), (done.output, done.exception)
    assert isinstance(done.exception, SystemExit) and "Traceback" not in done.stderr
    assert done.stderr.endswith("\n") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr
