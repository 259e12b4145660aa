"""Help and lists: each line says all that it has to say, on a terminal of any width, and by whichever name a command is called."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from mlirc.cli import main
from mlirc.lowering.module.nearest import unknown
from tests.commands.command import bad, good


def words(text):
    return " ".join(text.split())


def helped(command, width):
    context = click.Context(command, info_name="mlirc", terminal_width=width, max_content_width=width)
    return command.get_help(context)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_list_of_commands_cuts_no_sentence(width):
    shown = helped(main, width)
    assert "..." not in shown.partition("Commands:")[2] and all(len(line) <= width for line in shown.splitlines())
    for name, command in main.commands.items():
        first = words((command.help or "").split("\n\n")[0]).split(". ")[0].rstrip(".")
        assert f"{name} {first}" in words(shown), name


@pytest.mark.parametrize("name", main.commands)
def test_options_name_what_they_take(name):
    """By no type of Click's."""
    for option in main.commands[name].params:
        if isinstance(option, click.Option) and not option.is_flag:
            assert option.metavar, f"{name} {option.opts[-1]}"


def test_mlirc_alone_is_help_in_lines():
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 2 and "\n  capture " in done.output and done.output.startswith("Usage: ")


def test_python_m_mlirc_is_mlirc():
    done = subprocess.run([sys.executable, "-m", "mlirc", "run", "gone.mlir"], capture_output=True, text=True)
    assert done.stderr == "mlirc run: gone.mlir: No such file or directory\n"


@pytest.mark.parametrize(
    "arguments", [("--list-passes",), ("--list-ops",), ("--help-pass", "fuse-elementwise"), ("--help-op", "exp")]
)
def test_lists_end_without_spaces(arguments):
    assert not [line for line in good("opt", *arguments).stdout.splitlines() if line != line.rstrip()]


def test_of_many_names_the_nearest_is_enough():
    many = [f"pass-{k}" for k in range(120, 140)]
    assert unknown("pass", "pass-1200", many) == "no pass 'pass-1200'; did you mean 'pass-120'?"
    assert unknown("pass", "zzz", many).endswith("there are " + ", ".join(many))
    assert (
        unknown("stage", "fus", ["simplify", "fuse"]) == "no stage 'fus'; did you mean 'fuse'? there are simplify, fuse"
    )


def test_an_op_is_explained():
    text = good("opt", "--help-op", "attention").stdout
    assert text.startswith("mlirc.attention\n\nFor q [B, H, L, D], ") and "causal   " in text
    assert "operands:   q, k, v, mask...\nattributes: scale, causal\nresults:    out, lse\n" in text
    assert "operands:   x, y\n" in good("opt", "--help-op", "mlirc.sub").stdout
    assert good("opt", "--help-op", "exp").stdout.endswith("of ATen:    aten.exp.default\n")
    assert bad("opt", "--help-op", "atention", code=2).endswith("no op 'atention'; did you mean 'mlirc.attention'?\n")


def test_each_op_is_explained():
    for line in good("opt", "--list-ops").stdout.splitlines():
        name = line.split()[0]
        text = good("opt", "--help-op", name).stdout
        assert text.startswith(f"{name}\n\n") and "\noperands:" in text and "\nresults:" in text
