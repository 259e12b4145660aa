"""Lists the registered passes and ops; prints the help of a pass."""

import dataclasses
import inspect

import click

from mlirc.commands.failure import Failure


def list_passes() -> None:
    from mlirc.lowering.pipeline.pass_manager import passes

    known = passes()
    width = max(map(len, known))
    for name, cls in sorted(known.items()):
        click.echo(f"{name:{width}s}  {(inspect.getdoc(cls) or '').split(chr(10))[0]}")
    click.echo("MLIR's own passes run as well: canonicalize, cse, ...; --help-pass NAME explains one of ours")


def help_pass(name: str) -> None:
    """Prints the docstring of pass `name`, with before and after, and its options with their defaults. Raises Failure."""
    from mlirc.lowering.module.nearest import unknown
    from mlirc.lowering.pipeline.pass_manager import passes

    known = passes()
    if name not in known:
        raise Failure(f"--help-pass: {unknown('pass', name, sorted(known))}", 2)
    cls = known[name]
    click.echo(f"{name}\n\n{inspect.getdoc(cls) or ''}\n")
    for form, what in (("takes", "runs on the form"), ("gives", "leaves the form")):
        if hasattr(cls, form):
            click.echo(f"{what} {getattr(cls, form)}")
    options = dataclasses.fields(cls)
    click.echo("options:" if options else "options: none")
    for field in options:
        kind = getattr(field.type, "__name__", field.type)
        click.echo(f"  {field.name.replace('_', '-')}={str(field.default).lower()}  ({kind})")


def list_ops() -> None:
    from mlirc.dialects.core.dialect import OPS, Mlirc, Mlircx, load_ops

    load_ops()
    for prefix, dialect in (("mlirc", Mlirc), ("mlircx", Mlircx)):
        for cls in sorted(dialect.operations, key=lambda cls: cls._op_name):
            overloads = ", ".join(map(str, getattr(OPS.get(cls._op_name), "overloads", ())))
            summary = (cls.__dict__.get("__doc__") or "").strip().split("\n")[0]
            click.echo(f"{prefix + '.' + cls._op_name:30s} {overloads or summary}".rstrip())
