"""Kernels for AVX-512, as far as a machine without it can tell: what their assembly stores."""

import re

import llvmlite.binding as llvm
import pytest
import torch

from mlirc.codegen.llvm.machine_code import load_libraries, mlir_to_llvm
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.target import parse_target
from tests.lowering.cpu.attention.test_attention import LOWER, module_of


@pytest.fixture
def avx512():
    """The target machine to compile with."""
    load_libraries()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu="x86-64-v4", opt=2)


@pytest.mark.parametrize("head", [1, 17])
def test_the_last_element_of_a_row_is_stored_alone(avx512, head):
    """LLVM 22 stores 32 bits for one of 16 that it knows to be the only one under a mask."""
    operands = [torch.empty(1, 2, 20, head, dtype=torch.bfloat16) for _ in range(3)]
    with context():
        module = module_of(operands, 1.0, "none")
        set_target(module, parse_target("cpu-avx512"))
        run_pipeline(module, LOWER)
        lowered = ir.Module.parse(str(module))
        next(op for op in lowered.body.operations if str(op.name) == '"graph"').operation.erase()
        compiled = llvm.parse_assembly(mlir_to_llvm(str(lowered)), llvm.create_context())
    passes = llvm.create_new_module_pass_manager()
    passes.add_instruction_combine_pass()
    passes.run(compiled, llvm.create_pass_builder(avx512, llvm.create_pipeline_tuning_options()))
    (store,) = re.findall(r"^\w+_store_bf16_\d+:.*?^\.Lfunc_end", avx512.emit_assembly(compiled), re.M | re.S)
    assert "vpmovdw" in store and not re.search(r"\bmovl\s+%\w+, .*\(", store), store
