"""Everything that a process shares, as a dict: what another thread, another backend or the user could see changed."""

import builtins
import contextlib
import ctypes
import decimal
import faulthandler
import gc
import locale
import logging
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy
import torch

CONFIGS = ("torch._dynamo", "torch._functorch", "torch._inductor", "torch.compiler", "torch.fx.experimental")
STATUS_FLAGS = 0x3F  # of MXCSR: what computing leaves there


def quick() -> dict[str, Any]:
    """What is read in a millisecond: also while another thread compiles."""
    found: dict[str, Any] = {
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.get_debug(), [*map(id, gc.callbacks)]),
        "switch interval": sys.getswitchinterval(),
        "recursion limit": sys.getrecursionlimit(),
        "hooks": [id(getattr(sys, f"{kind}hook")) for kind in ("except", "unraisable", "display", "breakpoint")],
        "thread hooks": (id(threading.excepthook), stack_size()),
        "streams": (id(sys.stdout), id(sys.stderr), id(sys.stdin)),
        "path": [*sys.path],
        "finders": ([*map(id, sys.meta_path)], len(sys.path_hooks)),
        "dlopen flags": sys.getdlopenflags(),
        "bytecode": sys.dont_write_bytecode,
        "signals": {kind.name: str(signal.getsignal(kind)) for kind in signal.Signals},
        "locale": locale.setlocale(locale.LC_ALL),
        "environment": dict(os.environ),
        "cwd": os.getcwd(),
        "limits": [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")],
        "scheduling": (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)),
        "warnings": ([*map(str, warnings.filters)], id(warnings.showwarning)),
        "logging": (
            logging.root.level,
            [*map(str, logging.root.handlers)],
            logging.root.manager.disable,
            id(logging.getLoggerClass()),
            [*map(str, logging.getLogger("mlirc").handlers)],
            logging.getLogger("mlirc").level,
        ),
        "torch threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "torch switches": switches(),
        "settings": settings(),
        "random": hash((random.getstate(), torch.get_rng_state().numpy().tobytes())),
        "faulthandler": faulthandler.is_enabled(),
        "builtins": {name: id(value) for name, value in vars(builtins).items() if name != "_"},
    }
    return found


def stack_size() -> int:
    """Of Python's new threads. Asking resets it."""
    size = threading.stack_size()
    return threading.stack_size(size) or size


def floating_point() -> dict[str, Any]:
    """Of the calling thread: rounding, denormals, traps."""
    state = (ctypes.c_uint32 * 16)()
    ctypes.CDLL(None).fegetenv(state)
    return {"rounding": ctypes.CDLL(None).fegetround(), "mxcsr": state[7] & ~STATUS_FLAGS}


def full() -> dict[str, Any]:
    """Also what takes longer to read: functions and classes of PyTorch's, its operators and tables. In the main thread."""
    from torch._higher_order_ops import effects

    mask = os.umask(0)
    os.umask(mask)
    kinds = [
        getattr(effects, name) for name in ("SIDE_EFFECTS", "_side_effectful_need_grad_ops") if hasattr(effects, name)
    ]
    names = torch._C._dispatch_get_all_op_names()
    return quick() | {
        "floating point": floating_point(),
        "umask": mask,
        "trace": (sys.gettrace(), sys.getprofile()),
        "effects": [sorted(map(str, kind)) for kind in kinds],
        "operators": sorted(name for name in names if not name.startswith("mlirc::")),
        "decompositions": {
            name: {str(op): id(f) for op, f in table.items()}
            for name, table in torch._decomp.global_decomposition_table.items()
        },
        "functions": functions(),
        "ctypes": prototypes(),
        "numpy": (hash(str(numpy.random.get_state())), str(numpy.geterr()), str(numpy.get_printoptions())),
        "decimal": str(decimal.getcontext()),
        "signal mask": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "timers": [signal.getitimer(kind) for kind in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)],
        "process": {
            name: Path("/proc/self", name).read_text() for name in ("coredump_filter", "timerslack_ns", "comm")
        },
        "status": [
            x for x in Path("/proc/self/status").read_text().splitlines() if re.match("Sig[BIC]|THP|NoNew|Seccomp", x)
        ],
        "children": Path(f"/proc/self/task/{os.getpid()}/children").read_text(),
        "descriptors": descriptors(),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "temporary files": tempfile.gettempdir(),
    }


