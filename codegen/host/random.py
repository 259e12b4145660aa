"""The host program's call that takes the state of a GPU's random generator (cuda/random.py)."""

from collections.abc import Sequence
from typing import Any

from mlirc.codegen.aten.shim_call import WANTED, NativeCall, NotNative
from mlirc.codegen.cuda.launch import enter
from mlirc.codegen.cuda.random import NAME, SIGNATURE
from mlirc.codegen.frame.frame import Frame
from mlirc.codegen.frame.gpu_calls import Launched
from mlirc.dialects.core import aten_arguments
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.random_state import OPERATOR


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

    return NativeCall([WANTED], write)
