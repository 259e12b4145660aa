"""The operator that takes the state of a GPU's generator, in a host program: cuda_random.py's function."""

from collections.abc import Sequence
from typing import Any

from mlirc.codegen.cuda_launch import enter
from mlirc.codegen.cuda_random import NAME, SIGNATURE
from mlirc.codegen.host_frame import Frame
from mlirc.codegen.host_parts import Launched
from mlirc.codegen.native_aten import KEPT, NativeCall, NotNative
from mlirc.dialects import aten_arguments
from mlirc.dialects.dialect import attribute_value
from mlirc.dialects.random_state import OPERATOR


def random_call(frame: Frame, op: Any, function: Any, operands: Sequence[Any]) -> NativeCall:
    """The call of `mlirc::random_state`. Writes nothing yet; raises NotNative for any other operator."""
    if attribute_value(op.attributes["op"]) != OPERATOR:
        raise NotNative("another operator")
    (index, increment), _ = aten_arguments.decode(attribute_value(op.attributes["args"]), (), {}, ())

    def write(places: list[str]) -> str:
        enter(frame, index)
        launched = Launched(NAME, index)
        frame.gpus.launched[launched.link] = launched
        record = frame.text.link(launched.link)
        return frame.text.call_link(NAME, SIGNATURE, record, str(index), str(increment), f"%stream_{index}", places[0])

    return NativeCall([KEPT], write)
