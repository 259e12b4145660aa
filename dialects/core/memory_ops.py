"""Memory level: the ops that plan-memory makes of a graph, from which the host program is generated.

Every value is now a buffer: the type still gives dtype, sizes and strides, and ops write into buffers they are given.

    func.func @graph(%x: tensor<256x768xf32>, %w: tensor<768x768xf32>) -> tensor<256x768xf32> attributes {mlirc.arena = "786432"} {
      %0 = "mlirc.slot"() {offset = "0"} : () -> tensor<256x768xf32>
      "mlircx.call"(%x, %w, %0) {callee = "matmul", inputs = 2 : i64} : (...) -> ()
      %1 = "mlirc.allocate"() : () -> tensor<256x768xf32>
      "mlircx.launch"(%0, %1) ({ a kernel's body }) {parallel = "196608", inner = "", label = "gelu", inputs = 1 : i64} : (...) -> ()
      return %1 : tensor<256x768xf32>
    }

Each device has an arena of its own: {mlirc.arena = "0", mlirc.device_arenas = {"cuda:0" = "786432"}}; a slot lies in its device's.
"""

from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import ListOp, Mlirc, attribute_value
from mlirc.dialects.core.symbols import Int

# of a mlirc.triton: bytes of memory that each of its programs gets, the last argument but one
SCRATCH = "mlirc.scratch"


def scratch_of(op: Any) -> int:
    """Bytes of memory that each program of a `mlirc.triton` is lent."""
    return attribute_value(op.attributes[SCRATCH]) if SCRATCH in op.attributes else 0


def arenas(function: Any) -> dict[str, Int]:
    """Bytes of the arena on each device, "cpu" first, of a function at the memory level."""
    found = {"cpu": symbols.parse(ir.StringAttr(function.attributes["mlirc.arena"]).value)}
    if "mlirc.device_arenas" in function.attributes:
        for named in ir.DictAttr(function.attributes["mlirc.device_arenas"]):
            found[named.name] = symbols.parse(ir.StringAttr(named.attr).value)
    return found


def set_arenas(function: Any, sizes: dict[str, Int]) -> None:
    function.attributes["mlirc.arena"] = ir.StringAttr.get(str(sizes.get("cpu", 0)))
    others = {device: ir.StringAttr.get(str(size)) for device, size in sizes.items() if device != "cpu"}
    if others:
        function.attributes["mlirc.device_arenas"] = ir.DictAttr.get(others)


class Slot(Mlirc.Operation, name="slot"):
    """A buffer in its device's arena, `offset` bytes from its start (a size expression, a multiple of 64)."""

    offset: ir.StringAttr
    out: ext.Result[Any]


class Allocate(Mlirc.Operation, name="allocate"):
    """A buffer of its own from PyTorch's allocator: a result of the graph, which outlives the call."""

    out: ext.Result[Any]


class Launch(ListOp, name="launch", regions=1):
    """Runs a kernel: the body, parallel, inner and label of a `mlircx.kernel`. The first `inputs` operands are read, the others
    written, one for each value of the yield. An output may be the same memory as an input read at the very index written."""


class CallOp(ListOp, name="call"):
    """A library routine that writes into buffers: `callee` is "matmul", "addmm", "copy", ... The first `inputs` operands are read.

    That of "attention" is generated: it has the attributes of `mlirc.attention`, and once lowered `kernel` and `symbols` as a run."""


class Run(ListOp, name="run", regions=1):
    """A launch once its kernel is lowered: a launch still, body and attributes, of which `kernel` is the code: it names a
    function of the module that takes the slots that docs/forms.md lists, `symbols` the size symbols among them ("s0, s1").
    Where the function returns k, IndexError is raised with messages[k - 1], a list of strings.

    The host program calls the function and ignores the body, which is what the interpreter runs and people read."""


class Release(Mlirc.Operation, name="release"):
    """The end of a buffer that the program owns: an ATen call's result, or an allocation that is not returned."""

    x: ext.Operand[Any]


class Triton(Mlirc.Operation, name="triton"):
    """A kernel for a GPU, which runs refer to by its name. It stands in the module, beside the functions.

    source        Python text: imports, and `@triton.jit` functions, the last of which is named like the op
    signature     its arguments' types, "*fp32" or "i64": the run's operands, the run's symbols, and where the body has a
                  check_index, a pointer to three slots of 8 bytes, 0 before: [number of a check that failed, from 1,
                  bad index, its size]. Triton adds two pointers, which are null: scratch memory that is not used
    constants     the arguments after those, which are part of the code: {XBLOCK = 1024 : i64}
    grid          three size expressions: how many programs run. If one is 0, the kernel must not be launched
    divisible     the positions of pointers that the code takes for multiples of 16 bytes; if an argument of the graph is
                  at such a position, the launch aligns its address
    num_warps, num_stages   options of Triton's
    """

    sym_name: ir.StringAttr
    source: ir.StringAttr
    signature: Any
    constants: Any
    grid: Any
    divisible: Any
    num_warps: Any
    num_stages: Any
