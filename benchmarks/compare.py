"""What changed between two runs of `make bench`, beyond noise.

python benchmarks/compare.py before.jsonl after.jsonl [--backend mlirc]

A steady time has changed when the 95% interval of the ratio of the medians (mlirc/measurement/intervals.py) excludes 1, and they
differ by more than 2%. Two runs are two processes, at two times: `mlirc compare` alternates, and sees smaller differences.
First call and memory are measured once, so they have to differ by 10%; an error by 20%, a count by one.
"""

import json
from pathlib import Path
from typing import Any

import click

from mlirc.measurement.intervals import ratio_of_medians

SMALLEST = 0.02
SINGLE = {"first_call": 0.1, "peak_memory": 0.1, "first_memory": 0.1}
ERROR = 0.2
COUNTS = ("kernels", "aten_calls")


def read(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """(setting, backend) -> row."""
    rows = [json.loads(line) for line in file.read_text().splitlines() if line]
    return {(row["setting"], row["backend"]): row for row in rows}


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """A line for each number of a row that changed beyond noise."""
    if "failure" in before or "failure" in after:
        return (
            []
            if "failure" in before and "failure" in after
            else [f"failed: {before.get('failure', 'no')} -> {after.get('failure', 'no')}"]
        )
    found = []
    old, new = before["steady"], after["steady"]
    apart = ratio_of_medians(old["samples"], new["samples"], paired=False).excludes_one
    if apart and differs(old["median"], new["median"], SMALLEST):
        found.append(line("steady", old["median"], new["median"]))
    for name, least in SINGLE.items():
        if name in before and name in after and differs(before[name], after[name], least):
            found.append(line(name, before[name], after[name]))
    for part in ("outputs", "gradients"):
        a, b = before["error"][part], after["error"][part]
        if differs(a, b, ERROR):
            found.append(line(f"error of {part}", a, b))
    for name in COUNTS:
        if name in before and name in after and before[name] != after[name]:
            found.append(f"{name}: {before[name]} -> {after[name]}")
    return found


def differs(before: float, after: float, least: float) -> bool:
    return abs(after - before) > least * max(abs(before), abs(after))


def line(name: str, before: float, after: float) -> str:
    if before <= 0:
        return f"{name}: {before:.4g} -> {after:.4g}"
    return f"{name}: {before:.4g} -> {after:.4g} ({100 * (after / before - 1):+.1f}%)"


@click.command(help=__doc__)
@click.argument("before", type=click.Path(exists=True, path_type=Path))
@click.argument("after", type=click.Path(exists=True, path_type=Path))
@click.option("--backend", help="Only this one. A change in eager tells of the machine, not of mlirc.")
def main(before: Path, after: Path, backend: str | None) -> None:
    old, new = read(before), read(after)
    changed = 0
    for key in old | new:
        setting, name = key
        if backend and name != backend:
            continue
        if key not in old or key not in new:
            print(f"{setting} {name}: only in {before if key in old else after}")
            continue
        for text in changes(old[key], new[key]):
            print(f"{setting} {name}: {text}")
            changed += 1
    print(f"{changed} changes beyond noise in {len(old.keys() & new.keys())} rows")


if __name__ == "__main__":
    main()
