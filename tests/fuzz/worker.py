"""One worker process: seeds on standard input, verdicts as JSON on standard output."""

import argparse
import contextlib
import json
import logging
import os
import sys
import traceback
import warnings
from collections import Counter
from functools import partial

SHRUNK = 3  # of findings that look alike


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kinds", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shrink", type=float, default=60.0)
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print is not an answer
    os.environ.setdefault("MLIRC_CACHE_DIR", "off")

    import torch

    from tests.fuzz import tensors
    from tests.fuzz.judge import judge
    from tests.fuzz.program import random_program
    from tests.fuzz.shrink import shrink
    from tests.fuzz.workers import Finding, limit_memory

    torch.set_num_threads(options.threads)
    tensors.use_device(options.device)
    if options.device == "cpu":
        limit_memory()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")

    def say(answer: dict) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    seen: Counter = Counter()
    for line in sys.stdin:
        seed = int(line)
        with contextlib.redirect_stdout(sys.stderr):
            say({"phase": "written"})
            try:
                text = random_program(seed, options.kinds)
            except Exception:
                traceback.print_exc()
                say({"kind": "invalid"})
                continue
            say({"phase": "judged", "program": text})
            verdict = judge(text, phase=lambda name: say({"phase": name}))
            if verdict.kind == "bug":
                seen[verdict.signature] += 1
                small = text
                say({"phase": "shrunk"})
                if options.shrink and seen[verdict.signature] <= SHRUNK:
                    small = shrink(text, partial(_same, judge, verdict), options.shrink)
                last = verdict if small == text else judge(small)
                differences = [f"{d.observation}{d.path}: {d.text}" for d in (last.differences or verdict.differences)]
                answer = Finding(seed, verdict.kind, verdict.signature, small, differences[:6], text).__dict__
            else:
                answer = {"kind": verdict.kind}
        say(answer)


def _same(judge, verdict, text: str) -> bool:
    try:
        other = judge(text)
    except Exception:
        return False
    return other.kind == verdict.kind and other.signature == verdict.signature


if __name__ == "__main__":
    main()
