"""Writes the parts that all ops of a host program share: values, owned handles, failures, calls.

The program keeps each handle that it owns in `%frame`, from the moment the handle exists. A failure jumps to one block, which frees all
of them. A call that may fail has a *site*: the op and its source line, for the error's message.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mlirc.codegen.abi import shim
from mlirc.codegen.frame.failures import FailureSite
from mlirc.codegen.frame.gpus import Gpus
from mlirc.codegen.llvm.ir_text import LlvmFunctionText, SizeText
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.symbols import Int, known_positive
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.source_lines import source_lines


def location_text(location: ir.Location) -> str:
    """The user's source line, "model.py:12"; "" where it is not known."""
    return next(iter(source_lines(location)), "")


@dataclass
class HostRoot:
    """A block of memory; buffers are parts of it.

    kind      "argument"; "number": an argument that is a Python number; "arena": a slot of the arena; "owned": by the frame
    handle    its tensor; none for a number and a slot
    address   of the first element; empty until somebody needs it
    """

    kind: str
    handle: str = ""
    address: str = ""
    position: int = -1  # of an argument
    frame: str = ""  # the place in the frame of an owned one, or of an input that the program consumes


@dataclass
class HostBuffer:
    """A tensor value in the memory of its root, from element `offset` on.

    whole  it is all of the root's tensor, with that one's sizes and strides: the root's handle is its handle
    blob   a handle on its memory alone, for library routines, once `Frame.memory` has made one
    """

    info: TensorInfo
    root: HostRoot
    offset: Int = 0
    whole: bool = True
    blob: str = ""


@dataclass
class Number:
    """An i64 (letter "i") or a double ("f"), and where in memory it is once somebody needs that."""

    letter: str
    value: str
    address: str = ""

    @property
    def type(self) -> str:
        return "double" if self.letter == "f" else "i64"


