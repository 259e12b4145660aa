"""The standard pipelines, as text that `mlirc opt -p` takes. Each stage's passes end in a form that the next can start from."""

from mlirc.lowering.module.nearest import unknown
from mlirc.lowering.pipeline.parser import parse

SIMPLIFY = (
    "canonicalize,cse,"
    "fuse-flex-attention,canonicalize,"  # before fold-constants and decompose: masks are still made of positions
    "fold-constants,"
    "join-concatenations,"  # before fold-convolutions, which lays out channels last what ops of ours give
    "simplify-attention,"  # before decompose: it looks through composites that make masks
    "convolution-to-matmul,"  # before what takes all convolutions
    "fold-convolutions,"  # before decompose: it takes batch norms in
    "decompose,"
    "generate-convolutions,"  # after decompose: it follows elementwise ops and reductions, of which batch norms are made
    "split-channel-sums,"  # after generate-convolutions, which lays images channels last
    "fold-constants,eliminate-views,"
    "propagate-slices,eliminate-views,"  # after decompose: rows of a norm are rows of what it is made of
    "accumulate-embeddings,"  # after eliminate-views: it looks for a matmul, not for a view of a view of one
    "hoist-gathers,"
    "canonicalize,cse"  # expansions repeat constants and casts; equal ops must be one before fusion counts uses
)
FUSE = (
    "select-attention,generate-quantised-matmuls,"  # before generate-matmuls, which takes every weight
    "generate-matmuls,hoist-parameters,"  # before to-kernels: what stays a matmul is a library call
    "to-kernels,"
    "fuse-elementwise,fuse-reductions,"
    "fuse-horizontally,"  # last: two kernels that read the same data merge only once each is as large as it gets
    "canonicalize,cse,eliminate-dead,"
    "elide-copies,"
    "schedule-collectives"  # last: kernels are what runs beside them
)
PLAN = "plan-memory"
LOWER = "lower-kernels"

# Where a tensor is on a GPU: what only CPUs gain by is left out, convolutions and matmuls are library calls. The "frozen"
# ones keep what they compute of parameters; the others compute it in each call, and so do less of it.
GPU_FOLD = (
    "canonicalize,cse,"
    "fuse-flex-attention,canonicalize,"  # before fold-constants and decompose: masks are still made of positions
    "fold-constants,"
    "fold-cudnn,"  # before decompose: it takes batch norms in
    "decompose,"
    "space-to-depth,"
    "patches-to-matmul,"  # before convolve-channels-last, which takes all convolutions
    "convolve-channels-last,"  # after decompose: it follows elementwise ops and reductions, of which batch norms are made
    "fuse-matmul-epilogue,"  # after decompose: a GELU may be written out
)
GPU_GENERATE = "generate-dot-products,generate-triton-matmuls,"
GPU_CLEAN = (
    "fold-constants,eliminate-views,hoist-gathers,"
    "scalars-to-device,"  # after fold-constants: a number that is known needs no copy
    "canonicalize,cse"
)
GPU_SIMPLIFY = (
    f"{GPU_FOLD}{GPU_GENERATE}"
    f"pad-matmuls,{GPU_CLEAN}"  # before eliminate-views and cse: two matmuls share a padded operand
)
GPU_FROZEN_SIMPLIFY = (
    f"{GPU_FOLD}"
    "merge-matmuls,"  # before pad-matmuls: it looks at whole parameters; before what generates: three weights are one
    f"{GPU_GENERATE}"
    f"pad-matmuls{{frozen=true}},{GPU_CLEAN}"  # after generate-triton-matmuls, which stores unaligned rows as they are
)
GPU_MERGE = "to-kernels,fuse-elementwise,fuse-reductions,fuse-horizontally,"
GPU_SPLIT = (
    "split-reductions,"  # after all fusion: it takes kernels apart
    "batch-kernels,"
    "canonicalize,cse,eliminate-dead,"
    "schedule-collectives"  # last: kernels are what runs beside them
)
GPU_FUSE = f"select-attention,{GPU_MERGE}batch-parameters,{GPU_SPLIT}"
GPU_FROZEN_FUSE = f"select-attention,hoist-parameters,{GPU_MERGE}{GPU_SPLIT}"
GPU_LOWER = "split-unaligned,lower-triton,lower-kernels"  # kernels on GPUs, and then what is left: kernels on the CPU

