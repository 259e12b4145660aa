"""A copy that a graph returns is memory of its own, which begins with it and holds nothing else: its offset and its storage are eager's."""

import itertools

import pytest
import torch

PARTS = {
    "a row": lambda x: x.select(0, 1),
    "rows": lambda x: x[1:],
    "a part by unbind": lambda x: x.unbind(0)[1],
    "a half by chunk": lambda x: x.chunk(2)[1],
    "the last of a dimension": lambda x: x.t()[-1:].t().contiguous()[1:],
}
COPIES = {
    "clone": torch.clone,
    "to": lambda x: x.to(x.dtype, copy=True),
    "repeat": lambda x: x.repeat(*(1 for _ in x.shape)),
    "cat": lambda x: torch.cat([x]),
}
SOURCES = {"an input": lambda x: x, "computed": lambda x: x.sin(), "of a library": lambda x: x.sort(1)[0]}
RESULTS = {
    "alone": lambda v, x: (v,),
    "with a part": lambda v, x: (v, v[1:]),
    "two parts": lambda v, x: (v[:1], v[1:]),
    "other strides": lambda v, x: (v, v.as_strided((1,), (2,))),
    "with its source": lambda v, x: (v, x),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("results", RESULTS)
@pytest.mark.parametrize("source", SOURCES)
def test_memory(source, results):
    def function(x):
        x = SOURCES[source](x)
        return [RESULTS[results](copy(part(x)), x) for part, copy in itertools.product(PARTS.values(), COPIES.values())]

    x = torch.randn(4, 6)
    made = torch.compile(function, backend="mlirc", options={"fallback": "error"})(x)
    for name, ours, eagers in zip(itertools.product(PARTS, COPIES), made, function(x), strict=True):
        for k, (a, b) in enumerate(zip(ours, eagers, strict=True)):
            assert layout(a) == layout(b), f"{name}, result {k}"
            torch.testing.assert_close(a, b)


def layout(x: torch.Tensor) -> tuple:
    return x.shape, x.stride(), x.storage_offset(), x.untyped_storage().nbytes()
