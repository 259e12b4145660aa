"""Lists the registered passes and ops; prints the help of a pass."""

import dataclasses
import inspect
import re
from typing import Any

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
    if name not in known and is_upstream(name):
        raise Failure(
            f"--help-pass: '{name}' is MLIR's own pass, not one of mlirc's: mlir.llvm.org/docs/Passes explains it", 2
        )
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


def is_upstream(name: str) -> bool:
    """Whether MLIR has a pass of that name."""
    from mlirc.dialects.core.bindings import PassManager, ir
    from mlirc.dialects.core.context import context

    with context():
        try:
            return re.fullmatch(r"[\w-]+", name) is not None and bool(PassManager.parse(f"builtin.module({name})"))
        except (ValueError, ir.MLIRError):
            return False


def list_ops() -> None:
    for name, cls in sorted(_ops().items()):
        summary = " ".join((cls.__dict__.get("__doc__") or "").split("\n\n")[0].split()).split(". ")[0]
        click.echo(f"{name:30s} {', '.join(_overloads(cls)) or summary}".rstrip())


def help_op(name: str) -> None:
    """Prints the docstring of op `name` ("attention" or "mlirc.attention"), its operands, attributes and results in order, and the
    overloads of ATen that it stands for. Raises Failure."""
    from mlirc.lowering.module.nearest import nearest

    known = _ops()
    full = next((n for n in (name, f"mlirc.{name}", f"mlircx.{name}") if n in known), None)
    if full is None:
        wanted = name if "." in name else f"mlirc.{name}"  # else the common prefix would count as a difference
        raise Failure(f"--help-op: no op '{name[:100]}'{nearest(wanted, known) or '; --list-ops has them all'}", 2)
    cls = known[full]
    said = cls.__dict__.get("__doc__")  # an elementwise op may have none; that of its class is about writing ops
    click.echo("\n\n".join([full, inspect.cleandoc(said)] if said else [full]) + "\n")
    for what, fields in _fields(cls).items():
        click.echo(f"{what + ':':11s} {', '.join(fields) or 'none'}")
    if overloads := _overloads(cls):
        click.echo(f"{'of ATen:':11s} {', '.join(overloads)}")


def _ops() -> dict[str, Any]:
    from mlirc.dialects.core.dialect import Mlirc, Mlircx, load_ops

    load_ops()
    classes: list[Any] = [*Mlirc.operations, *Mlircx.operations]
    return {cls.OPERATION_NAME: cls for cls in classes}


def _overloads(cls: Any) -> list[str]:
    from mlirc.dialects.core.dialect import OPS

    return list(map(str, getattr(OPS.get(cls._op_name), "overloads", ())))


def _fields(cls: Any) -> dict[str, list[str]]:
    """What an op's class declares, those of its base classes first. A list of operands or results ends with "..."."""
    from mlirc.dialects.core.dialect import ListOp

    if issubclass(cls, ListOp):
        return {"operands": ["any"], "attributes": ["as said above"], "results": ["any"]}
    declared: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        declared |= {name: str(kind) for name, kind in inspect.get_annotations(base).items()}
    found: dict[str, list[str]] = {"operands": [], "attributes": [], "results": []}
    for name, kind in declared.items():
        is_attribute = "Attr" in kind or kind == "typing.Any"
        what = (
            "attributes" if is_attribute else "results" if "Result" in kind else "operands" if "Value" in kind else ""
        )
        if what:
            found[what].append(name + ("..." if "Sequence" in kind else ""))
    return found
