"""One program's verdict: eager is right, and where aot_eager differs in the same way, it is PyTorch's own limit."""

import contextlib
import functools
import hashlib
import importlib.util
import inspect
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from mlirc.frontend.torch_compat.aot_autograd import calls
from tests.fuzz.calls import not_compiled
from tests.fuzz.compare import Difference, describe, differences
from tests.fuzz.kinds.control_flow import in_python
from tests.fuzz.noise import Noise
from tests.fuzz.observe import Trace

NOISY_RUNS = 20
NO_SECOND = "does not currently support double backward"
MORE_RUNS = 80  # where those do not explain a difference: of two equal numbers, few draws make them equal again


@dataclass(frozen=True)
class Verdict:
    """kind: right, unsupported (right, but a graph ran in eager), limit (PyTorch's own), bug, invalid (no program)."""

    kind: str
    differences: list[Difference] = field(default_factory=list)

    @property
    def signature(self) -> str:
        """What bugs with one cause mostly share."""
        if not self.differences:
            return self.kind
        first = self.differences[0]
        words = "".join(c for c in first.text if not c.isdigit()) if first.kind.startswith("error") else ""
        return f"{first.kind} {words[:80]}".strip()


class DeviceLost(Exception):
    """A program ended its GPU for this process: a bad index does so, in eager too. `phase` says whose run it was."""

    def __init__(self, phase: str):
        super().__init__(phase)
        self.phase = phase


def judge(text: str, backend: str = "mlirc", phase: Callable[[str], None] = lambda name: None) -> Verdict:
    """Runs a program (program.py says what its text defines) in eager and compiled. `phase` hears what comes next.

    Raises DeviceLost.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        phase("eager")
        return _judge(load(text), backend, phase)


def _judge(program: ModuleType, backend: str, phase: Callable[[str], None]) -> Verdict:
    expected = run(program, None)
    need_device("eager")
    if isinstance(expected.error, NameError | SyntaxError | ImportError | UnboundLocalError):
        return Verdict("invalid", [Difference(0, "", "invalid", describe(expected.error))])
    phase("compiled")
    found = run(program, backend, {"fallback": "error"} if backend == "mlirc" else None)
    need_device("compiled")
    wrong = differences(expected, found)
    if not wrong:
        return Verdict("right")
    kind = "right"
    if not_compiled(found.error):
        kind, first = "unsupported", wrong
        found = run(program, backend)
        need_device("compiled")
        wrong = differences(expected, found)
        if not wrong:
            return Verdict(kind, first)
    if writes_refused(expected, wrong) or gradient_refused(expected, found) or alias_refused(found):
        return Verdict("limit", wrong)
    if NO_SECOND in describe(found.error):
        return Verdict("limit", wrong)
    phase("eager")
    noisy = [run(program, None, noise=seed) for seed in range(NOISY_RUNS)]
    wrong = differences(expected, found, noisy)
    if wrong and {d.kind for d in wrong} <= {"values", "shape"}:
        noisy += [run(program, None, noise=seed) for seed in range(NOISY_RUNS, NOISY_RUNS + MORE_RUNS)]
        wrong = differences(expected, found, noisy)
    if not wrong:
        return Verdict(kind)
    if writes_refused(expected, wrong):
        return Verdict("limit", wrong)
    phase("aot_eager")
    plain = without_second_gradients(program)
    limits = differences(expected, plain, noisy)
    if {d.kind for d in wrong} == {"stride"} and {*wrong} <= {*differences(expected, run(program, gradients_laid_out))}:
        return Verdict("limit", wrong)
    if plain.error is not None and describe(plain.error) == describe(found.error):
        return Verdict("limit", wrong)
    unanswered = zeros_for_none(expected, found, plain)
    if backend == "mlirc" and any("value" in d.kind for d in wrong if (d.observation, d.path) not in unanswered):
        unanswered |= zeros_for_none(expected, found, run_unheard(program), None)
    counted = {number for number, _ in unanswered}  # such zeros count as an object with memory
    wrong = [d for d in wrong if d.observation not in counted or d.kind not in ("object", "storage")]
    wrong = [d for d in wrong if (d.observation, d.path) not in unanswered]
    places, unlike = {d.place for d in wrong}, {d.place for d in differences(plain, found, noisy)}
    if not wrong:
        return Verdict("limit")
    if not unlike or (places <= {d.place for d in limits} and not places & unlike):
        return Verdict("limit", wrong)
    bugs = [d for d in wrong if d.place not in {x.place for x in limits}] or wrong
    return Verdict("bug", [*broken_noise(expected, noisy), *bugs])


def writes_refused(expected: Trace, wrong: list[Difference]) -> bool:
    """Whether all that is wrong is that eager's backward refuses a write, of which AOTAutograd does not see all behind a graph break."""
    return "modified by an inplace operation" in describe(expected.error) and all(
        d.kind.startswith("error") for d in wrong
    )


