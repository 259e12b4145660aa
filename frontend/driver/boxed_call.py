"""A compiled graph behind AOTAutograd's boxed convention. A package is loaded by this, without MLIR and TorchDynamo."""

from collections.abc import Callable

import torch

from mlirc.frontend.cache.compiled import Compiled
from mlirc.frontend.capture.replayed_views import replayer
from mlirc.frontend.importer.result_outputs import reader

Boxed = Callable[[list], list]
"""Takes a list, which it empties, and gives one."""


def wrap(compiled: Compiled, arguments: int, constants: list[torch.Tensor], native: Boxed) -> Boxed:
    """The program behind AOTAutograd's boxed convention: all placeholders in (the list is emptied), FX outputs out; `native` is
    what is called of it."""
    frozen, inputs = compiled.frozen, compiled.inputs
    all_inputs = inputs == list(range(arguments)) and not constants
    outputs, take = replayer(compiled.outputs)
    read = reader(outputs)
    program = compiled.program if compiled.program.has_plans else None

    def run(args: list) -> list:
        if program is not None:
            program.look_at_settings()
        made = None if take is None else take(args)
        given = args
        if not all_inputs:
            given = [args[k] for k in inputs] + constants
            args.clear()
        if frozen is not None:
            given += frozen.of(given)
        results = native(given)
        results = results if read is None else read(results)
        for places, view in made or ():
            x = view()
            for place in places:
                results[place] = x
        return results

    def frozen_tensors(args: list) -> list | None:
        """What the graph keeps of its parameters: the same list as long as they have not changed."""
        return None if frozen is None else frozen.of([args[k] for k in inputs] + constants)

    run._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd asks for it; a plain function keeps it when it is wrapped
    run.program = compiled.program  # type: ignore[attr-defined]  # `native` does not keep it alive
    run.frozen_tensors = frozen_tensors  # type: ignore[attr-defined]  # for recordings.py
    return run
