"""A cost model of fusion, learned from the ledger's measured gains: `python examples/learned_fusion.py LEDGER.jsonl ...`"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlirc.passes import Candidate, KernelFusion, register

CACHE = 512 << 10  # bytes: a quarter of an L2 cache, which other data shares
NAMES = ("near", "far", "op", "kernel")


@register
@dataclass(frozen=True)
class LearnedFusion:
    """Merge the pair of the largest predicted gain, as long as one gains. It stands in place of the greedy passes.

    before:  %1 = kernel "exp"(%x)    %2 = kernel "neg"(%1)
    after:   %2 = kernel "exp_neg"(%x)

    PREDICTED LOSS   merging costs as many nanoseconds, by the model
    The options are the model: nanoseconds of a byte that is moved less, of the first 512 KiB (near) and of others (far),
    of an operation that is computed less, and of a kernel less.
    """

    name = "learned-fusion"
    takes = "kernel"
    near: float = 0.0067
    far: float = 0.064
    op: float = 0.0
    kernel: float = 0.0

    def run(self, function: Any, ledger: Any) -> None:
        fusion = KernelFusion(function, ledger, self.name)
        while ways := [(self.gain(c), -k, c) for k, c in enumerate(fusion.candidates()) if may_merge(c)]:
            gain, _, best = max(ways)
            if gain <= 0 or not fusion.merge(best):
                break
        for gain, _, pair in ways:
            fusion.refuse(pair, "PREDICTED LOSS", nanoseconds=round(-gain))
        fusion.write_back()

    def gain(self, pair: Candidate) -> float:
        saved = features(pair.bytes_saved or 0, -(pair.recomputed or 0), 1)
        return float(np.dot(saved, (self.near, self.far, self.op, self.kernel)))


def may_merge(pair: Candidate) -> bool:
    return pair.kind == "" or (pair.kind == "cost" and pair.rule != "LIMITS")


def features(bytes_saved: float, ops: float, kernels: float) -> list[float]:
    near = float(np.clip(bytes_saved, -CACHE, CACHE))
    return [near, bytes_saved - near, ops, kernels]


def measured(file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A ledger's measured fusions: what the whole graph saved, the gains in CPU time, and the ledger's own estimates."""
    records = [json.loads(line) for line in file.read_text().splitlines()][1:]
    found = [r | r["measured"] for r in records if "cpu_gain" in (r["measured"] or {})]
    rows = [features(*(r["saved"][name] for name in ("bytes", "ops", "kernels"))) for r in found]
    return np.array(rows), np.array([r["cpu_gain"] for r in found]), np.array([r["estimated_gain"] for r in found])


def fit(data: Iterable[tuple[np.ndarray, ...]], ridge: float = 1e-3) -> np.ndarray:
    """Ridge regression through 0, with no coefficient below 0. Graphs weigh the same, whatever their gains are."""
    weighted = [(rows / np.abs(gains).mean(), gains / np.abs(gains).mean()) for rows, gains, *_ in data]
    rows, gains = (np.concatenate(parts) for parts in zip(*weighted, strict=True))
    used, model = np.ones(rows.shape[1], bool), np.zeros(rows.shape[1])
    while used.any():
        x = rows[:, used] / (scale := np.sqrt((rows[:, used] ** 2).mean(0)) + 1e-12)
        model[used] = np.linalg.solve(x.T @ x + ridge * len(x) * np.eye(used.sum()), x.T @ gains) / scale
        if (model >= 0).all():
            break
        used[model.argmin()], model = False, np.zeros(len(model))
    return model


def main(files: Sequence[str]) -> dict[str, float]:
    """The model of all files. Printed: of each file, the error of a model that was fitted on the others."""
    data = {file: measured(Path(file)) for file in files}
    for file, (rows, gains, nominal) in data.items():
        model = fit(found for other, found in data.items() if other != file or len(files) == 1)
        errors = (np.abs(guess - gains).mean() for guess in (rows @ model, nominal, 0 * gains))
        told = "mean error, ns: of a model of the others {:.0f}, of nominal rates {:.0f}, of no gain {:.0f}"
        print(f"{file}: {len(gains)} fusions;", told.format(*errors))
    return dict(zip(NAMES, fit(data.values()).tolist(), strict=True))


if __name__ == "__main__":
    print(main(sys.argv[1:]))
