"""Descriptors of c.h: their defaults, and fields that are checked before they reach C."""

from __future__ import annotations

import ctypes
from typing import Any, Sequence

from . import _c, dtypes
from .errors import InvalidArgumentError, check


def new_desc(kind: type[ctypes.Structure]) -> Any:
    """A descriptor with its defaults."""
    desc = kind()
    init = getattr(_c.lib, kind.__name__[len("farwarp_") :] + "_init_sized")
    check(init(ctypes.addressof(desc), ctypes.sizeof(kind)))
    return desc


def given(desc: ctypes.Structure, **fields: Any) -> ctypes.Structure:
    """Sets fields of a descriptor. A value that the field cannot hold is refused; what is allowed otherwise the library
    says."""
    kinds: dict[str, Any] = dict(desc._fields_)  # type: ignore[arg-type]
    for name, value in fields.items():
        kind = kinds[name]
        if kind is _c.DLDataType:
            value = dtypes.dl_type(dtypes.name_of(value), name)
        elif kind in (ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64):
            try:
                value = value.__index__()
            except AttributeError:
                raise InvalidArgumentError(f"{name} is {value!r}; allowed: a whole number") from None
            if kind(value).value != value:
                sign = ", 0 or more" if kind is ctypes.c_uint64 else ""
                raise InvalidArgumentError(f"{name} is {value}; allowed: a number of {8 * ctypes.sizeof(kind)} bits{sign}")
        try:
            setattr(desc, name, value)
        except TypeError:
            raise InvalidArgumentError(f"{name} is {value!r}; allowed: a number") from None
    return desc


def choice(name: str, value: Any, allowed: Sequence[str]) -> int:
    """The number of a choice, which C calls by it."""
    if value not in allowed:
        raise InvalidArgumentError(f"{name} is {value!r}; allowed: {', '.join(allowed)}")
    return allowed.index(value)


def milliseconds(name: str, seconds: float) -> int:
    """A time as C takes it."""
    try:
        return min(int(seconds * 1000), 2**62)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError(f"{name} is {seconds!r}; allowed: seconds") from None