def prototypes() -> dict[str, Any]:
    """What functions of libraries that all of Python's code shares take and give, where somebody has said it."""
    found = {}
    shared = {"pythonapi": ctypes.pythonapi, "cdll": ctypes.cdll, "pydll": ctypes.pydll}
    llvmlite = sys.modules.get("llvmlite.binding.ffi")
    for library, holder in {**shared, **({"llvmlite": llvmlite.lib._lib} if llvmlite else {})}.items():
        for name, value in [*vars(holder).items()] if hasattr(holder, "__dict__") else []:
            said = (getattr(value, "restype", ctypes.c_int), getattr(value, "argtypes", None))
            if said != (ctypes.c_int, None):
                found[f"{library}.{name}"] = said
    return found


def descriptors() -> list[str]:
    """Open files, pipes and sockets, without the page map, which a thread of performance/parameter_pages.py opens for a moment."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(x for x in found if not x.endswith(("/fd", "/pagemap")))


def switches() -> dict[str, str]:
    """PyTorch's own, of each setter's getter."""
    found = {}
    for name in dir(torch._C):
        ask = getattr(torch._C, f"_get_{name.removeprefix('_set_')}", None)
        if name.startswith("_set_") and ask is not None and "cuda" not in name and "cublas" not in name:
            with contextlib.suppress(TypeError, RuntimeError):
                found[name] = str(ask())
    found |= {
        "dtype": str(torch.get_default_dtype()),
        "grad": str((torch.is_grad_enabled(), torch.is_inference_mode_enabled())),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "anomalies": str(torch.is_anomaly_enabled()),
        "backends": str((torch.backends.mkldnn.enabled, torch.backends.opt_einsum.strategy)),
        "sharing": torch.multiprocessing.get_sharing_strategy(),
    }
    return found


def settings() -> dict[str, str]:
    """Dynamo's, AOTAutograd's and Inductor's."""
    found = {}
    for module in CONFIGS:
        for name in ("config", "_config"):
            config = sys.modules.get(f"{module}.{name}")
            if config is not None and hasattr(config, "get_config_copy"):
                found |= {f"{module}.{key}": str(value) for key, value in config.get_config_copy().items()}
    return found


def functions() -> dict[str, int]:
    """Identities of functions and classes in all modules but ours, and of their classes' functions."""
    found = {}
    for module_name, module in [*sys.modules.items()]:
        if module_name.partition(".")[0] in ("mlirc", "tests", "__main__", "__mp_main__"):
            continue
        for name, value in [*getattr(module, "__dict__", {}).items()]:
            if isinstance(value, (FunctionType, BuiltinFunctionType, type)):
                found[f"{module_name}.{name}"] = id(value)
            if isinstance(value, type) and value.__module__ == module_name:
                for key, member in [*vars(value).items()]:
                    if isinstance(member, (FunctionType, BuiltinFunctionType, staticmethod, classmethod, property)):
                        found[f"{module_name}.{name}.{key}"] = id(member)
    return found


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What changed, a line each. Functions that a module has got since count if they are ours."""
    found = []
    for name, was in before.items():
        now = after[name]
        if was == now:
            continue
        if isinstance(was, dict):
            kept = was if name in ("functions", "settings", "decompositions") else was.keys() | now.keys()
            found += [
                f"{name}: {key}: {was.get(key)} -> {now.get(key)}" for key in kept if was.get(key) != now.get(key)
            ]
        elif isinstance(was, list) and len(was) + len(now) > 20:
            found += [f"{name}: {x}" for x in set(map(str, was)) ^ set(map(str, now))]
        else:
            found.append(f"{name}: {was} -> {now}")
    return found
