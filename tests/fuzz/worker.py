"""One worker process: seeds on standard input, verdicts as JSON on standard output."""

import argparse
import contextlib
import gc
import json
import logging
import os
import sys
import traceback
import warnings
from collections import Counter
from functools import partial

from tests import quick_capture

SHRUNK = 3  # of findings that look alike
WRITTEN = "writes to freed memory"  # a signature (tests/freed_memory.py)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kinds", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shrink", type=float, default=60.0)
    parser.add_argument("--freed", action="store_true")
    parser.add_argument("--cache", default="off", help="a folder for compiled graphs")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print is not an answer
    os.environ["MLIRC_CACHE_DIR"] = "off"
    os.environ["MLIRC_VERIFY"] = "stages"  # a form that is wrong is a bug, also where the values are right by luck

    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # the warnings of many programs would hide a bug's text
    os.environ["TORCH_FAKE_TENSOR_DISPATCH_CACHE"] = "0"  # filling it takes longer than it saves

    import torch

    from mlirc.frontend import statistics
    from tests import freed_memory
    from tests.fuzz import tensors
    from tests.fuzz.compare import Difference
    from tests.fuzz.judge import DeviceLost, Verdict, judge
    from tests.fuzz.program import random_program
    from tests.fuzz.shrink import shrink
    from tests.fuzz.workers import CACHED, Finding, limit_memory

    torch.set_num_threads(options.threads)
    spare_time()
    tensors.use_device(options.device)
    if options.device == "cpu":
        limit_memory()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")

    def say(answer: dict) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    seen: Counter = Counter()
    if options.freed:
        freed_memory.watch()
    written = 0
    for line in sys.stdin:
        number, again = line.split()[0], line.split()[1:]
        seed, hits = int(number), 0
        with contextlib.redirect_stdout(sys.stderr):
            say({"phase": "written"})
            try:
                text = random_program(seed, options.kinds)
            except Exception:
                traceback.print_exc()
                say({"kind": "invalid", "ends": lost()})
                if lost():  # by a program that was judged before
                    return
                continue
            say({"phase": "judged", "program": text})
            cached = seed % CACHED == 0
            os.environ["MLIRC_CACHE_DIR"] = options.cache if cached else "off"
            statistics.reset()
            try:
                verdict = judge(text, phase=lambda name: say({"phase": name}))
            except DeviceLost as error:
                say(device_lost(seed, text, error.phase, options.device))
                return
            now = freed_memory.changed() if options.freed else 0
            if now != written:
                verdict = Verdict(
                    "bug", [Difference(0, "", WRITTEN, f"{now - written}, by this program or one before it")]
                )
                written = now
            hits = sum(graph.cache == "hit" for graph in statistics.graphs)
            os.environ["MLIRC_CACHE_DIR"] = "off"
            if verdict.kind == "bug":
                seen[verdict.signature] += 1
                say({"phase": "shrunk"})
                last, small, signature = verdict, text, verdict.signature
                if cached and verdict.signature != WRITTEN and judge(text).kind != "bug":
                    signature = f"{'warm' if again else 'cold'} cache: {signature}"
                elif options.shrink and seen[signature] <= SHRUNK and signature != WRITTEN:
                    small = shrink(text, partial(_same, judge, verdict), options.shrink)
                    last = judge(small)
                differences = [f"{d.observation}{d.path}: {d.text}" for d in (last.differences or verdict.differences)]
                answer = Finding(seed, verdict.kind, signature, small, differences[:6], text).__dict__
            else:
                answer = {"kind": verdict.kind}
        say({**answer, "hits": hits, "ends": lost()})
        if lost():  # by a program of the shrinking
            return


def lost() -> bool:
    from tests.fuzz.judge import DeviceLost, need_device

    try:
        need_device("shrunk")
    except DeviceLost:
        return True
    return False


def device_lost(seed: int, text: str, phase: str, device: str) -> dict:
    """The answer on a program after which this process has no GPU: eager's own, or a finding."""
    from tests.fuzz.workers import Finding, aot_eager_dies

    if phase == "eager" or aot_eager_dies([text], device):
        return {"kind": "limit", "ends": True}
    return {**Finding(seed, "bug", "device lost", text).__dict__, "ends": True}


def spare_time() -> None:
    """A fifth of a program's time: PyTorch does what nobody reads, the collector walks all of its objects."""
    quick_capture.leave_out()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _same(judge, verdict, text: str) -> bool:
    try:
        other = judge(text)
    except Exception:
        return False
    return other.kind == verdict.kind and other.signature == verdict.signature


if __name__ == "__main__":
    main()
