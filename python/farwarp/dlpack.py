"""Memory for other libraries: DLPack's capsules."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_uint32, c_uint64, c_void_p, py_object
from typing import TYPE_CHECKING, Callable

from . import _c

if TYPE_CHECKING:
    from typing_extensions import CapsuleType  # not needed to run

VERSION = (1, 0)  # of DLManagedTensorVersioned, which has not changed since
_PLAIN_NAME, _VERSIONED_NAME = b"dltensor", b"dltensor_versioned"  # of capsules that nobody has taken


class _Plain(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [("dl_tensor", _c.DLTensor), ("manager_ctx", c_void_p), ("deleter", c_void_p)]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("dl_tensor", _c.DLTensor),
    ]


_new = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))
_is_valid = ctypes.PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))

_Given = dict[int, "tuple[ctypes.Structure, ctypes.Array[ctypes.c_int64], Callable[[int], None]]"]
_given: _Given = {}  # by the structures' addresses


def _release(address: int, given: _Given = _given) -> None:
    structure, _sizes, released = given.pop(address)
    released(ctypes.addressof(structure))


def _drop(
    capsule: int, release: Callable[[int], None] = _release, is_valid: Callable[[int, bytes], int] = _is_valid
) -> None:
    for name in (_PLAIN_NAME, _VERSIONED_NAME):
        if is_valid(capsule, name):  # nobody has taken what is in it
            release(_pointer(capsule, name))


def given() -> list[int]:
    """The numbers of capsules whose memory is in use."""
    return list(_given)


_deleter = ctypes.CFUNCTYPE(None, c_void_p)(_release)
_destructor = ctypes.PYFUNCTYPE(None, c_void_p)(_drop)
for _callback in (_deleter, _destructor):  # other libraries may call them when this module is gone
    ctypes.pythonapi.Py_IncRef(py_object(_callback))


def capsule(
    data: int,
    shape: Sequence[int],
    dtype: _c.DLDataType,
    device: _c.DLDevice,
    versioned: bool,
    taken: Callable[[int], None],
    released: Callable[[int], None],
) -> CapsuleType:
    """A capsule of contiguous memory.

    Parameters
    ----------
    data : int
        The address.
    shape : sequence of int
        Sizes.
    dtype : DLDataType
        Of an element.
    device : DLDevice
        Whose memory it is.
    versioned : bool
        Whether the reader takes "dltensor_versioned", of VERSION; else it is "dltensor".
    taken, released : callable
        What happens before the capsule is made and when its reader needs the memory no more, on any thread; both are
        given a number that is the capsule's alone until then.

    Returns
    -------
    PyCapsule
        The memory must be valid until `released` is called.
    """
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * shape[i]
    sizes = (ctypes.c_int64 * max(1, 2 * len(shape)))(*shape, *strides)
    at = ctypes.addressof(sizes)
    structure = _Versioned(*VERSION) if versioned else _Plain()
    structure.deleter = ctypes.cast(_deleter, c_void_p)
    structure.dl_tensor = _c.DLTensor(data=data, device=device, ndim=len(shape), dtype=dtype)
    for name, offset in (("shape", 0), ("strides", 8 * len(shape))):
        setattr(structure.dl_tensor, name, ctypes.cast(at + offset, ctypes.POINTER(ctypes.c_int64)))
    address = ctypes.addressof(structure)
    taken(address)
    _given[address] = structure, sizes, released
    made: CapsuleType = _new(address, _VERSIONED_NAME if versioned else _PLAIN_NAME, ctypes.cast(_destructor, c_void_p))
    return made
