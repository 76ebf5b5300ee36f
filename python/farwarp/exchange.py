"""DLPack's exchange API: a tensor's DLTensor by one call of its framework, without an object in between. torch has it
since 2.10."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional

_NAME = "dlpack_exchange_api"  # of the capsule
_MAJOR = 1  # versions of the table with another number lie in memory in another way

Fill = Callable[[Any, int], int]


class _Table(ctypes.Structure):
    """DLPackExchangeAPI."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    ]


# int (void* object, DLTensor* to); with the interpreter's lock, and raises what the framework has raised
_FILL = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)


def fill_of(kind: type) -> Optional[Fill]:
    """fill(object, address of a DLTensor) for objects of that class; None: its framework has no exchange API.

    Shape and strides stay the object's: they are valid while it lives unchanged.
    """
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.argtypes, pointer_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    table = _Table.from_address(pointer_of(capsule, _NAME.encode()))
    while table.major != _MAJOR:  # older ones follow
        if not table.previous:
            return None
        table = _Table.from_address(table.previous)
    return _FILL(table.tensor_from_object)
