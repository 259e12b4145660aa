"""The README's tables, from benchmarks/results and docs/measurements.md: `make readme` writes them, `python -m benchmarks.readme --check` compares.

A table stands between `<!-- NAME -->` and `<!-- end -->`; TABLES has a function for each NAME. Of each kind of run the newest file
counts. Speeds are quotients of medians of calls that alternate in one process.
"""

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
README = Path(__file__).parents[1] / "README.md"
MEASUREMENTS = Path(__file__).parents[1] / "docs/measurements.md"
Row = dict[str, Any]

CPU_MODELS = {
    "mlp": "MLP 784-512-512-10, batch 64",
    "bert": "BERT, 4 layers, 2x128",
    "gpt2": "GPT-2, 4 layers, 2x128",
    "llama": "Llama, 4 layers, 2x128",
    "resnet": "ResNet, basic blocks, 4x224²",
    "vit": "ViT, 4 layers, 2x224²",
}
GPU_MODELS = {
    "bert": "BERT-base, 16x512",
    "gpt2": "GPT-2, 8x1024",
    "llama": "Llama, 16 layers of 2048, 4x1024",
    "resnet50": "ResNet-50, 64x224²",
    "vit": "ViT-base, 64x224²",
}


def main() -> int:
    text = README.read_text()
    made = with_tables(text)
    if "--check" in sys.argv:
        if made != text:
            print("README.md: its tables are not those of benchmarks/results; run `make readme`")
        return int(made != text)
    README.write_text(made)
    return 0


def with_tables(text: str) -> str:
    """The text with each table written anew."""

    def table(match: re.Match) -> str:
        return f"<!-- {match[1]} -->\n{TABLES[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- (.*?) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


# ---- rows


def read(name: str) -> list[Row]:
    """The rows of the newest file DATE-NAME.jsonl."""
    found = sorted(RESULTS.glob(f"????-??-??-{name}.jsonl"))
    return [json.loads(line) for line in found[-1].read_text().splitlines()]


def steady(rows: list[Row], model: str, backend: str, way: str | None = None, dtype: str | None = None) -> float:
    """Seconds of one call."""
    (row,) = (
        row
        for row in rows
        if (row["model"], row["backend"]) == (model, backend)
        and way in (None, row["way"])
        and dtype in (None, row["dtype"])
    )
    return row["steady"]["median"]


def one(rows: list[Row], **wanted: Any) -> Row:
    (row,) = (row for row in rows if all(row.get(key) == value for key, value in wanted.items()))
    return row


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return prod(values) ** (1 / len(values))


def machine(rows: list[Row]) -> str:
    facts = rows[0]["machine"]
    threads = {1: "One thread", 2: "Two threads"}.get(facts["threads"], f"{facts['threads']} threads")
    torch = facts["torch"].partition("+")[0]
    day = datetime.fromtimestamp(rows[0]["time"], UTC).date()
    return (
        f"{threads} on {facts['cores']} cores of an {facts['processor']} with {facts['vectors']}, torch {torch}, {day}"
    )


def lines(head: list[str], body: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *body])


# ---- tables


def cpu_models() -> str:
    inference, training = read("cpu-inference-float32"), read("cpu-training-float32")
    shown = {"inference": ["inductor", "openvino", "onnxruntime", "mlirc"], "training": ["inductor", "mlirc"]}
    body, times = [], {way: [] for way in shown}
    for model, title in CPU_MODELS.items():
        cells = [title]
        for way, rows in (("inference", inference), ("training", training)):
            eager, *others = (steady(rows, model, backend) for backend in ["eager", *shown[way]])
            limit = one(rows, model=model, backend="mlirc")["limit"]
            cells += [" \\| ".join(marked([f"{eager / other:.2f}" for other in others])), f"{eager / limit:.2f}"]
            times[way].append(others)
        first = {b: one(inference, model=model, backend=b) for b in ("aot_eager", *shown["inference"])}
        cells.append(" \\| ".join(marked([f"{row['first_call']:.1f}" for row in first.values()])))
        memory = [f"{first[b]['peak_memory'] / 1e6:.0f}" for b in shown["inference"]]
        body.append([*cells, " \\| ".join(marked(memory))])
    means = [[mean([row[k] / row[-1] for row in times[way]]) for k in range(len(shown[way]) - 1)] for way in shown]
    against = [" \\| ".join(f"**{value:.2f}**" for value in values) for values in means]
    body.append(["**mlirc** against each of the others", against[0], "", against[1], "", "", ""])
    head = [
        "model",
        "inference, float32",
        "limit",
        "training step, float32",
        "limit",
        "first call, s",
        "peak memory, MB",
    ]
    top = f"""{machine(inference)}: times of eager's speed. Inference, and peak memory, under Inductor \\| OpenVINO \\| ONNX Runtime \\|
**mlirc**; a training step under Inductor \\| **mlirc**; first calls under `aot_eager`, which only traces, and then the four.

"""
    return top + lines(head, body)


