"""Memory level: what the pass plan-memory makes of a graph, and the host program is generated from.

Every value is now a buffer: the type still gives dtype, sizes and strides, and ops write into buffers they are given.

    func.func @graph(%x: tensor<256x768xf32>, %w: tensor<768x768xf32>) -> tensor<256x768xf32> attributes {mlirc.arena = "786432"} {
      %0 = "mlirc.slot"() {offset = "0"} : () -> tensor<256x768xf32>
      "mlircx.call"(%x, %w, %0) {callee = "matmul", inputs = 2 : i64} : (...) -> ()
      %1 = "mlirc.allocate"() : () -> tensor<256x768xf32>
      "mlircx.launch"(%0, %1) ({ a kernel's body }) {parallel = "196608", inner = "", label = "gelu", inputs = 1 : i64} : (...) -> ()
      return %1 : tensor<256x768xf32>
    }
"""

from typing import Any

from mlirc.dialects.bindings import ext, ir
from mlirc.dialects.dialect import ListOp, Mlirc


class Slot(Mlirc.Operation, name="slot"):
    """A buffer in the arena, `offset` bytes from its start (a size expression, a multiple of 64)."""

    offset: ir.StringAttr
    out: ext.Result[Any]


class Allocate(Mlirc.Operation, name="allocate"):
    """A buffer of its own from PyTorch's allocator: a result of the graph, which outlives the call."""

    out: ext.Result[Any]


class Launch(ListOp, name="launch", regions=1):
    """Runs a kernel: the body, parallel, inner and label of a `mlircx.kernel`. The first `inputs` operands are read, the others
    written, one for each value of the yield. An output may be the same memory as an input read at the very index written."""


class Call(ListOp, name="call"):
    """A library routine that writes into buffers: `callee` is "matmul", "addmm", "copy", ... The first `inputs` operands are read."""


class Run(ListOp, name="run", regions=1):
    """A launch once its kernel is lowered: a launch still, body and attributes, of which `kernel` is the code: it names a
    function of the module that takes the words docs/architecture.md lists, `symbols` the size symbols among them ("s0, s1").
    Where the function returns k, IndexError is raised with messages[k - 1], a list of strings.

    The host program calls the function and ignores the body, which is what the interpreter runs and people read."""


class Release(Mlirc.Operation, name="release"):
    """The end of a buffer that the program owns: an ATen call's result, or an allocation that is not returned."""

    x: ext.Operand[Any]
