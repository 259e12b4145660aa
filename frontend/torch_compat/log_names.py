"""Names of ours in TORCH_LOGS, and the loggers that stand for them. Nothing here imports torch: it may be on its way."""

import logging
import os
from collections.abc import Callable

from mlirc.codegen.abi.reach import reach

ARTIFACTS = {
    "mlirc_ir": "The IR of each graph that mlirc compiles, after every stage.",
    "mlirc_fusion": "What mlirc's fusion passes decided about each pair of kernels, and by which rule.",
    "mlirc_code": "The LLVM IR and the Triton kernels that mlirc writes.",
}


@reach("log-names", instead="TORCH_LOGS takes no mlirc_ir, mlirc_fusion and mlirc_code")
def log_names() -> Callable[[str], logging.Logger]:
    """Gives the logger of an artifact; PyTorch knows all of their names by then, and mlirc's own logger."""
    from torch._logging._internal import getArtifactLogger, register_artifact, register_log

    register_log("mlirc", "mlirc")
    for name, description in ARTIFACTS.items():
        register_artifact(name, description, visible=True)
    return lambda name: getArtifactLogger("mlirc", name)


def artifact_logger(name: str) -> logging.Logger | None:
    """What logs an artifact, where TORCH_LOGS or torch._logging.set_logs asks for it by name."""
    if "mlirc" in os.environ.get("TORCH_LOGS", "") and (found := log_names()) is not None:
        logger = found(name)
        return logger if logger.level else None
    return None
