"""What there is: passes and ops, as lists."""

import dataclasses
import inspect

import click


def list_passes() -> None:
    from mlirc.lowering.pipeline.pass_manager import passes

    for name, cls in sorted(passes().items()):
        summary = (inspect.getdoc(cls) or "").split("\n")[0]
        click.echo(f"{name:20s} {summary}")
        for field in dataclasses.fields(cls):
            click.echo(f"{'':20s}   {field.name.replace('_', '-')}={str(field.default).lower()}")
    click.echo("MLIR's own passes run as well: canonicalize, cse, ...")


def list_ops() -> None:
    from mlirc.dialects.core.dialect import OPS, Mlirc, Mlircx, load_ops

    load_ops()
    for prefix, dialect in (("mlirc", Mlirc), ("mlircx", Mlircx)):
        for cls in sorted(dialect.operations, key=lambda cls: cls._op_name):
            overloads = ", ".join(map(str, getattr(OPS.get(cls._op_name), "overloads", ())))
            summary = (cls.__dict__.get("__doc__") or "").strip().split("\n")[0]
            click.echo(f"{prefix + '.' + cls._op_name:30s} {overloads or summary}")
