"""Conversion of a native tensor handle into its Python object, by THPVariable_Wrap of libtorch_python.so."""

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.abi.reach import Missing, reach
from mlirc.codegen.abi.tensor_handle import tensor_handle

SYMBOL = "_Z16THPVariable_WrapRKN2at10TensorBaseE"  # PyObject* THPVariable_Wrap(const at::TensorBase&)


def wrap_address() -> int:
    """The address of a function that takes a handle and returns a new reference. Raises Missing."""
    native = wrap_tensor()
    if native is not None:
        return native
    stolen = wrap_in_python.or_missing()
    return ctypes.cast(stolen, ctypes.c_void_p).value or 0


def why_no_programs() -> str:
    """Why native code can neither take nor return tensors, or ""."""
    if tensor_handle() is None:
        return tensor_handle.why
    return "" if wrap_tensor() is not None or wrap_in_python() is not None else wrap_in_python.why


def wrapped(handle: int) -> Any:
    """The Python object of the tensor at that address."""
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(wrap_address())(handle)


@reach("wrap-tensor", instead="PyTorch's Python makes the objects of results", apart=True)
def wrap_tensor() -> int:
    """THPVariable_Wrap's address, which gave back the object that a tensor has, and made one that a tensor had not."""
    attribute = tensor_handle.or_missing()
    library = ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_python.so"))
    function = library[SYMBOL]
    function.restype = ctypes.py_object
    _try(lambda handle: function(ctypes.c_void_p(handle)), attribute)
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@reach("wrap-in-python", instead="every graph runs in eager", apart=True)
def wrap_in_python() -> Any:
    """The address of a function that does the same through `alloc_tensors_by_stealing_from_void_ptrs` of AOTInductor's tests."""
    from torch._C import _aoti  # pyright: ignore[reportAttributeAccessIssue]

    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    capsule = prototype(("PyCapsule_New", ctypes.pythonapi))
    steal, own = _aoti.alloc_tensors_by_stealing_from_void_ptrs, shim.library().aoti_torch_new_tensor_handle

    def wrap(handle: int) -> torch.Tensor:
        owned = ctypes.c_void_p()
        own(ctypes.c_void_p(handle), ctypes.byref(owned))
        return steal([capsule(owned, None, None)])[0]

    _try(wrap, tensor_handle.or_missing())
    return _alive(wrap)


@cache
def _alive(wrap: Callable[[int], torch.Tensor]) -> Any:
    """Programs may run it as long as the process lives."""
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(wrap)


def _try(wrap: Callable[[int], Any], attribute: str) -> None:
    known = torch.zeros(2, 3)
    place = ctypes.c_void_p(getattr(known, attribute))
    before = sys.getrefcount(known)
    again = wrap(ctypes.addressof(place))
    if again is not known or sys.getrefcount(known) != before + 1:
        raise Missing("a tensor that has an object is given another one")
    del again
    size, stride, made = ctypes.c_int64(7), ctypes.c_int64(1), ctypes.c_void_p()
    of = ctypes.byref(size), ctypes.byref(stride)
    cpu, index = shim.device_codes("cpu")
    if shim.library().aoti_torch_empty_strided(
        ctypes.c_int64(1), *of, shim.dtype_code(torch.float64), cpu, index, ctypes.byref(made)
    ):
        raise Missing(f"no tensor could be made: {shim.last_error()}")
    new = wrap(made.value or 0)
    shim.library().aoti_torch_delete_tensor_object(made)
    if type(new) is not torch.Tensor or new.shape != (7,) or new.fill_(2.5).sum() != 17.5:
        raise Missing("a tensor that has no object is not given one")