class Frame:
    """Writes a host program's calls. `op` and `location` say what is being written; `exit` where a failure goes.

    native     the LLVM types of our native functions that it may call, by name
    consume    the program empties the list of inputs, and frees each tensor of it after its last use
    """

    def __init__(self, native: Mapping[str, str], consume: bool, gpus: Gpus):
        self.native, self.consume, self.gpus = native, consume, gpus
        self.text = LlvmFunctionText()
        self.sizes = SizeText(self.text)
        self.values: dict[ir.Value, HostBuffer | Number] = {}
        self.sites: list[FailureSite] = []
        self.op, self.location = "the inputs", ""
        self.exit = "refused"
        self.frame_size = 0
        self.tail: list[str] = []
        self._site = -1  # the number that %site holds at this place of the text; -1: not known
        self.arenas = {  # device -> address of the arena of the function or region that is being written
            "cpu": "%memory",
            **{f"cuda:{k}": f"%memory_{k}" for k in gpus.numbers},
        }

    def beside(self) -> "Frame":
        """The frame of another function of the module. A failure there goes to that function's block `failed`."""
        made = Frame(self.native, False, self.gpus)
        made.text, made.sites, made.exit = self.text.beside(), self.sites, "failed"
        made.sizes = SizeText(made.text)
        return made

    def finish_text(self) -> None:
        """Ends the function's text: adds the blocks that were written out of line, and the frame, zeroed, at its entry."""
        self.text.lines += self.tail
        self.text.places.append(f"  %frame = alloca [{max(self.frame_size, 1)} x ptr]")
        self.text.places.append(
            f"  call void @llvm.memset.p0.i64(ptr %frame, i8 0, i64 {8 * self.frame_size}, i1 false)"
        )
        self.text.declared["llvm.memset.p0.i64"] = "void (ptr, i8, i64, i1)"

    def forget_site(self) -> None:
        """Called after a call of a function that may have written its own site to %site."""
        self._site = -1

    @contextmanager
    def scope(self) -> Iterator[None]:
        """For text that may run any number of times: later text uses no value of it, and its handles are freed at its end."""
        sizes, first = self.sizes, self.frame_size
        bound, known, self._site = dict(sizes.bound), dict(sizes.known), -1
        self.gpus.forget_current()
        yield
        for place in range(first, self.frame_size):
            self.runtime("drop", self.at("%frame", place))
        sizes.bound, sizes.known, self._site = bound, known, -1
        self.gpus.forget_current()

    @contextmanager
    def out_of_line(self) -> Iterator[None]:
        """Puts the text that is written inside at the end of the function. That text may use earlier values; later text may not use its own."""
        before, self.text.lines, site = self.text.lines, [], self._site
        self._site = -1
        yield
        self.tail += self.text.lines
        self.text.lines, self._site = before, site

    # ---- calls and failures

    def at_site(self) -> int:
        """Writes the site of the current op to %site, if another is there; returns its number."""
        site = FailureSite(self.op, self.location)
        if self._site < 0 or self.sites[self._site] != site:
            self._site = self.new_sites([site])
            self.text.line(f"store i64 {self._site}, ptr %site")
        return self._site

    def new_sites(self, sites: list[FailureSite]) -> int:
        """Adds sites, and returns the number of the first. The caller writes `%site`."""
        self.sites += sites
        self._site = -1
        return len(self.sites) - len(sites)

    def branch(self, bad: str, to: str) -> None:
        label = self.text.fresh("next")
        self.text.line(f"br i1 {bad}, label %{to}, label %{label}")
        self.text.block(label)

    def check(self, status: str) -> None:
        """Goes on where the i32 `status` is 0."""
        self.branch(self.text.value(f"icmp ne i32 {status}, 0"), self.exit)

    def runtime(self, name: str, *args: str) -> str:
        """A call of a native function of ours."""
        return self.text.call_link(name, self.native[name], *args)

    def python_object(self, position: int) -> str:
        """A borrowed reference to the Python object at that position (runtime/python_side.py)."""
        return self.text.value(self.text.call_text("PyTuple_GetItem", "ptr (ptr, i64)", "%self", str(position)))

    def shim(self, name: str, *args: str) -> None:
        """A call of PyTorch's C shim."""
        self.at_site()
        self.check(self.text.call(name, shim.SIGNATURES[name], *args))

    def load(self, type_: str, at: str, hint: str = "v") -> str:
        return self.text.value(f"load {type_}, ptr {at}", hint)

    def at(self, base: str, index: int) -> str:
        """The address of slot `index` of an array of slots."""
        return self.text.value(f"getelementptr i64, ptr {base}, i64 {index}", "at") if index else base

    def new_handle(self) -> str:
        """A new place in the frame, empty."""
        self.frame_size += 1
        return self.at("%frame", self.frame_size - 1)

    # ---- buffers

    def owned(self, info: TensorInfo, place: str) -> HostBuffer:
        """The buffer of the tensor whose handle was put at `place` of the frame."""
        return HostBuffer(info, HostRoot("owned", self.load("ptr", place, "handle"), frame=place))

    def address(self, x: HostBuffer | Number) -> str:
        """The address of the first element; a number has one too."""
        if isinstance(x, Number):
            if not x.address:
                x.address = self.text.place("i64", "number")
                self.text.line(f"store {x.type} {x.value}, ptr {x.address}")
            return x.address
        if not x.root.address:
            self.shim("aoti_torch_get_data_ptr", x.root.handle, "%scratch")
            x.root.address = self.load("ptr", "%scratch", "address")
        if isinstance(x.offset, int) and x.offset == 0:
            return x.root.address
        bytes_ = self.sizes.of(x.offset * x.info.dtype.itemsize)
        return self.text.value(f"getelementptr i8, ptr {x.root.address}, i64 {bytes_}", "address")

    def layout(self, info: TensorInfo) -> tuple[str, ...]:
        """rank, sizes, strides as the shim takes them."""
        return str(info.rank), self.sizes.array(info.shape), self.sizes.array(info.stride)

    def kind(self, info: TensorInfo) -> tuple[str, ...]:
        """dtype, device type, device index as the shim takes them."""
        return str(shim.dtype_code(info.dtype)), *map(str, shim.device_codes(info.device))

    def memory(self, x: HostBuffer) -> str:
        """The handle of a tensor on the buffer's memory, which does not keep that memory alive."""
        if not x.blob:
            place = self.new_handle()
            arguments = (self._address_on_device(x), *self.layout(x.info), "0", *self.kind(x.info))
            self.shim("aoti_torch_create_tensor_from_blob", *arguments, place)
            x.blob = self.load("ptr", place, "blob")
        return x.blob

    def _address_on_device(self, x: HostBuffer) -> str:
        """The address of the first element, null of an empty tensor on a GPU: what lies behind an empty arena is nobody's, and PyTorch
        asks the driver whose an address is."""
        if x.info.device == "cpu" or known_positive(x.info.numel):
            return self.address(x)
        elements = self.sizes.of(x.info.numel)
        empty = self.text.value(f"icmp eq i64 {elements}, 0", "empty")
        return self.text.value(f"select i1 {empty}, ptr null, ptr {self.address(x)}", "address")

    def plain(self, x: HostBuffer | Number) -> str:
        """A handle for a library routine, which keeps nothing of it."""
        if isinstance(x, Number):
            raise ValueError(f"{self.op} at {self.location or '?'} takes tensors, not a number")
        return x.root.handle if x.whole and x.root.kind in ("argument", "owned") else self.memory(x)

    def of_number(self, x: HostBuffer) -> str:
        """The place in the frame of a new tensor that holds a number, in the buffer's layout."""
        place = self.new_handle()
        self.shim("aoti_torch_scalar_to_tensor_float64", self.load("double", x.root.address), place)
        if not x.info.rank:
            return place
        viewed = self.new_handle()
        handle = self.load("ptr", place)
        self.shim("aoti_torch__reinterpret_tensor", handle, *self.layout(x.info), self.sizes.of(x.offset), viewed)
        return viewed

    def part(self, x: HostBuffer) -> str:
        """The place in the frame of a new tensor: part of an argument or an owned one, whose storage it shares."""
        place = self.new_handle()
        self.shim("aoti_torch__reinterpret_tensor", x.root.handle, *self.layout(x.info), self.sizes.of(x.offset), place)
        return place
