"""Former names of passes: accepted in pipelines for one version, with a warning that gives the new name."""

import logging

NEW = {
    "activate-products": "fuse-matmul-epilogue",
    "choose-attention": "select-attention",
    "compute-what-is-read": "propagate-slices",
    "fuse-siblings": "fuse-horizontally",
    "gather-early": "hoist-gathers",
    "generate-products": "generate-matmuls",
    "generate-triton-products": "generate-triton-matmuls",
    "merge-products": "merge-matmuls",
    "multiply-patches": "patches-to-matmul",
    "pad-products": "pad-matmuls",
    "run-together": "batch-kernels",
    "update-in-place": "elide-copies",
}

log = logging.getLogger("mlirc")


def todays_name(name: str) -> str:
    new = NEW.get(name)
    if new is None:
        return name
    log.warning("mlirc: the pass '%s' is called '%s' now", name, new)
    return new
