"""ATen calls on a GPU that give something else than their meta functions promise, and dtypes without a kernel: eager's answer, or its exception."""

import collections

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from mlirc.frontend import statistics

NAMES = (
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    "trace",
    "nn.functional.max_pool2d",
)
STEPS = collections.defaultdict(lambda: 1, {"nn.functional.max_pool2d": 9})
CASES = [
    pytest.param(op, dtype, dynamic, id=f"{op.name}-{str(dtype).removeprefix('torch.')}-{dynamic}")
    for op in op_db
    if op.name in NAMES
    for dtype in (torch.float32, torch.float16, torch.bfloat16)
    for dynamic in (False, True)
    if dtype in op.supported_dtypes("cuda")
]


@pytest.mark.parametrize(("op", "dtype", "dynamic"), CASES)
def test_samples(op, dtype, dynamic):
    trains = op.supports_autograd and op.name.startswith(("trace", "nn."))
    wrong = []
    for k, sample in enumerate(
        list(op.sample_inputs("cuda", dtype, requires_grad=trains))[: STEPS[op.name] * 8 : STEPS[op.name]]
    ):
        torch._dynamo.reset()

        def run(fn, sample=sample):
            inputs = torch.utils._pytree.tree_map_only(
                torch.Tensor, lambda x: x.detach().clone().requires_grad_(x.requires_grad), (sample.input, *sample.args)
            )
            results = torch.utils._pytree.tree_leaves(fn(*inputs, **sample.kwargs))
            loss = [x.sum() for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
            if loss:
                sum(loss).backward()
            leaves = [x for x in torch.utils._pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor)]
            return [x.detach() for x in results] + [x.grad for x in leaves if x.grad is not None]

        try:
            found, expected = (
                run(torch.compile(op.op, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})),
                run(op.op),
            )
            torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
        except Exception as error:
            if "Cannot call numel() on tensor with symbolic sizes" in str(error):
                with pytest.raises(Exception, match="Cannot call numel"):
                    run(torch.compile(op.op, backend="aot_eager", dynamic=dynamic))
                continue
            wrong.append(f"sample {k}: {type(error).__name__}: {str(error)[:300]}")
    assert not wrong, "\n".join(wrong)


REFUSED = {
    "bits of floats": lambda x: torch.bitwise_and(x.half(), 1.5),
    "shifted floats": lambda x: torch.bitwise_left_shift(x.half(), x.half()),
    "bits of bfloat16": lambda x: torch.bitwise_not(x.bfloat16()),
    "floats divided": lambda x: torch.gcd(x, x),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_a_dtype_that_eager_has_no_kernel_for_raises_as_there(name, dynamic):
    x = torch.ones(4, 5, device="cuda")
    with pytest.raises(Exception) as expected:
        REFUSED[name](x)
    statistics.reset()
    torch._dynamo.reset()
    with pytest.raises(Exception) as found:
        torch.compile(REFUSED[name], backend="mlirc", dynamic=dynamic, options={"fallback": "error"})(x)
    inner = getattr(found.value, "inner_exception", None) or found.value
    assert type(inner).__name__ in (type(expected.value).__name__, "TorchRuntimeError")
    assert "not implemented" in str(inner)
