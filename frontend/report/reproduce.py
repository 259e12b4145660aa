"""Files that reproduce a failure of the compiler: MLIR for a pass or the code generator, Python for the importer."""

import operator
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.dialects.core.context import context
from mlirc.frontend.importer.importer import Imported, import_graph
from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import (
    ConstantSource,
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
    make_fx,
)
from mlirc.frontend.torch_compat.fake_tensors import FakeTensorMode


def write_reproducer(kind: str, step: str, text: str, suffix: str) -> str:
    """Write `text` to a new file in the folder for temporary files, which stays. Returns its path, or why there is none."""
    name = "".join(c if c.isalnum() else "_" for c in step)
    try:
        with tempfile.NamedTemporaryFile("wb", prefix=f"mlirc_{kind}_{name}_", suffix=suffix, delete=False) as file:
            file.write(text.encode(errors="backslashreplace"))
        return file.name
    except OSError as error:
        return f"(no file: {error.strerror})"


def import_script(gm: GraphModule, why: str) -> str:
    """A Python program that imports the graph again. Other sizes of the tensors in it can be set; their values play no part."""
    classes: list[str] = []
    top = _class(gm, "Graph", classes)
    nodes = gm.graph.find_nodes(op="placeholder")
    inputs = "".join(f"    {_spec(node.meta.get('val'))},  # {node.name}\n" for node in nodes)
    return (
        f'"""{why}"""\n\nfrom math import inf, nan\nfrom types import NoneType\n\nimport torch\nfrom torch import device\n\n'
        "from mlirc.frontend.report.reproduce import import_again\n\n\n"
        + "\n\n".join(classes)
        + f"\n\n# (sizes, which of them are symbols, strides, dtype) of a tensor; an int that is a symbol: [5]\ninputs = [\n{inputs}]\n"
        + f"import_again({top}(), inputs)\n"
    )


def _class(gm: GraphModule, name: str, classes: list[str]) -> str:
    """Append the class of a graph module, after those of its subgraphs. Returns its name."""
    python = gm.graph.python_code("self")
    members = ["super().__init__()"]
    for node in gm.graph.find_nodes(op="get_attr"):
        value = operator.attrgetter(node.target)(gm)
        if isinstance(value, GraphModule):
            made = f"{_class(value, f'{name}_{node.target}', classes)}()"
        elif isinstance(value, torch.Tensor):
            made = f"torch.empty_strided({tuple(value.shape)}, {value.stride()}, dtype={value.dtype})"
        else:
            made = repr(value)
        members.append(f"self.{node.target} = {made}")
    for found, value in python.globals.items():
        if found not in ("torch", "device", "inf", "nan", "NoneType") and callable(value):
            members[:0] = [f"global {found}", f"from {value.__module__} import {value.__name__} as {found}"]
    body = "".join(f"    {line}\n" if line else "\n" for line in python.src.strip().split("\n"))
    init = "".join(f"        {line}\n" for line in members)
    classes.append(f"class {name}(torch.nn.Module):\n    def __init__(self):\n{init}\n{body}")
    return name


def _spec(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        sizes = tuple(int(_hint(n)) for n in value.shape)
        strides = tuple(int(_hint(n)) for n in value.stride())
        symbols = tuple(d for d, n in enumerate(value.shape) if not isinstance(n, int))
        return f"({sizes}, {symbols}, {strides}, {value.dtype})"
    if isinstance(value, torch.SymInt):
        return f"[{_hint(value)}]"
    return repr(value)


def _hint(n: Any) -> Any:
    """The size that the graph was traced with."""
    return n.node.hint if isinstance(n, torch.SymInt) else n


def import_again(module: torch.nn.Module, inputs: Sequence[Any]) -> Imported:
    """Trace and import a graph that import_script wrote. Raises what the importer raises."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    graph = make_fx(module, tracing_mode="real")(*(_fake(mode, x) for x in inputs))
    with context():
        return import_graph(graph)


def _fake(mode: FakeTensorMode, x: Any) -> Any:
    if isinstance(x, list):
        return _fake(mode, ((x[0],), (0,), (1,), torch.bool)).shape[0] if x[0] >= 0 else _negative(mode, x[0])
    if not isinstance(x, tuple):
        return x
    sizes, symbols, strides, dtype = x
    dynamic = [DimDynamic.DUCK if d in symbols else DimDynamic.STATIC for d in range(len(sizes))]
    real = torch.empty_strided(sizes, strides, dtype=dtype)
    return mode.from_tensor(real, symbolic_context=StatelessSymbolicContext(dynamic_sizes=dynamic))


def _negative(mode: FakeTensorMode, n: int) -> int | torch.SymInt:
    """A symbol for an int that is no size."""
    environment = mode.shape_env
    assert environment is not None
    source = ConstantSource(f"n{len(environment.var_to_range)}")
    return environment.create_unspecified_symint_and_symbol(n, source, DimDynamic.DYNAMIC)
