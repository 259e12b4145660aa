"""Higher-order operators, custom operators, autograd functions, and torch.export's examples."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._export.db.examples import all_examples
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.hop_db import hop_db

from tests.databases import operators
from tests.databases.case import DatabaseCase
from tests.opinfo import sweep

DATABASES = {"higher-order": hop_db, "custom": custom_op_db, "autograd": autograd_function_db}


def cases(count: int = 2, device: str = "cpu") -> Iterator[DatabaseCase]:
    for kind, database in DATABASES.items():
        for op in database:
            for name, drive in operators.plain_drives(op, count, device):
                for dynamic in (False, True):
                    yield DatabaseCase(f"{kind} {sweep.key(op)}, {name}, {dynamic}", drive, {"dynamic": dynamic})
    for name, example in all_examples().items():
        for k, args in enumerate(filter(None, [example.example_args, example.extra_args])):
            for dynamic in (None, True, False):
                yield DatabaseCase(f"example {name} {k}, {dynamic}", _example(example, args), {"dynamic": dynamic})


def _example(example: Any, args: tuple) -> Callable:
    def drive(compiled, see):
        called = compiled(copy.deepcopy(example.model))
        for grad in (True, False):
            given, named = copy.deepcopy((args, example.example_kwargs))
            torch.manual_seed(0)
            with torch.set_grad_enabled(grad):
                see(called(*given, **named), given)

    return drive
