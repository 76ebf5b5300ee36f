"""DLPack's exchange API: a tensor's DLTensor by one call of its framework, without an object in between.

torch has it since 2.10.
"""

from __future__ import annotations

import ctypes
from typing import Callable

from . import _c

_NAME = "dlpack_exchange_api"  # of the capsule
_MAJOR = 1  # versions of the table with another number lie in memory in another way

# fill(id(object), what byref() gives of a DLTensor); raises what the framework has raised
Fill = Callable[[int, _c.Reference], None]


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


# int (void* object, DLTensor* to), with the interpreter's lock, after which ctypes raises what is pending. CPython's
# id() is the object's address, and of the second argument nothing is declared: ctypes takes byref()'s as it is. That
# makes a call a third cheaper than with py_object and an address.
_FILL = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def fill_of(kind: type) -> Fill | None:
    """For objects of that class; None: its framework has no exchange API.

    The caller holds the object, and it is of the class: the framework need not look.

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
    return _FILL(table.tensor_from_object) if table.tensor_from_object else None
