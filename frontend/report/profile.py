"""A profiled graph as rows: the time of each kernel and call, its share, and its floor: the least time that its bytes or operations take here."""

import statistics
from collections.abc import Iterable
from typing import Any

import torch

from mlirc.codegen.host.parts import HostRange
from mlirc.frontend.report.machine_rates import copy_rate, matmul_rate

FLOATS = ("float32", "bfloat16", "float16", "float64")


def profile_rows(ranges: Iterable[HostRange], waited: float | None = None) -> list[dict[str, Any]]:
    """Equal ops are one row, the longest first. Sizes are those of all its ops, as the last call had them. `waited` is the part of the
    calls' time in which threads had no processor (processor_wait.py).

    kind, label, lines, device, times   as HostRange has them, and how many such ops a call executes: one in a loop counts for each step
    seconds, share              the sum of the ops' median times in a call, and of that of all ops
    shortest                    the sum of the ops' shortest times
    waited                      as given, the same in all rows
    read, written, flops        numbers, of the last call; None where its sizes are not known
    floor, bound                seconds: bytes over the bandwidth of a copy as large, or operations over the rate of large matmuls
                                ("memory" or "arithmetic", whichever takes longer); None where its sizes are not known
    of_floor                    floor / seconds: 1 cannot be beaten but by keeping data in cache
    """
    rows: dict[tuple, dict[str, Any]] = {}
    for timed in ranges:
        if not timed.seconds:
            continue
        key = (timed.kind, timed.label, *timed.lines, timed.device, timed.dtype, timed.read, timed.written, timed.flops)
        row = rows.setdefault(
            key, {"kind": timed.kind, "label": timed.label, "lines": timed.lines, "device": timed.device, "times": 0}
        )
        row["times"] += timed.executions
        row["seconds"] = row.get("seconds", 0.0) + statistics.median(timed.seconds)
        row["shortest"] = row.get("shortest", 0.0) + min(timed.seconds)
        for name, done in zip(("read", "written", "flops"), timed.work, strict=True):
            so_far = row.get(name, 0)
            row[name] = None if done is None or so_far is None else so_far + done
        row["dtype"] = timed.dtype
    whole = sum(row["seconds"] for row in rows.values())
    for row in rows.values():
        row["waited"] = waited
        row["share"] = row["seconds"] / whole if whole else 0.0
        row["floor"], row["bound"] = floor_of(row)
        row["of_floor"] = row["floor"] / row["seconds"] if row["floor"] is not None and row["seconds"] else None
    return sorted(rows.values(), key=lambda row: -row["seconds"])


def floor_of(row: dict[str, Any]) -> tuple[float | None, str]:
    if None in (row["read"], row["written"], row["flops"]) or row["kind"] == "allocation":
        return None, ""
    moved, times, device = row["read"] + row["written"], row["times"], row["device"]
    memory = moved / copy_rate(moved // times, device)
    dtype = getattr(torch, row["dtype"]) if row["dtype"] in FLOATS else torch.float32
    arithmetic = row["flops"] / (1e9 * matmul_rate(dtype, device=device)) if row["flops"] else 0.0
    return (memory, "memory") if memory >= arithmetic else (arithmetic, "arithmetic")
