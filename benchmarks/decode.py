"""Decoding, one token at a time, with a key-value cache: a sequence, batch 1, under eager, Inductor and mlirc.

The floor is reading, once a token, every weight that is multiplied with, and the part of the cache that is filled:
`limit` is what the maximum of as many bytes takes, the fastest of PyTorch's ways to read memory. Of an embedding a token reads one row.
A sample is the mean of the tokens of one sequence, without its first, which may compile. The prompt is eager's work.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.models import MODELS
from benchmarks.setting import DTYPES, compiled
from mlirc.measurement.alternate import seconds, spread
from mlirc.measurement.error import CallResults, EverythingInFloat64, error_of

CACHES = ("static", "dynamic")
DECODERS = {f"{model} {cache}": (model, cache) for model in ("gpt2", "llama") for cache in CACHES}
PROMPT, TOKENS = 32, 64
READINGS = 4  # of a round


@dataclass(frozen=True)
class Decoder:
    """A causal language model in inference, a kind of cache, and the tokens [1, PROMPT + TOKENS] that it is fed."""

    module: nn.Module
    cache: str
    tokens: torch.Tensor

    def prompted(self) -> Any:
        """A cache that holds the prompt."""
        from transformers import DynamicCache, StaticCache

        config: Any = self.module.config
        made = DynamicCache(config=config)
        if self.cache == "static":
            made = StaticCache(config=config, max_cache_len=PROMPT + TOKENS)
        self.module(input_ids=self.tokens[:, :PROMPT], past_key_values=made, use_cache=True)
        return made

    def decode(self, call: Callable[..., Any], cache: Any, first: int, last: int) -> list[torch.Tensor]:
        """The logits of tokens first..last of those that follow the prompt."""
        given = [self.tokens[:, PROMPT + k : PROMPT + k + 1] for k in range(first, last)]
        return [call(input_ids=token, past_key_values=cache, use_cache=True).logits for token in given]

    def exact(self) -> "Decoder":
        return Decoder(copy.deepcopy(self.module).double(), self.cache, self.tokens)


def decoder(model: str, cache: str, dtype: torch.dtype, small: bool = False) -> Decoder:
    module: Any = MODELS[model](small).build(dtype)
    module.config.use_cache = True
    torch.manual_seed(0)
    return Decoder(module, cache, torch.randint(module.config.vocab_size, (1, PROMPT + TOKENS)))


def measure_decoding(name: str, dtype: str, backends: list[str], rounds: int, small: bool) -> list[dict[str, Any]]:
    """A row for each backend: steady seconds a token, error against float64, graphs compiled, and `limit`."""
    torch._dynamo.reset()
    model, cache = DECODERS[name]
    decoding = decoder(model, cache, DTYPES[dtype], small)
    calls = {backend: compiled(decoding.module, backend) for backend in backends}
    with torch.no_grad():
        with EverythingInFloat64():
            exact = decoding.exact()
            wanted = CallResults(exact.decode(exact.module, exact.prompted(), 0, TOKENS), [])
        graphs, errors = {}, {}
        for backend, call in calls.items():
            before = compiled_graphs()
            given = CallResults(decoding.decode(call, decoding.prompted(), 0, TOKENS), [])
            graphs[backend], errors[backend] = compiled_graphs() - before, error_of(given, wanted)
        samples, readings = sample(decoding, calls, rounds)
    rows = []
    for backend in backends:
        row: dict[str, Any] = {
            "setting": f"{name} decoding {dtype}",
            "model": model,
            "way": f"decoding, {cache} cache",
            "dtype": dtype,
        }
        row |= {"backend": backend, "steady": spread(samples[backend]), "error": asdict(errors[backend])}
        row |= {"graphs": graphs[backend], "limit": spread(readings)["median"]}
        row["accurate"] = "eager" not in errors or errors[backend].within(errors["eager"], DTYPES[dtype])
        rows.append(row)
    return rows


def sample(decoding: Decoder, calls: dict[str, Callable], rounds: int) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds a token, a sample a round, of which each second one goes backwards; and seconds to read a token's bytes."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    readings: list[float] = []
    read = reader(decoding)
    for number in range(rounds):
        readings.append(seconds(read, READINGS))
        for name in list(calls)[:: -1 if number % 2 else 1]:
            cache = decoding.prompted()
            decoding.decode(calls[name], cache, 0, 1)
            started = time.perf_counter()
            decoding.decode(calls[name], cache, 1, TOKENS)
            samples[name].append((time.perf_counter() - started) / (TOKENS - 1))
    return samples, readings


def reader(decoding: Decoder) -> Callable[[], None]:
    """Reads as many bytes as a token must."""
    bytes_ = torch.ones(bytes_read(decoding) // 4)

    def read() -> None:
        bytes_.amax()

    return read


def bytes_read(decoding: Decoder) -> int:
    """Bytes of the parameters (an embedding counts if another layer shares it), and of keys and values for half of the tokens."""
    layers = [m for m in decoding.module.modules() if not isinstance(m, nn.Embedding)]
    weights = {x: x.nbytes for layer in layers for x in layer.parameters(recurse=False)}
    prompt = Decoder(decoding.module, "dynamic", decoding.tokens).prompted()
    filled = sum(x.nbytes for layer in prompt.layers for x in (layer.keys, layer.values))
    return sum(weights.values()) + filled * (PROMPT + TOKENS // 2) // PROMPT


def compiled_graphs() -> int:
    """How many graphs Dynamo has handed to backends in this process."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]
