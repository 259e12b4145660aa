"""Runs the command line: `python -m mlirc`."""

from mlirc.cli import main

main(prog_name="mlirc")