def alias_refused(found: Trace) -> bool:
    """Whether AOTAutograd refuses a result that is a view of an input, which it takes from the input's base: where several inputs are views of one
    tensor and one is written to, it has the views that lead from another."""
    return "incorrect out shape after application of ViewMeta" in describe(found.error)


def gradient_refused(expected: Trace, found: Trace) -> bool:
    """Whether both refuse a gradient of one operator for its sizes: eager in the backward pass, and with numbers where a trace has symbols."""
    texts = [describe(error).partition(" at index")[0] for error in (expected.error, found.error)]
    return "returned an invalid gradient" in texts[0] and texts[0] == texts[1]


def broken_noise(expected: Trace, noisy: list[Trace]) -> list[Difference]:
    """What is wrong with the judge itself: all runs with noise ended by an error where eager went on, so that none says how far rounding goes."""
    steps = len(expected.observations)
    if not noisy or any(t.error is None or len(t.observations) >= steps for t in noisy):
        return []
    place = max(len(t.observations) for t in noisy)
    return [Difference(place, "", "error of the judge", f"noise raises {describe(noisy[0].error)}")]


def run(program: ModuleType, backend: Any, options: dict | None = None, noise: int | None = None) -> Trace:
    """One run of a whole program: made anew, called as its `drive` says."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    trace = Trace()
    state = torch.get_default_dtype(), torch.is_grad_enabled()
    try:
        made: Any = program.make()
        function = made
        if backend is not None:
            function = torch.compile(made, backend=backend, options=options, **program.OPTIONS)
        if noise is None:
            with torch._dynamo.config.patch(recompile_limit=64):  # no call is left to eager for its many variants
                program.drive(function, made, trace.see)
        else:
            with another_attention(noise), in_python(), Noise(noise):
                program.drive(function, made, trace.see)
    except Exception as error:
        trace.error = error
    finally:
        torch.set_default_dtype(state[0])
        torch.set_grad_enabled(state[1])
    return trace


def without_second_gradients(program: ModuleType) -> Trace:
    """A run under `aot_eager`, which goes on where that has no gradient of a gradient: what it gives later is asked for, too."""
    gradients = getattr(program, "gradients", None)

    def given(results: Any, tensors: list[torch.Tensor], create_graph: bool = False) -> list[torch.Tensor | None]:
        assert gradients is not None
        if any(type(x) is str and x == NO_SECOND for x in tree_leaves(results)):
            return [NO_SECOND for _ in tensors]  # type: ignore[misc]
        try:
            return gradients(results, tensors, create_graph=create_graph)
        except RuntimeError as error:
            if NO_SECOND not in str(error):
                raise
            return [NO_SECOND for _ in tensors]  # type: ignore[misc]

    if gradients is None:
        return run(program, "aot_eager")
    program.gradients = given  # type: ignore[attr-defined]
    try:
        return run(program, "aot_eager")
    finally:
        program.gradients = gradients  # type: ignore[attr-defined]


def zeros_for_none(expected: Trace, found: Trace, other: Trace, told: str | None = NO_SECOND) -> set[tuple[int, str]]:
    """Where a gradient is None in eager, zeros behind a compiled call, which cannot know of all hooks, and `told` in another run.

    That is `aot_eager`, which has no gradient of a gradient, or one for which no hook hears of a gradient, with None."""
    places = set()
    for number, leaves in enumerate(zip(expected.observations, found.observations, other.observations, strict=False)):
        known = [{leaf.path: leaf for leaf in observation} for observation in leaves]
        for path in set.intersection(*map(set, known)):
            wanted, got, without = (observation[path] for observation in known)
            told_so = without.facts.get("value") == (type(told).__name__, told)
            zeros = got.numbers is not None and not got.numbers.any()
            if told_so and zeros and wanted.facts.get("value") == ("NoneType", None):
                places.add((number, path))
    return places


def run_unheard(program: ModuleType) -> Trace:
    """A run under mlirc, for which no hook hears of a gradient: zeros that are there for hooks alone are None."""
    with mock.patch.object(calls, "is_heard", lambda x: False):
        return run(program, "mlirc")


def gradients_laid_out(graph: Any, inputs: Any) -> Callable:
    """A backend: eager, where the gradient of a result comes with the result's strides, as AOTAutograd has it copied for every backend.

    Under `aot_eager` a sum with the gradient of a view, which is no part of the graph, may hide them: it begins with the other addend."""

    def run(*args: Any) -> Any:
        results = graph(*args)
        for x in results:
            if isinstance(x, torch.Tensor) and x.grad_fn is not None and not x._is_view() and x.layout == torch.strided:
                x.register_hook(functools.partial(_copied_into, x.stride()))
        return results

    return run


def _copied_into(strides: tuple[int, ...], gradient: torch.Tensor) -> torch.Tensor:
    if gradient.stride() == strides:
        return gradient
    return torch.empty_strided(gradient.shape, strides, dtype=gradient.dtype, device=gradient.device).copy_(gradient)


def another_attention(noise: int) -> Any:
    """Two of five runs have attention in parts. Of a row of scores that are all NaN it gives NaN, eager's kernel 0. In one of them a mask
    replaces scores, as eager's causal kernel does; eager's others add it, so that hidden infinities give NaN."""
    if noise % 5 == 3:
        return ReplacedScores()
    return sdpa_kernel(SDPBackend.MATH) if noise % 5 == 4 else contextlib.nullcontext()


class ReplacedScores(TorchFunctionMode):
    """Computes attention with a mask in parts, where the mask replaces the scores that it hides."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention:
            call = inspect.signature(masked_attention).bind(*args, **kwargs)
            if call.arguments.get("attn_mask") is not None:
                return masked_attention(*args, **kwargs)
        return function(*args, **kwargs)


