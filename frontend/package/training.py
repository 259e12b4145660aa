"""A training step as one functional graph of ATen's: forward, backward, and an optimizer's step.

The exported program is traced with gradients, then what that wrote in place becomes new values, written at the end. A parameter's
gradient that is used at once is never a result.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Interpreter

from mlirc.frontend.capture.quantized_operators import quantized_operators
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.package.exported import WRITTEN, Functional, described
from mlirc.frontend.package.lstm import IN_STEPS
from mlirc.frontend.package.model import CompiledModel
from mlirc.frontend.package.optimizer_state import OptimizerState, numbers, optimizer_state
from mlirc.frontend.package.signature import ArgumentError
from mlirc.frontend.partition.recomputation import decompositions
from mlirc.frontend.strides.traced import with_eager_strides
from mlirc.frontend.torch_compat.composite_operators import composite_operators
from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import make_fx
from mlirc.frontend.torch_compat.dynamo.trees import argument_trees
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor, FakeTensorMode
from mlirc.frontend.torch_compat.list_operators import list_operators

aten = torch.ops.aten


class CompiledStep(CompiledModel):
    """A model with its optimizer, whose numbers are part of the code: a call after one was changed is refused."""

    def of(self, optimizer: torch.optim.Optimizer) -> "CompiledStep":
        self._optimizer, self._numbers = optimizer, numbers(optimizer)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for before, now in zip(self._numbers, numbers(self._optimizer), strict=True):
            if changed := [name for name in now if name not in before or now[name] != before[name]]:
                name = changed[0]
                raise ArgumentError(
                    f"the optimizer's {name} is {now[name]}; the model was compiled for {before.get(name)}: compile it again"
                )
        return super().__call__(*args, **kwargs)


def training_graph(program: ExportedProgram, optimizer: torch.optim.Optimizer | None) -> Functional:
    """The graph of a step. Raises UnsupportedGraph for a program without a loss, and for an optimizer that cannot be compiled."""
    specs = program.graph_signature.input_specs
    parameters = {
        k: program.state_dict[spec.target]
        for k, spec in enumerate(specs)
        if spec.kind is InputKind.PARAMETER and spec.target and program.state_dict[spec.target].requires_grad
    }
    names = {k: str(specs[k].target) for k in parameters}
    state = None if optimizer is None else optimizer_state(optimizer, parameters, names, program.state_dict.values())
    values = [node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")]
    mode = next((x.fake_mode for x in values if isinstance(x, FakeTensor)), None) or FakeTensorMode()
    beside = {} if state is None else state.tensors
    with mode, torch.no_grad():
        fakes = [x.detach() if isinstance(x, torch.Tensor) else x for x in values]
        fakes += [mode.from_tensor(x.detach(), static_shapes=True) for x in beside.values()]
    step = TrainingStep(program, names, state)
    gm = functionalized(step, fakes, mode)
    copies = gm.graph.find_nodes(op="call_function", target=aten.copy_.default)
    placeholders = set(gm.graph.find_nodes(op="placeholder"))
    written: Any = {node.args[0] for node in copies if node.args[0] in placeholders}
    return described(program, gm, written, beside, step.gives)


class _InSteps(Interpreter):
    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return IN_STEPS[target](*args, **kwargs) if target in IN_STEPS else super().call_function(target, args, kwargs)


class TrainingStep:
    """A step, on tensors that are traced: of the program's placeholders, and of the optimizer's state."""

    def __init__(self, program: ExportedProgram, names: Mapping[int, str], state: OptimizerState | None):
        self.program, self.names, self.state = program, names, state
        self.count = len(program.graph_signature.input_specs)
        self.gives: Any = program.call_spec.out_spec

    def __call__(self, *given: Any) -> list[Any]:
        values = list(given[: self.count])
        with torch.enable_grad():
            for k in self.names:
                values[k] = given[k].detach().requires_grad_()
            results = list(_InSteps(self.program.graph_module).run(*values))
            wanted = [values[k] for k in self.names]
            found = torch.autograd.grad(loss_of(self.own(results)), wanted, allow_unused=True)
        gradients = dict(zip(self.names, found, strict=True))
        plain = [x.detach() if isinstance(x, torch.Tensor) else x for x in self.write(given, results)]
        if self.state is not None:
            self.state.step({k: given[k] for k in self.names}, gradients, given[self.count :])
            return plain
        trees = argument_trees()
        whole = trees.tree_unflatten(plain, self.program.call_spec.out_spec)
        flat, self.gives = trees.tree_flatten((whole, {name: gradients[k] for k, name in self.names.items()}))
        return flat

    def own(self, results: list[Any]) -> list[Any]:
        """Without the new values of buffers, which a program that was decomposed gives first."""
        told = self.program.graph_signature.output_specs
        return [x for spec, x in zip(told, results, strict=True) if spec.kind not in WRITTEN]

    def write(self, given: Sequence[Any], results: list[Any]) -> list[Any]:
        """Writes those new values, and gives the rest."""
        told = self.program.graph_signature
        places = {name: k for k, spec in enumerate(told.input_specs) for name in (spec.target, spec.arg.name) if name}
        for spec, x in zip(told.output_specs, results, strict=True):
            if spec.kind in WRITTEN and spec.target is not None:
                given[places[spec.target]].copy_(x.detach())
        return self.own(results)


def loss_of(results: list[Any]) -> torch.Tensor:
    """The first result. Raises UnsupportedGraph where it is no loss."""
    loss = results[0] if results else None
    if not isinstance(loss, torch.Tensor) or loss.dim() or not loss.is_floating_point() or not loss.requires_grad:
        what = f"{loss.dtype} of {list(loss.shape)}" if isinstance(loss, torch.Tensor) else repr(loss)
        raise UnsupportedGraph(
            f"training needs a loss, a number with gradients, as the first result of the model; that is {what}"
        )
    return loss


def functionalized(step: TrainingStep, fakes: list[Any], mode: Any) -> GraphModule:
    """The graph of a step, in which nothing is written but placeholders, at the end."""
    parts = {**(composite_operators() or {}), **(list_operators() or {}), **quantized_operators(), **decompositions()}
    with mode, with_eager_strides([x for x in fakes if isinstance(x, torch.Tensor)]), torch.no_grad():
        traced = make_fx(step, decomposition_table=decompositions(), _allow_non_fake_inputs=True)(*fakes)
        again = torch.func.functionalize(lambda *given: Interpreter(traced).run(*given))
        gm = make_fx(again, decomposition_table=parts, _allow_non_fake_inputs=True)(*fakes)
    results = gm.graph.output_node().args[0]
    gm.graph.output_node().args = (tuple(results),)  # type: ignore[arg-type]
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm
