"""`make demo`: a real model in eager and compiled, side by side."""

import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table


def build_model() -> tuple[torch.nn.Module, torch.Tensor]:
    """BERT with 4 layers of 768, random weights, and a batch of 2 sequences of 128 tokens."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=4)
    return BertModel(config).eval(), torch.randint(0, config.vocab_size, (2, 128))


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def steady(calls: dict[str, Callable[[], object]], times: int = 10) -> dict[str, float]:
    """Median seconds of each, called in turn."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(times):
        for name, call in calls.items():
            taken[name].append(seconds(call))
    return {name: statistics.median(values) for name, values in taken.items()}


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    return float((result.double() - exact).norm() / exact.norm())


def main() -> None:
    import mlirc

    console = Console(width=110)
    model, tokens = build_model()
    compiled = torch.compile(model, backend="mlirc", options={"fallback": "error"})
    with torch.no_grad():
        exact = model.double()(tokens).last_hidden_state
        model.float()
        first = {"eager": seconds(lambda: model(tokens)), "mlirc": seconds(lambda: compiled(tokens))}
        calls = {"eager": lambda: model(tokens), "mlirc": lambda: compiled(tokens)}
        median = steady(calls)
        table = Table(title=f"BERT, 4 layers, 2x128, float32, {torch.get_num_threads()} threads")
        for column in ("", "first call", "next calls", "speed", "error against float64"):
            table.add_column(column, justify="right")
        for name, call in calls.items():
            speed = f"{median['eager'] / median[name]:.2f}x"
            wrong = f"{error(call().last_hidden_state, exact):.1e}"
            table.add_row(name, f"{first[name]:.2f} s", f"{1e3 * median[name]:.1f} ms", speed, wrong)
        console.print(table)
        console.print(str(mlirc.explain(model)(tokens)), markup=False, highlight=False)


if __name__ == "__main__":
    main()
