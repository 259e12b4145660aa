"""The command line: the group `mlirc`. Each subcommand is a file in mlirc/commands/."""

import click

from mlirc.commands.bisect import bisect
from mlirc.commands.cache import cache
from mlirc.commands.capture import capture
from mlirc.commands.compare import compare
from mlirc.commands.doctor import doctor
from mlirc.commands.failure import HELP, Commands
from mlirc.commands.ops import ops
from mlirc.commands.opt import opt
from mlirc.commands.profile import profile
from mlirc.commands.report import report
from mlirc.commands.run import run


@click.group(cls=Commands, context_settings=HELP)
def main() -> None:
    """mlirc: look into the compiler behind torch.compile(model, backend="mlirc")."""


main.add_command(opt)
main.add_command(run)
main.add_command(bisect)
main.add_command(compare)
main.add_command(profile)
main.add_command(capture)
main.add_command(report)
main.add_command(ops)
main.add_command(cache)
main.add_command(doctor)


def opt_main() -> None:
    """The command `mlirc-opt`."""
    opt(prog_name="mlirc-opt")


if __name__ == "__main__":
    main()