def masked_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
) -> torch.Tensor:
    """Takes what F.scaled_dot_product_attention takes, with a mask and without dropout."""
    assert attn_mask is not None
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query * scale) @ key.mT
    if attn_mask.dtype == torch.bool:
        shown = attn_mask
    else:
        above = attn_mask > torch.finfo(attn_mask.dtype).min
        shown, scores = above | ~above.any(-1, keepdim=True), scores + attn_mask
    if is_causal:
        shown = shown & torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    scores = torch.where(shown, scores, -torch.inf)
    return torch._safe_softmax(scores, -1) @ value


def need_device(phase: str) -> None:
    """Raises DeviceLost where the GPU takes no more work."""
    if not torch.cuda.is_initialized():
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise DeviceLost(phase) from error


def load(text: str) -> ModuleType:
    """The program as a module, in a file of its own: Dynamo and tracebacks show its lines."""
    folder = Path(tempfile.gettempdir()) / f"mlirc-fuzz-{os.getuid()}"
    folder.mkdir(exist_ok=True, mode=0o700)
    path = folder / f"program_{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    for name in [name for name in sys.modules if name.startswith("program_")]:
        del sys.modules[name]
    sys.modules[path.stem] = module  # Dynamo may import it, to read a function's globals
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)
    finally:
        import linecache

        linecache.getlines(str(path))
        path.unlink(missing_ok=True)
    return module
