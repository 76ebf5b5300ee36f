"""Descriptors of c.h: their defaults, and fields that are checked before they reach C."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from . import _c, dtypes
from .arguments import flag, real, shown, whole
from .errors import InvalidArgumentError, check

_FLAGS = frozenset(
    "has_bias x_scale_by_column return_x fp8_dispatch masked scale_columns weights_at_combine rows causal has_lse "
    "has_sinks ragged_queries ragged_keys has_key_counts fp8_cache heads_first powers_of_two scale_exponents "
    "handles".split()
)
_FLOAT_MOST = 3.4028234663852886e38  # of 32 bits


def new_desc(kind: type[ctypes.Structure]) -> _c.Desc:
    """A descriptor with its defaults."""
    desc = kind()
    init = getattr(_c.lib, kind.__name__[len("farwarp_") :] + "_init_sized")
    check(init(ctypes.addressof(desc), ctypes.sizeof(kind)))
    return desc


def set_fields(desc: ctypes.Structure, **fields: object) -> ctypes.Structure:
    """Sets fields of a descriptor.

    A value that the field cannot hold is refused; what is allowed otherwise the library says.
    """
    kinds: dict[str, object] = dict(desc._fields_)  # type: ignore[arg-type]
    for name, value in fields.items():
        kind = kinds[name]
        if kind is _c.DLDataType:
            value = dtypes.dl_type(dtypes.name_of(value), name)
        elif kind in (ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64):
            value = flag(name, value) if name in _FLAGS else whole(name, value)
            if kind(value).value != value:
                sign = ", 0 or more" if kind is ctypes.c_uint64 else ""
                raise InvalidArgumentError(
                    f"{name} is {value}; allowed: a number of {8 * ctypes.sizeof(kind)} bits{sign}"
                )
        elif kind is ctypes.c_float:
            value = real(name, value)
            if abs(value) > _FLOAT_MOST:
                raise InvalidArgumentError(f"{name} is {value}; allowed: a number of 32 bits")
        setattr(desc, name, value)
    return desc


def choice(name: str, value: object, allowed: Sequence[str]) -> int:
    """The number of a choice, which C calls by it."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgumentError(f"{name} is {shown(value)}; allowed: {', '.join(allowed)}")
    return allowed.index(value)