def marked(cells: list[str]) -> list[str]:
    """With the last one, ours, in bold."""
    return [*cells[:-1], f"**{cells[-1]}**"]


Speed = Callable[[str, str, int, str], float]


def speeds_over_cores(rows: list[Row]) -> Speed:
    """A function of part, model, threads and backend: times of eager's speed."""
    times = {(r["part"], r["name"], r["threads"], r["backend"]): r["steady"]["median"] for r in rows}

    def speed(part: str, model: str, threads: int, backend: str) -> float:
        return times[part, model, threads, "eager"] / times[part, model, threads, backend]

    return speed


def cpu_cores() -> str:
    """Over 16 cores: times of eager's speed."""
    rows = read("cpu-cores")
    speed = speeds_over_cores(rows)
    cases = [("inference", 16, "inductor"), ("latency", 16, "inductor"), ("training", 4, ""), ("training", 16, "")]
    body, means = [], []
    for model, title in CPU_MODELS.items():
        found = [
            (theirs and speed(part, model, n, theirs), speed(part, model, n, "mlirc")) for part, n, theirs in cases
        ]
        body.append([title] + [f"{x:.2f} \\| **{y:.2f}**" if x else f"**{y:.2f}**" for x, y in found])
        means.append([y for _, y in found])
    body.append(["geometric mean", *(f"**{mean(list(column)):.2f}**" for column in zip(*means, strict=True))])
    head = ["times of eager's speed", "inference, 16 threads: Inductor \\| **mlirc**", "batch 1, 16 threads"]
    top = machine(rows).partition(" on ")[2]
    return f"On {top}.\n\n" + lines([*head, "training, 4 threads: **mlirc**", "training, 16 threads"], body)


def cpu_many_cores() -> str:
    """Over 32 and 64 cores: times of eager's speed."""
    rows = read("cpu-64-cores")
    speed = speeds_over_cores(rows)
    cases = [(part, n) for part in ("inference", "latency", "training") for n in (32, 64)]
    table = [[speed(part, model, n, "mlirc") for part, n in cases] for model in CPU_MODELS]
    body = [[title, *(f"{x:.2f}" for x in row)] for title, row in zip(CPU_MODELS.values(), table, strict=True)]
    body.append(["geometric mean", *(f"**{mean(list(column)):.2f}**" for column in zip(*table, strict=True))])
    head = [f"{title}, {n} threads" for title in ("inference", "batch 1", "training") for n in (32, 64)]
    top = machine(rows).partition(" on ")[2]
    return f"On {top}.\n\n" + lines(["times of eager's speed", *head], body)


def cpu_more() -> str:
    """Against Inductor: small batches, decoding, half types, one thread."""
    batch, decoding = read("cpu-avx2-batch-1-float32"), read("cpu-avx2-decoding")
    half, thread = read("cpu-avx2-inference-bfloat16"), read("cpu-avx2-one-thread-inference-float32")
    tiles = read("cpu-amx-inference-bfloat16")
    runs = {
        "batch 1, float32": (batch, None, None),
        "one thread, float32": (thread, None, None),
        "bfloat16, AVX2": (half, None, None),
        "bfloat16, AMX": (tiles, None, None),
        "a token, static cache, float32": (decoding, "decoding, static cache", "float32"),
        "a token, static cache, bfloat16": (decoding, "decoding, static cache", "bfloat16"),
        "a token, dynamic cache, float32": (decoding, "decoding, dynamic cache", "float32"),
        "a token, dynamic cache, bfloat16": (decoding, "decoding, dynamic cache", "bfloat16"),
    }
    body = []
    for title, (rows, way, dtype) in runs.items():
        cells = []
        for model in CPU_MODELS:
            try:
                theirs, ours = (steady(rows, model, backend, way, dtype) for backend in ("inductor", "mlirc"))
                cells.append(f"{theirs / ours:.2f}")
            except ValueError:  # no such run
                cells.append("")
        if any(cells):
            body.append([title, *cells])
    return lines(
        ["times of Inductor's speed", *(title.partition(" ")[0].strip(",") for title in CPU_MODELS.values())], body
    )


