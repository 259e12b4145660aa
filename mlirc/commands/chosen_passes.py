"""Which passes a command line chooses: -p, --pipeline, --stop-after, and what --import adds."""

import importlib
import runpy

from mlirc.commands.failure import Failure


def import_extra(name: str) -> None:
    """Import a module, or run a Python file. Raises Failure for whatever it raises."""
    try:
        if name.endswith(".py"):
            runpy.run_path(name)
        else:
            importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise Failure(f"--import {name}: {error}", 2) from error
    except (Exception, SystemExit) as error:
        raise Failure(f"--import {name}: {type(error).__name__}: {error}", 2) from error


def chosen_passes(file: str | None, text: str | None, pipeline: str | None, stage: str | None) -> str:
    """The passes to run, all of which exist. Raises Failure."""
    from mlirc.lowering.pipeline import pipelines
    from mlirc.lowering.pipeline.parser import PipelineError
    from mlirc.lowering.pipeline.pass_manager import runners

    if file is None:
        raise Failure("no FILE; - is standard input, -h is help", 2)
    if (text is None) == (pipeline is None):
        raise Failure("say which passes to run: either -p PASSES or --pipeline NAME", 2)
    if stage and pipeline is None:
        raise Failure("--stop-after goes with --pipeline", 2)
    try:
        if text is None:
            assert pipeline is not None
            text = pipelines.pipeline(pipeline, stage or pipelines.STAGES[-1])
        runners(text)
    except (PipelineError, ValueError) as error:
        raise Failure(str(error), 2) from error
    return text
