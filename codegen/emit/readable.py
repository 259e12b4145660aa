"""The code of a lowered module as text for people: LLVM IR, assembly, Triton's Python, PTX. Nothing is loaded or run."""

from collections.abc import Iterator
from typing import Any

from mlirc.codegen.emit.emit import HOST_OPT_LEVEL, KERNEL_OPT_LEVEL, functions_of_kernel, text_of
from mlirc.codegen.host.host_program import host_program
from mlirc.codegen.llvm.machine_code import assembly, mlir_to_llvm
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.module.errors import emit_error
from mlirc.lowering.module.target_attribute import target_of
from mlirc.lowering.pipeline.pass_manager import Seen, all_functions, functions


def llvm_texts(module: Any) -> Iterator[tuple[str, str, int]]:
    """Name, LLVM IR before LLVM's passes, and the level at which these run: of each kernel, then of each host program.

    Raises EmitError. Needs an entered context.
    """
    named = {attribute_value(op.attributes["sym_name"]): op for op in module.body.operations}
    code = {name: op for name, op in named.items() if op.operation.name in ("func.func", "llvm.func")}
    declarations = [
        text_of(op) for op in code.values() if op.operation.name == "llvm.func" and not op.regions[0].blocks
    ]
    try:
        hosts = {function.name.value: host_program(function, [], False) for function in functions(module)}
        kernels = dict.fromkeys(link for host in hosts.values() for link in host.links if link in code)
        for name in kernels:
            source = "\n".join([*declarations, *map(text_of, functions_of_kernel(code, name))])
            yield name, mlir_to_llvm(source), KERNEL_OPT_LEVEL
        for name, host in hosts.items():
            yield name, host.text, HOST_OPT_LEVEL
    except Exception as error:
        raise emit_error(error) from error


def assembly_texts(module: Any) -> Iterator[tuple[str, str]]:
    """Name and assembly for the module's target. Raises EmitError, and ValueError for what LLVM does not accept."""
    target = target_of(module).cpu
    for name, text, level in llvm_texts(module):
        yield name, assembly(text, level, target)


def triton_texts(module: Any) -> Iterator[tuple[str, str]]:
    """Name and Python text of each kernel for a GPU."""
    for op in triton_ops(module):
        yield attribute_value(op.attributes["sym_name"]), attribute_value(op.attributes["source"])


def ptx_texts(module: Any) -> Iterator[tuple[str, str]]:
    """Name and PTX of each kernel for the target's GPU. Needs Triton, and no GPU. Raises TritonError."""
    from dataclasses import asdict

    from mlirc.codegen.cuda.triton_compile import kernel_source
    from mlirc.codegen.cuda.triton_worker import ptx_of

    target = target_of(module)
    devices = {name: info_of(run.operands[0]).device for name, run in kernel_runs(module).items()}
    for op in triton_ops(module):
        source = kernel_source(op)
        yield source.name, ptx_of(asdict(source), target.gpu(devices[source.name]).capability)


def triton_ops(module: Any) -> list[Any]:
    """The `mlirc.triton` ops that a function launches. One that nothing launches is left out: where the module comes from a file, nothing
    has verified its text (lowering/files/code.py)."""
    named = {attribute_value(op.attributes["sym_name"]): op for op in module.body.operations}
    found = (named.get(name) for name in kernel_runs(module))
    return [op for op in found if op is not None and op.operation.name == "mlirc.triton"]


def kernel_runs(module: Any) -> dict[str, Any]:
    """The names of the kernels that functions run, each with the first `mlircx.run` of it. Functions of regions come before their callers."""
    operations = (op for one in all_functions(module, Seen()) for op in one.regions[0].blocks[0].operations)
    runs = [op for op in operations if op.operation.name == "mlircx.run"]
    found: dict[str, Any] = {}
    for run in runs:
        found.setdefault(attribute_value(run.attributes["kernel"]), run)
    return found
