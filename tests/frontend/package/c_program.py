"""A model for C, compiled with its header by the C compiler that is here, and called with tensors."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import torch

from mlirc.frontend.package.c_header import DTYPES

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

FUNCTIONS = """
#include "NAME.h"
size_t model_bytes(void) { return sizeof(NAME_model); }
int inputs(void) { return NAME_INPUTS; }
int outputs(void) { return NAME_OUTPUTS; }
int open_model(NAME_model *m, NAME_error *e) { return NAME_open(m, e); }
int set_threads(NAME_model *m, int n) { m->threads = n; return 0; }
int set_kind(NAME_model *m, int n) { m->kind = n; return !NAME__kinds[n].ready(); }
int set_weight(NAME_model *m, const char *name, const NAME_tensor *x, NAME_error *e) { return NAME_set_weight(m, name, x, e); }
int get_weight(const NAME_model *m, const char *name, NAME_tensor *x, NAME_error *e) { return NAME_get_weight(m, name, x, e); }
int shapes(const NAME_tensor *x, NAME_tensor *y, size_t *arena, NAME_error *e) { return NAME_shapes(x, y, arena, e); }
int run(const NAME_model *m, const NAME_tensor *x, NAME_tensor *y, void *arena, NAME_error *e) { return NAME_run(m, x, y, arena, e); }
"""
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1"]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("sizes", ctypes.c_int64 * 8),
        ("strides", ctypes.c_int64 * 8),
    ]


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * 320)]


class CError(Exception):
    """What a function of the header said; `code` is its number."""

    def __init__(self, error: Error):
        super().__init__(error.message.decode())
        self.code = error.code


def described(x) -> Tensor:
    """A tensor, or an int, as C takes it."""
    x = torch.tensor(x) if isinstance(x, int) else x
    made = Tensor(x.data_ptr(), 0, DTYPES.index(x.dtype), x.dim())
    made.sizes[: x.dim()], made.strides[: x.dim()] = x.shape, x.stride()
    made.kept = x
    return made


def room(bytes_: int) -> torch.Tensor:
    """Bytes of memory at a multiple of 64, with others behind that a test can look at."""
    memory = torch.full((bytes_ + 128,), 0xA5, dtype=torch.uint8)
    start = -memory.data_ptr() % 64
    return memory[start : start + bytes_]


class CProgram:
    """A model that `export_c` wrote into a folder."""

    def __init__(self, folder: Path, name: str = "model", *flags: str):
        source, library = folder / "program.c", folder / "program.so"
        source.write_text(FUNCTIONS.replace("NAME", name))
        command = [COMPILER, *FLAGS, "-shared", "-fPIC", source, folder / f"{name}.o", "-o", library, "-lm", *flags]
        subprocess.run(list(map(str, command)), check=True)
        self.library = ctypes.CDLL(str(library))
        self.model = ctypes.create_string_buffer(self.library.model_bytes())
        self.call("open_model", self.model)

    def call(self, name, *args):
        error = Error()
        if getattr(self.library, name)(*args, ctypes.byref(error)):
            raise CError(error)

    def inputs(self, values):
        each = [described(x) for x in values]
        given = (Tensor * max(len(values), 1))(*each)
        given.kept = each  # an array copies structures, and not what they hold
        return given

    def set_weight(self, name, x):
        self.call("set_weight", self.model, name.encode(), ctypes.byref(described(x)))

    def weight(self, name):
        """A copy."""
        x = Tensor()
        self.call("get_weight", self.model, name.encode(), ctypes.byref(x))
        memory = torch.frombuffer(bytearray(ctypes.string_at(x.data, x.bytes)), dtype=torch.uint8)
        return as_tensor(x, memory)

    def __call__(self, *values, arena=True):
        """The results; with `arena` its memory is the caller's."""
        given, results = self.inputs(values), (Tensor * max(self.library.outputs(), 1))()
        bytes_ = ctypes.c_size_t()
        self.call("shapes", given, results, ctypes.byref(bytes_))
        memories = [room(x.bytes) for x in results[: self.library.outputs()]]
        for x, memory in zip(results, memories, strict=False):
            x.data = memory.data_ptr()
        lent = room(bytes_.value)
        self.call("run", self.model, given, results, ctypes.c_void_p(lent.data_ptr() if arena else None))
        return [as_tensor(x, memory) for x, memory in zip(results, memories, strict=False)]


def as_tensor(x: Tensor, memory: torch.Tensor) -> torch.Tensor:
    dtype = DTYPES[x.dtype]
    return memory.view(dtype).as_strided(x.sizes[: x.rank], x.strides[: x.rank])