# What each stage appends; a pipeline that stops after a stage is the concatenation up to it.
CPU_STAGES = {"simplify": SIMPLIFY, "fuse": FUSE, "plan": PLAN, "lower": LOWER}
# Nothing is fused and nothing shares memory: what a suspected miscompile is compared with.
STRICT_STAGES = {
    "simplify": SIMPLIFY,
    "fuse": "select-attention,to-kernels",
    "plan": "plan-memory{reuse=false}",
    "lower": LOWER,
}
GPU_STAGES = {"simplify": GPU_SIMPLIFY, "fuse": GPU_FUSE, "plan": PLAN, "lower": GPU_LOWER}
GPU_FROZEN_STAGES = GPU_STAGES | {"simplify": GPU_FROZEN_SIMPLIFY, "fuse": GPU_FROZEN_FUSE}
PIPELINES = {"cpu": CPU_STAGES, "gpu": GPU_STAGES, "gpu-frozen": GPU_FROZEN_STAGES, "strict": STRICT_STAGES}
STAGES = ("simplify", "fuse", "plan", "lower")


def _passes_of(stage: str) -> set[str]:
    return {step.name for standard in PIPELINES.values() for step in parse(standard[stage])}


_FUSE_ALONE = _passes_of("fuse") - _passes_of("simplify")


def pipeline(name: str, stop_after: str = "lower") -> str:
    """The text of pipeline `name` up to and including a stage. Raises ValueError with the names that exist."""
    if name not in PIPELINES:
        raise ValueError(unknown("pipeline", name, PIPELINES))
    if stop_after not in STAGES:
        raise ValueError(unknown("stage", stop_after, STAGES))
    return ",".join(PIPELINES[name][stage] for stage in STAGES[: STAGES.index(stop_after) + 1])


def chosen(text: str, on_gpu: bool = False, freeze: bool = False) -> str:
    """The pipeline that a text means: "auto" is "gpu" where tensors are on one (`on_gpu`), "gpu-frozen" where parameters are promised
    to stay besides (`freeze`), else "cpu"."""
    if text != "auto":
        return text
    return ("gpu-frozen" if freeze else "gpu") if on_gpu else "cpu"


def stages(text: str, on_gpu: bool = False, freeze: bool = False) -> dict[str, str]:
    """Stages by name, in order: of the pipeline of that name, or of passes. What "auto" is, `chosen` says.

    Passes are cut before the first one of the stage fuse, before plan-memory and before lower-kernels. What they leave out of the
    way down is appended: composites are decomposed, each op becomes a kernel, memory is planned, kernels are lowered. Raises PipelineError.
    """
    text = chosen(text, on_gpu, freeze)
    final = GPU_LOWER if on_gpu else LOWER
    if text == "strict" and on_gpu:
        return STRICT_STAGES | {"simplify": GPU_SIMPLIFY, "lower": final}
    if text in PIPELINES:
        return PIPELINES[text]
    steps = parse(text)
    names = [step.name for step in steps]
    plan = names.index("plan-memory") if "plan-memory" in names else len(steps)
    lower = names.index("lower-kernels") if "lower-kernels" in names else len(steps)
    parts = [",".join(map(str, part)) for part in (steps[:plan], steps[plan:lower], steps[lower:])]
    if plan == len(steps) and "to-kernels" not in names:
        found = {
            "simplify": parts[0],
            "fuse": f"decompose,{'scalars-to-device,' if on_gpu else ''}select-attention,to-kernels",
        }
    else:
        fuse = next((k for k, name in enumerate(names[:plan]) if name in _FUSE_ALONE), 0)
        simplify, rest = (",".join(map(str, part)) for part in (steps[:fuse], steps[fuse:plan]))
        found = ({"simplify": simplify} if fuse else {}) | {"fuse": rest}
    return found | {"plan": parts[1] or PLAN, "lower": parts[2] or final}
