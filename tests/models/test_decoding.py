"""One token at a time with a key-value cache: right, of as few graphs as can be, and without ATen calls."""

import pytest
import torch

import mlirc
from benchmarks.decode import CACHES, DECODERS, compiled_graphs, decoder
from benchmarks.setting import compiled
from mlirc.measurement.error import CallResults, EverythingInFloat64, error_of

pytestmark = pytest.mark.thinned

GRAPHS = {"static": 1, "dynamic": 2}  # Dynamo learns with the second call that a size grows


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", DECODERS)
def test_decoding(name, dtype):
    torch._dynamo.reset()
    decoding = decoder(*DECODERS[name], dtype, small=True)
    module, before = decoding.module, compiled_graphs()
    with torch.no_grad():
        given = CallResults(decoding.decode(compiled(module, "mlirc"), decoding.prompted(), 0, 8), [])
        eager = CallResults(decoding.decode(module, decoding.prompted(), 0, 8), [])
        with EverythingInFloat64():
            exact = decoding.exact()
            wanted = CallResults(exact.decode(exact.module, exact.prompted(), 0, 8), [])
    assert compiled_graphs() - before <= GRAPHS[decoding.cache]
    assert error_of(given, wanted).within(error_of(eager, wanted), dtype)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("cache", CACHES)
def test_no_attention_is_a_library_call(cache):
    decoding = decoder("llama", cache, torch.float32, small=True)
    held = decoding.prompted()
    with torch.no_grad():
        token = decoding.tokens[:, -1:]
        data = mlirc.explain(decoding.module)(input_ids=token, past_key_values=held, use_cache=True).data
    assert not any("attention" in name for graph in data["graphs"] for name in graph["aten"])


def test_keys_and_values_with_symbols_of_their_own():
    def run(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v) + 1

    ours = torch.compile(run, backend="mlirc", options={"fallback": "error"})
    for size in (5, 9, 12):
        q, k, v = torch.randn(1, 2, 1, 16), torch.randn(1, 2, size, 16), torch.randn(1, 2, size, 16)
        torch._dynamo.mark_dynamic(k, 2)
        torch._dynamo.mark_dynamic(v, 2)
        with torch.no_grad():
            torch.testing.assert_close(ours(q, k, v), run(q, k, v))
