"""`generate()` of transformers with a compiled forward: eager's tokens, and nothing compiled anew after the first tokens."""

import pytest
import torch

from mlirc.frontend import statistics

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}


def model(name, **sizes):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(max_position_embeddings=64, **SIZES, **sizes)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "sizes", "cache", "graphs"),
    [
        ("Llama", {}, "static", [1, 2]),
        ("Llama", {}, None, [1, 2, 3]),  # a cache that grows: Dynamo makes its size a symbol at the third token
        # the window is full at the third token, where transformers takes another branch
        ("Mistral", {"sliding_window": 8, "num_key_value_heads": 2}, "static", [1, 2, 3]),
    ],
)
@pytest.mark.parametrize("sample", [False, True])
def test_eagers_tokens_and_no_more_graphs(name, sizes, cache, graphs, sample):
    prompt = torch.randint(0, 64, (2, 7), generator=torch.Generator().manual_seed(0))
    how = {"max_new_tokens": 14, "do_sample": sample, "pad_token_id": 0, "cache_implementation": cache}
    expected_model, compiled_model, after = model(name, **sizes), model(name, **sizes), []
    torch.manual_seed(1)
    expected = expected_model.generate(prompt, **how)

    class Noted(transformers.StoppingCriteria):
        def __call__(self, tokens, scores, **_):
            after.append(len(statistics.graphs))
            return torch.zeros(len(tokens), dtype=torch.bool)

    statistics.reset()
    compiled_model.forward = torch.compile(compiled_model.forward, backend="mlirc", options={"fallback": "error"})
    torch.manual_seed(1)
    found = compiled_model.generate(prompt, stopping_criteria=[Noted()], **how)
    assert torch.equal(found, expected)
    assert after == graphs + graphs[-1:] * (14 - len(graphs)) and not statistics.fallbacks
