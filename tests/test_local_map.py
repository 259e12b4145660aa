"""What Dynamo no longer loads for a question whose answer is known (frontend/local_map.py)."""

import subprocess
import sys

SCRIPT = """
import sys
import torch
from torch._dynamo.variables import higher_order_ops

MODULE = "torch.distributed.tensor.experimental._func_map"

def helper(x):
    return x * 2

f = torch.compile(lambda x: helper(x).relu() + 1, backend="mlirc")
assert torch.equal(f(torch.ones(3)), torch.full((3,), 3.0))
assert MODULE not in sys.modules
import importlib
wrapped = importlib.import_module(MODULE)._local_map_wrapped
variable = getattr(higher_order_ops, "LocalMapWrappedHigherOrderVariable", None)
if variable is not None:
    with variable.enable():
        assert variable.should_wrap_in_hop(wrapped) and not variable.should_wrap_in_hop(helper)
    assert not variable.should_wrap_in_hop(wrapped)
print("right")
"""


def test_dynamo_asks_only_where_somebody_could_have_the_function():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stdout == "right\n", done.stderr
