"""ModuleInfo: every nn.Module with its own inputs, in training and evaluation, with and without gradients, and what common_nn.py has."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal import common_nn
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

from tests.databases.case import DatabaseCase, fresh, fresh_tree, spread, tensors_of
from tests.fuzz.calls import gradients

LAYOUTS = ("plain", "non-contiguous", "channels last")
DTYPES = {torch.float32: LAYOUTS, torch.bfloat16: LAYOUTS, torch.float64: ("plain",), torch.float16: ("plain",)}


def cases(count: int = 1, device: str = "cpu") -> Iterator[DatabaseCase]:
    """`count` inputs of each module and way."""
    for info in module_db:
        for training in (True, False):
            for dtype, layouts in DTYPES.items():
                for grad in (True, False):
                    for k, given in _inputs(info, count, device, dtype, training, grad):
                        shown = f"{info.name}, {'training' if training else 'evaluation'}, {dtype}, {grad}"
                        for layout in layouts:
                            if layout == "channels last" and not any(x.dim() in (4, 5) for x in _tensors(given)):
                                continue
                            drive = _call(info, given, dtype, device, training, layout, grad)
                            for dynamic in (False, True) if dtype == torch.float32 else (False,):
                                name = f"{shown}, {layout}, {dynamic}, {k}"
                                yield DatabaseCase(name, drive, {"dynamic": dynamic})
        for k, error in enumerate(_errors(info, device)):
            yield DatabaseCase(f"{info.name}, error {k}", _error(info, error.module_error_input, device))


def _inputs(info: Any, count: int, device: str, *way: Any) -> list[tuple[int, Any]]:
    dtype, training, grad = way
    torch.manual_seed(0)
    every = info.module_inputs_func(info, device=device, dtype=dtype, requires_grad=grad, training=training)
    return spread([given for given in every if given.forward_input is not None], count)


def _errors(info: Any, device: str) -> list[Any]:
    make = info.module_error_inputs_func
    every = [] if make is None else make(info, device=device, dtype=torch.float32, requires_grad=False, training=False)
    return [error for error in every if error.error_on == ModuleErrorEnum.FORWARD_ERROR]


def _tensors(given: Any) -> list[torch.Tensor]:
    return tensors_of((given.forward_input.args, given.forward_input.kwargs))


def _made(info: Any, given: Any, dtype: torch.dtype, device: str) -> torch.nn.Module:
    torch.manual_seed(3)
    made = given.constructor_input
    return info.module_cls(*made.args, **made.kwargs).to(device=device, dtype=dtype)


def _call(info: Any, given: Any, dtype: torch.dtype, device: str, training: bool, layout: str, grad: bool) -> Callable:
    def drive(compiled, see):
        module = _made(info, given, dtype, device).train(training)
        if layout == "channels last":
            for p in module.parameters():
                p.data = fresh(p.data, layout)
        called = compiled(module)
        for seed in range(2):
            args, kwargs = fresh_tree((given.forward_input.args, given.forward_input.kwargs), layout)
            torch.manual_seed(seed)
            with torch.set_grad_enabled(grad):
                results = called(*args, **kwargs)
            see(results, args, kwargs, list(module.buffers()))
            wanted = [x for x in (*tensors_of((args, kwargs)), *module.parameters()) if x.requires_grad]
            if grad and wanted:
                see(gradients(results, wanted))

    return drive


def _error(info: Any, given: Any, device: str) -> Callable:
    def drive(compiled, see):
        module = _made(info, given, torch.float32, device)
        args, kwargs = fresh_tree((given.forward_input.args, given.forward_input.kwargs))
        see(compiled(module)(*args, **kwargs))

    return drive


def older_cases() -> Iterator[DatabaseCase]:
    """The modules and criterions of common_nn.py, which module_db does not have in these shapes."""
    modules = [*common_nn.module_tests, *common_nn.get_new_module_tests()]
    for kind, tests in (("module", modules), ("criterion", common_nn.criterion_tests)):
        for k, test in enumerate(tests):
            name = f"{kind} {k} {test.get('fullname') or test.get('module_name')} {test.get('desc', '')}"
            for training in (True, False) if kind == "module" else (True,):
                for dynamic in (False, True):
                    drive = _older(test, training)
                    yield DatabaseCase(f"{name}, {training}, {dynamic}", drive, {"dynamic": dynamic})


def _older(test: dict, training: bool) -> Callable:
    def given(what: str) -> Any:
        if make := test.get(f"{what}_fn"):
            return make()
        if size := test.get(f"{what}_size"):
            return torch.randn(size)
        found = test.get(what, ())
        return found() if callable(found) else found

    def drive(compiled, see):
        torch.manual_seed(4)
        module = test.get("constructor") or getattr(torch.nn, test["module_name"])
        made = module(*given("constructor_args")).train(training)
        inputs = [x if isinstance(x, tuple) else (x,) for x in (given("input"), given("target"))]
        inputs = fresh_tree([x for group in inputs for x in group])
        for x in tensors_of(inputs[:1]):
            x.requires_grad_(x.is_floating_point())
        called = compiled(made)
        torch.manual_seed(6)
        results = called(*inputs)
        see(results, inputs, list(made.buffers()))
        if wanted := [x for x in (*tensors_of(inputs), *made.parameters()) if x.requires_grad]:
            see(gradients(results, wanted))
        with torch.no_grad():
            see(called(*inputs))

    return drive
