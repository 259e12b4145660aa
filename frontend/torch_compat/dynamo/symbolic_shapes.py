"""Symbolic sizes, and the functions in PyTorch's size expressions."""

from mlirc.codegen.abi.reach import needed

with needed("symbolic-shapes"):
    from torch._dynamo.source import ConstantSource as ConstantSource
    from torch._dynamo.source import TensorPropertySource as TensorPropertySource
    from torch.fx.experimental.proxy_tensor import make_fx as make_fx
    from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP as SYMPY_INTERP
    from torch.fx.experimental.symbolic_shapes import DimDynamic as DimDynamic
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode as GuardOnDataDependentSymNode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv
    from torch.fx.experimental.symbolic_shapes import StatelessSymbolicContext as StatelessSymbolicContext
    from torch.fx.experimental.symbolic_shapes import guard_or_false as guard_or_false
    from torch.fx.experimental.symbolic_shapes import statically_known_true as statically_known_true
    from torch.utils._sympy.functions import FloorDiv as FloorDiv
    from torch.utils._sympy.functions import Max as Max
    from torch.utils._sympy.functions import Min as Min
    from torch.utils._sympy.functions import Mod as Mod
    from torch.utils._sympy.functions import PythonMod as PythonMod
    from torch.utils._sympy.printers import PythonPrinter as PythonPrinter
