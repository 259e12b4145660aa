"""Random PyTorch programs, compiled and compared with eager.

python -m tests.fuzz --programs 1000 --workers 2          programs of the seeds 0 to 999
python -m tests.fuzz --minutes 5 --seed 7000 --out found  as many as five minutes allow, from seed 7000 on
python -m tests.fuzz --one 7042                           one program: its text, its verdict
python -m tests.fuzz --file found/7042.py                 the verdict on a text

A bug is printed as a program that tests/fuzz/found takes as a test. The exit status is 1 if there was one.
"""

import argparse
import itertools
import os
import sys
import time
from collections import Counter
from pathlib import Path

from tests.fuzz import workers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, help="how many")
    parser.add_argument("--minutes", type=float, help="how long")
    parser.add_argument("--seed", type=int, default=0, help="the first program's")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kinds", default="", help="words, separated by commas, that names of kinds have in them")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds for each bug; 0 for not at all")
    parser.add_argument("--out", type=Path, help="a folder for what is found")
    parser.add_argument(
        "--freed", action="store_true", help="a write to memory of Python's that was freed is a bug, too"
    )
    parser.add_argument("--one", type=int, help="show the program of one seed")
    parser.add_argument("--file", type=Path, help="judge a program's text")
    options = parser.parse_args()
    if options.one is not None or options.file is not None:
        return _single(options)
    if options.programs is None and options.minutes is None:
        options.minutes = 5.0
    started = time.monotonic()
    end = started + (60 * options.minutes if options.minutes else 1e9)
    last = None if options.programs is None else options.seed + options.programs
    seeds = iter(range(options.seed, last)) if last is not None else itertools.count(options.seed)
    arguments = ["--device", options.device, "--kinds", options.kinds, "--shrink", str(options.shrink)]
    arguments += ["--freed"] if options.freed else []
    results: Counter = Counter()
    findings: list[workers.Finding] = []
    pool = workers.Pool(seeds, end, arguments)
    for seed, outcome in pool.outcomes(options.workers):
        if isinstance(outcome, workers.Finding):
            results["bugs"] += 1
            findings.append(outcome)
            _show(outcome, options.out)
        else:
            results[outcome] += 1
            if " of " in outcome or outcome == "invalid":
                print(f"# seed {seed}: {outcome}", flush=True)
        if results.total() % 500 == 0:
            print(f"[{time.monotonic() - started:.0f} s, seed {seed}] {workers.counts(results)}", flush=True)
    seconds = time.monotonic() - started
    print(
        f"{results.total()} programs in {seconds:.0f} s: {workers.counts(results)}; {pool.hits} graphs from the cache"
    )
    for signature, count in Counter(f.signature for f in findings).most_common(20):
        print(f"{count:5d}  {signature}")
    return 1 if findings else 0


def _show(finding: workers.Finding, out: Path | None) -> None:
    title = f"# seed {finding.seed}: {finding.signature}\n" + "".join(f"# {line}\n" for line in finding.differences)
    print(f"\n{title}{finding.text}\n", flush=True)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{finding.seed}.py").write_text(f"{title}{finding.text}\n")
        if finding.original:
            (out / f"{finding.seed}_original.txt").write_text(finding.original)


def _single(options: argparse.Namespace) -> int:
    os.environ.setdefault("MLIRC_CACHE_DIR", "off")
    os.environ.setdefault("MLIRC_VERIFY", "stages")
    import torch

    from tests.fuzz import tensors
    from tests.fuzz.judge import judge
    from tests.fuzz.program import random_program

    torch.set_num_threads(1)
    tensors.use_device(options.device)
    text = options.file.read_text() if options.file else random_program(options.one, options.kinds)
    print(text)
    verdict = judge(text)
    print(verdict.kind)
    for difference in verdict.differences:
        print(f"  {difference.observation}{difference.path}: {difference.kind}: {difference.text}")
    return int(verdict.kind == "bug")


if __name__ == "__main__":
    sys.exit(main())
