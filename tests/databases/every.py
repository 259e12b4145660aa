"""The databases by name: each gives its cases."""

from collections.abc import Callable, Iterator
from functools import partial

from tests.databases import modules, operators, optimizers, others
from tests.databases.case import DatabaseCase

DATABASES: dict[str, Callable[..., Iterator[DatabaseCase]]] = {
    "modules": modules.cases,
    "older modules": lambda count=1, device="cpu": modules.older_cases(),
    "optimizers": lambda count=1, device="cpu": optimizers.cases(device),
    "others": others.cases,
    **{f"operators: {kind}": partial(operators.cases, kind) for kind in operators.KINDS},
}
