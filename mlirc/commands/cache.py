"""`mlirc cache`: looks after the disk cache."""

import sys
from typing import Any

import click

from mlirc.commands.failure import HELP
from mlirc.lowering.module.counted import counted


@click.group(context_settings=HELP)
def cache() -> None:
    """The disk cache of compiled graphs: MLIRC_CACHE_DIR, or the user's cache folder."""


@cache.command("info")
def cache_info() -> None:
    """Say where it is, how many entries it has, and how large they are."""
    from mlirc.codegen.cache.folder import LIMIT_VARIABLE

    folder = _cache_folder()
    count, size = folder.size()
    limit = f"{folder.limit / 1e6:.0f} MB ({LIMIT_VARIABLE})"
    click.echo(f"{folder.path}: {counted(count, 'entry', 'entries')}, {size / 1e6:.1f} MB of at most {limit}")


@cache.command("clear")
def cache_clear() -> None:
    """Remove everything in it."""
    folder = _cache_folder()
    count, size = folder.size()
    folder.shrink(0)
    click.echo(f"{folder.path}: removed {counted(count, 'entry', 'entries')}, {size / 1e6:.1f} MB")


def _cache_folder() -> Any:
    from mlirc.codegen.cache.folder import VARIABLE, folder

    found = folder()
    if found is None:  # which was said already
        click.echo(f"mlirc: no disk cache; {VARIABLE} names a folder", err=True)
        sys.exit(1)
    return found
