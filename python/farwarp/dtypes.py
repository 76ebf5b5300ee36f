"""Element types by name: "bfloat16", "float16", "float32", "int32", "int64", "uint8". NumPy's and torch's are taken,
too."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import _c
from .errors import InvalidArgumentError

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None  # type: ignore[assignment]

CODES = {"bfloat16": (4, 16), "float16": (2, 16), "float32": (2, 32), "int32": (0, 32), "int64": (0, 64), "uint8": (1, 8)}


def name_of(dtype: Any) -> str:
    """The name of a type of NumPy, ml_dtypes or torch, or a name itself."""
    if isinstance(dtype, str):
        return dtype
    if type(dtype).__module__ == "torch":
        return str(dtype)[len("torch.") :]
    try:
        return np.dtype(dtype).name
    except TypeError:
        return repr(dtype)


def dl_type(name: str, parameter: str = "dtype") -> _c.DLDataType:
    """DLPack's type of that name."""
    if name not in CODES:
        raise InvalidArgumentError(f"{parameter} is {name}; allowed: {', '.join(CODES)}")
    return _c.DLDataType(*CODES[name], 1)


def item_bytes(name: str) -> int:
    return dl_type(name).bits // 8


def numpy_type(name: str) -> np.dtype:
    """How NumPy stores it: of bfloat16, without ml_dtypes, as uint16."""
    if name == "bfloat16":
        return np.dtype(np.uint16 if ml_dtypes is None else ml_dtypes.bfloat16)
    return np.dtype(name)


def torch_type(name: str) -> Any:
    return getattr(sys.modules["torch"], name)


def bits_of_bfloat16(values: np.ndarray) -> np.ndarray:
    """The bits of `values`, rounded to the nearest bfloat16, ties to even, as uint16."""
    bits = np.asarray(values, np.float32, order="C").view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    quiet_nan = bits >> np.uint32(16) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet_nan, rounded).astype(np.uint16)


def to_storage(values: np.ndarray, name: str) -> np.ndarray:
    """`values` as contiguous memory of that type. Floats are rounded; other changes of type must lose nothing."""
    if name_of(values.dtype) == name:
        return np.asarray(values, order="C")
    if name == "bfloat16":
        return bits_of_bfloat16(np.asarray(values, np.float32))
    wanted = np.dtype(name)
    converted = np.asarray(values, wanted, order="C")
    if wanted.kind in "iu" and not np.array_equal(converted, values):
        raise InvalidArgumentError(f"values has {name_of(values.dtype)} numbers that {name} has not; allowed: whole numbers in its range")
    return converted


def from_storage(memory: np.ndarray, name: str) -> np.ndarray:
    """What Array.numpy() returns: bfloat16 becomes float32, which has the same numbers, if there is no ml_dtypes."""
    if name == "bfloat16" and ml_dtypes is None:
        return (memory.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return memory