def gpu_models() -> str:
    rows, firsts = read("gpu-models-bfloat16"), read("gpu-latency-first-calls")
    body, quotients, shortest = [], {"inference": [], "training": []}, {"inference": [], "training": []}
    for model, title in GPU_MODELS.items():
        cells = [title]
        for way in quotients:
            found = {row["backend"]: row for row in rows if row["section"] == way and row["what"].split()[0] == model}
            eager, theirs, ours = found["eager"], found["inductor mask-free"], found["mlirc"]
            best = best_inductor(way, model)
            quotients[way].append(theirs["ms"] / ours["ms"])
            shortest[way].append(best / ours["ms"])
            limit = ours["ms"] * ours["of_limit"]
            cells += [f"{eager['ms']:.1f}", f"{theirs['ms']:.1f} ({best:.1f})", f"**{ours['ms']:.1f}**", f"{limit:.1f}"]
        cells.append(f"{theirs['peak_mb']:.0f} \\| **{ours['peak_mb']:.0f}**")
        for way in quotients:
            pair = [
                one(firsts, section="first", what=f"{model} {way}", backend=b)["first_s"]
                for b in ("inductor mask-free", "mlirc")
            ]
            cells.append(f"{pair[0]:.1f} \\| **{pair[1]:.1f}**")
        body.append(cells)
    for title, values in (("mean against Inductor's best time", shortest), ("mean, same run", quotients)):
        cells = [title]
        for way in quotients:
            cells += ["", "", f"**{mean(values[way]):.2f}**", ""]
        body.append([*cells, "", "", ""])
    head = ["model, batch"]
    head += [
        x for way in ("inference", "training") for x in (f"{way}: eager", "Inductor (its best)", "**mlirc**", "limit")
    ]
    head += ["peak memory, training, MB", "first call, s: inference", "training"]
    facts = rows[0]
    top = f"{facts['gpu']}, torch {facts['torch'].partition('+')[0]}, {facts['date']}, bfloat16, milliseconds.\n\n"
    return top + lines(head, body)


def best_inductor(way: str, model: str) -> float:
    """Milliseconds: the shortest that Inductor took in any run that was kept. A slow host lengthens single runs."""
    times = []
    for file in RESULTS.glob("*-gpu-models-bfloat16.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            if row.get("section") == way and row["what"].split()[0] == model and row["backend"].startswith("inductor"):
                times.append(row["ms"])
    return min(times)


def gpu_latency() -> str:
    rows = [row for row in read("gpu-latency-first-calls") if row["section"] == "latency"]
    body = []
    for model, title in GPU_MODELS.items():
        found = {row["backend"]: row["ms"] for row in rows if row["what"].split()[0] == model}
        pairs = [
            f"{found[f'inductor mask-free{mode}']:.2f} \\| **{found[f'mlirc{mode}']:.2f}**"
            for mode in ("", " reduce-overhead")
        ]
        body.append([title.partition(",")[0], f"{found['eager']:.2f}", *pairs])
    return lines(["batch 1, ms", "eager", "Inductor \\| **mlirc**", "the same, `reduce-overhead`"], body)


# rules of docs/measurements.md -> the measure that a reader of the README sees off and on
FIRST_CALLS = {
    "LLVM in the background": "LLVM on threads beside lowering",
    "equal parts compiled once": "equal functions of kernels compiled once",
    "convolutions share loops": "convolutions share their loops",
    "traces on disk": "traces in the disk cache",
    "parameters' huge pages wait 2 s": "parameters move into huge pages 2 s later",
    "compilers' pages given back": "pages of the compilers' libraries given back",
}


def first_calls() -> str:
    """The first case of each rule in FIRST_CALLS."""
    text = MEASUREMENTS.read_text().partition("## What rules bought: first calls\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    body = []
    for rule, title in FIRST_CALLS.items():
        case, off, on = next(row[1:] for row in rows if row[0] == rule)
        body.append([title, case, off, f"**{on}**"])
    return lines(["measure", "what is measured", "off", "on"], body)


TABLES: dict[str, Callable[[], str]] = {
    "cpu models": cpu_models,
    "cpu more": cpu_more,
    "cpu cores": cpu_cores,
    "cpu many cores": cpu_many_cores,
    "first calls": first_calls,
    "gpu models": gpu_models,
    "gpu latency": gpu_latency,
}


if __name__ == "__main__":
    sys.exit(main())
