"""Kernels for aarch64, as far as a machine of another kind can tell: they compile, to vector instructions."""

import re

import llvmlite.binding as llvm
import pytest
import torch

from mlirc.codegen.llvm.machine_code import mlir_to_llvm
from mlirc.dialects.core.context import context
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.passes.lower.lower_kernels import LowerKernels
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.target import parse_target
from tests.kernel_runner import info, launch_module


@pytest.fixture
def aarch64():
    """The target machine to compile with."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(features="+neon", opt=2)


def scaled_sum(k, x):
    a = k.read(x, k.dims)
    return [(k.reduce("sum", k.fma(a, a, a)), k.parallel_dims, info(torch.float32, "s0"))]


def gelu(k, x):
    a = k.read(x, k.dims)
    return [(k.mul(a, k.erf(a)), k.dims, info(torch.float32, "s0, 100"))]


@pytest.mark.parametrize("build, space", [(scaled_sum, ("s0", "100")), (gelu, ("s0, 100", ""))])
def test_kernels_are_vectorised(aarch64, build, space: tuple[str, str]):
    with context():
        module, _, _ = launch_module([info(torch.float32, "s0, 100")], space[0], space[1], build)
        function = module.body.operations[0]
        set_target(module, parse_target("cpu-neon"))
        LowerKernels().run(function, Ledger())
        function.operation.erase()
        text = mlir_to_llvm(str(module))
    compiled = llvm.parse_assembly(text, llvm.create_context())
    compiled.triple = "aarch64-unknown-linux-gnu"
    compiled.verify()
    assembly = aarch64.emit_assembly(compiled)
    assert len(re.findall(r"\bfml[as]\s+v\d+\.4s", assembly)) >= 2, assembly
