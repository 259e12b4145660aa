"""What passes are written with (docs/adding.md). These names stay where they are.

register               a class decorator: the pass is known by its `name`
run_pipeline(module, text)   runs passes, "cse,fuse-elementwise{max-ops=8}", in place; PassError names the pass and the op,
                           PipelineError what is wrong with the text
pipeline(name)         the text of a standard pipeline, "cpu" or "gpu"
passes()               all passes, by name
Ledger                 what a pass tells of what it did and refused; mlirc.explain shows it
KernelFusion(function, ledger, name)   merges pairs of kernels that a pass of yours chooses, and tells what each would save
Candidate, Group, TensorUse   a pair of kernels and a kernel, as the ledger of fusion has them, and what lies between kernels
make_matmul_kernel(op, label)   makes a matmul of the graph a kernel, which fusion can give an epilogue; gives its result
target_of(function)     the machine that the module is for; set_target(module, parse_target("cpu-avx2")) says it
GraphBuilder           makes ops of the graph level
number_of(value)       the number of a constant, or None; constant_like(value, number), a 0-d one of that dtype and device
concatenate(g, values, dim)   joins up to four tensors
view_root(value)       what a value is a view of; unwritten_parameters(function), the model's parameters, less those that the graph writes
may_move(value, stride)   whether all readers of a value can take it with other strides; move(old, new) then replaces it
"""

from mlirc.dialects.core.graph_builder import GraphBuilder, constant_like, number_of
from mlirc.dialects.ops.movement.concat_pad import concatenate
from mlirc.lowering.analysis.provenance import unwritten_parameters, view_root
from mlirc.lowering.fusion.kernel_fusion import KernelFusion, TensorUse
from mlirc.lowering.layout.moved_views import may_move, move
from mlirc.lowering.module.target_attribute import set_target, target_of
from mlirc.lowering.passes.fuse.generate_matmuls import make_matmul_kernel
from mlirc.lowering.pipeline.fusion_log import Candidate, Group
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.pipeline.parser import PipelineError
from mlirc.lowering.pipeline.pass_manager import PassError, passes, register, run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline
from mlirc.lowering.target import parse_target

__all__ = [
    "Candidate",
    "GraphBuilder",
    "Group",
    "KernelFusion",
    "Ledger",
    "PassError",
    "PipelineError",
    "TensorUse",
    "concatenate",
    "constant_like",
    "make_matmul_kernel",
    "may_move",
    "move",
    "number_of",
    "parse_target",
    "passes",
    "pipeline",
    "register",
    "run_pipeline",
    "set_target",
    "target_of",
    "unwritten_parameters",
    "view_root",
]
