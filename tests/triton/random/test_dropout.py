"""Dropout of tensors on a GPU, up to the host program; what it draws is in test_random_numbers.py, and in tests/gpu."""

import re
import subprocess

import llvmlite.binding as llvm
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from triton import knobs

from mlirc.codegen.abi.cuda_generator import GeneratorLayout
from mlirc.codegen.cuda import random as cuda_random
from mlirc.codegen.cuda.triton_compile import compile_kernels, source_of
from mlirc.codegen.host.host_program import host_program
from mlirc.dialects.core import random_state
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.random_state import DropoutLaunch, dropout_launch
from mlirc.frontend.importer.importer import import_graph
from mlirc.lowering.gpu.random_state import state_kernel
from mlirc.lowering.pipeline import pipelines
from mlirc.lowering.pipeline.pass_manager import run_pipeline


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """A GPU of 132 multiprocessors for 2048 threads each, and PyTorch's generator as of 2.13."""
    monkeypatch.setattr(random_state, "is_native", lambda: True)
    monkeypatch.setattr(random_state, "most_blocks", lambda device: 132 * 8)


def imported(fn, *shapes, dtype=torch.bfloat16, like=None):
    with FakeTensorMode():
        make = like or (lambda shape: torch.empty(shape, device="cuda", dtype=dtype))
        gm = make_fx(fn)(*map(make, shapes))
    return import_graph(gm, [])


def calls(module, name: str) -> list:
    return [op for op in module.body.operations[0].regions[0].blocks[0].operations if op.operation.name == name]


def test_two_dropouts_an_addition_and_a_norm_are_one_kernel():
    def fn(x, y, w):
        a, kept = torch.ops.aten.native_dropout(x, 0.1, True)
        b, kept_too = torch.ops.aten.native_dropout(torch.nn.functional.layer_norm(a + y, (768,), w), 0.1, True)
        return b, kept, kept_too

    with context():
        found = imported(fn, (16, 512, 768), (16, 512, 768), (768,))
        run_pipeline(found.module, pipelines.pipeline("gpu"))
        states = calls(found.module, "mlircx.aten_effect")
        assert [attribute_value(op.attributes["args"]) for op in states] == ["[0, 24]"] * 2
        (run,) = calls(found.module, "mlircx.run")
        host = host_program(found.module.body.operations[0], found.objects)
        names = {attribute_value(op.attributes["sym_name"]) for op in found.module.body.operations}
    assert {"random_state", "random_state@0"} <= set(host.links) and "random_state" in names
    assert not any(call.why for call in host.calls) and run is not None


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda shape: torch.empty_strided((64, 48), (96, 2), device="cuda"), "gaps"),
        (lambda shape: torch.empty(7, 9, device="cuda"), "fewer than 4"),
        (lambda shape: torch.empty(shape, device="cuda", dtype=torch.float64), "fewer than 4"),
        (lambda shape: torch.empty(shape), "CPU"),
        (lambda shape: torch.empty_strided((3, 64, 96), (0, 96, 1), device="cuda"), "gaps"),
    ],
)
def test_what_goes_to_aten(make, why):
    with context():
        found = imported(lambda x: torch.ops.aten.native_dropout(x, 0.5, True), (64, 96), like=make)
        (call,) = calls(found.module, "mlircx.aten_effect")
        assert attribute_value(call.attributes["op"]) == "aten.native_dropout.default"
    assert why in found.aten["aten.native_dropout.default"][1]


def test_a_permuted_tensor_is_dense():
    def make(shape):
        return torch.empty_strided((96, 64), (1, 96), device="cuda")

    with context():
        found = imported(lambda x: torch.ops.aten.native_dropout(x, 0.5, True), (), like=make)
        (call,) = calls(found.module, "mlircx.aten_effect")
        assert attribute_value(call.attributes["op"]) == random_state.OPERATOR
        (iota,) = calls(found.module, "mlirc.iota")
        assert attribute_value(iota.attributes["expr"]) == "d0 + 96*d1"


@pytest.mark.parametrize(
    ("elements", "itemsize", "launch"),
    [
        (16 * 512 * 768, 2, DropoutLaunch(8, 270336, 24)),  # as read off PyTorch 2.11 on an H200
        (1000, 4, DropoutLaunch(4, 1024, 4)),
        (4_000_004, 2, DropoutLaunch(4, 270336, 16)),
        (4_000_002, 2, None),
        (0, 2, None),
    ],
)
def test_launches_are_atens(elements, itemsize, launch):
    assert dropout_launch(elements, itemsize, "cuda:0") == launch


@pytest.mark.parametrize("known", [GeneratorLayout(16, 64), GeneratorLayout(24, 32)])
def test_native_code_is_well_formed(known):
    llvm.parse_assembly(cuda_random.text(known)).verify()


def test_the_generators_addresses_are_not_cleared(tmp_path):
    """A register that is set to 0 before a load, as its result, must not be the address."""
    (made,) = compile_kernels([source_of("random_state", state_kernel())])
    (tmp_path / "cubin").write_bytes(made.cubin)
    command = [knobs.nvidia.cuobjdump.path, "--dump-sass", tmp_path / "cubin"]
    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cleared = set(re.findall(r"CS2R (R\d+), SRZ", code))
    addresses = re.findall(r"LDG\S* R\d+, desc\[\w+\]\[(R\d+)", code)
    assert len(addresses) == 2 and not cleared & set(addresses)
