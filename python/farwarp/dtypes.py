"""Element types by name: "bfloat16", "float16", "float32", "int32", "int64", "uint8".

NumPy's and torch's are taken, too.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _c
from .arguments import shown
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch

ml_dtypes: Any  # it has no types of its own
"""The module, or None: it is not required."""
try:
    ml_dtypes = importlib.import_module("ml_dtypes")
except ImportError:
    ml_dtypes = None

DTypeLike = Union[str, type, "np.dtype[Any]", "torch.dtype"]
"""What parameters `dtype` take."""

CODES = {
    "bfloat16": (4, 16),
    "float16": (2, 16),
    "float32": (2, 32),
    "int32": (0, 32),
    "int64": (0, 64),
    "uint8": (1, 8),
}
FP8_CODES = {"float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8)}  # DLPack 1.1; torch's, where operators take e4m3
_EXACT = {name: np.dtype(name) for name in CODES if name != "bfloat16"}
if ml_dtypes is not None:
    _EXACT["bfloat16"] = np.dtype(ml_dtypes.bfloat16)


def name_of(dtype: object) -> str:
    """The name of a type of NumPy, ml_dtypes or torch, or a name itself."""
    if isinstance(dtype, str):
        return dtype
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        return str(dtype)[len("torch.") :]
    if dtype is None:  # NumPy's float64
        return "None"
    try:
        found: np.dtype[Any] = np.dtype(dtype)  # type: ignore[call-overload]  # what is no type raises
    except (TypeError, ValueError):
        return shown(dtype)
    if found.names is not None or found.subdtype is not None:
        return f"structured ({shown(found)})"
    name: str = found.name
    if name in CODES and found.newbyteorder("=") != _EXACT.get(name):
        return f"{name} of {found.type.__module__}"  # another type of that name
    return name


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether values of that type can be converted: whole numbers, floats, bool, and those of ml_dtypes."""
    return dtype.kind in "biuf" or (ml_dtypes is not None and dtype.type.__module__ == "ml_dtypes")


def dl_type(name: str, parameter: str = "dtype") -> _c.DLDataType:
    """DLPack's type of that name."""
    if name not in CODES:
        raise InvalidArgumentError(f"{parameter} is {name}; allowed: {', '.join(CODES)}")
    return _c.DLDataType(*CODES[name], 1)


def item_bytes(name: str) -> int:
    """Of an element."""
    bits: int = dl_type(name).bits
    return bits // 8


def numpy_type(name: str) -> np.dtype[Any]:
    """How NumPy stores it: of bfloat16, without ml_dtypes, as uint16."""
    if name == "bfloat16":
        return np.dtype(np.uint16 if ml_dtypes is None else ml_dtypes.bfloat16)
    return np.dtype(name)


def torch_type(name: str) -> torch.dtype:
    """torch's type of that name. torch is loaded."""
    found: torch.dtype = getattr(sys.modules["torch"], name)
    return found


def bits_of_bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of `values`, rounded to the nearest bfloat16, ties to even, as uint16."""
    bits = np.asarray(values, np.float32, order="C").view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    quiet_nan = bits >> np.uint32(16) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet_nan, rounded).astype(np.uint16)


def as_numbers(values: object, parameter: str) -> np.ndarray[Any, Any]:
    """A NumPy array of `values`, which are numbers and lose nothing by it."""
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidArgumentError(f"{parameter} is a masked array; allowed: one without a mask, as filled() gives")
    try:
        array = np.asarray(values)
    except Exception as error:  # of any class: it is what the object's own code raises
        raise InvalidArgumentError(
            f"{parameter} is a {type(values).__name__} ({error}); allowed: what numpy.asarray() takes"
        ) from None
    if not is_number(array.dtype):
        raise InvalidArgumentError(f"{parameter} is of {name_of(array.dtype)}; allowed: real numbers")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _lost(parameter: str, found: object, name: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{parameter} has {name_of(found)} numbers that {name} has not; allowed: whole numbers in its range"
    )


def to_storage(values: object, name: str, parameter: str = "values") -> np.ndarray[Any, Any]:
    """`values` as contiguous memory of that type, in the machine's byte order.

    Floats are rounded; whole numbers must fit. `parameter`: what messages call them.
    """
    values = as_numbers(values, parameter)
    if name_of(values.dtype) == name:
        return np.require(values, requirements=["C", "A"])
    whole = values.dtype.kind in "biu"
    with np.errstate(all="ignore"):
        if name == "bfloat16":
            converted = bits_of_bfloat16(values.astype(np.float32))
            infinite = (converted & np.uint16(0x7FFF)) == 0x7F80
        else:
            converted = np.asarray(values, np.dtype(name), order="C")
            infinite = np.isinf(converted) if converted.dtype.kind == "f" else np.zeros((), bool)
        lost = converted.dtype.kind in "iu" and name != "bfloat16" and not np.array_equal(converted, values)
    if lost or (whole and infinite.any()):
        raise _lost(parameter, values.dtype, name)
    return converted


def to_torch_storage(values: torch.Tensor, name: str, parameter: str) -> torch.Tensor:
    """The same of a torch tensor, in the host's memory."""
    torch = sys.modules["torch"]
    if values.layout != torch.strided or values.is_quantized or values.device.type == "meta":
        kind = "quantized" if values.is_quantized else f"of layout {values.layout}, on {values.device}"
        raise InvalidArgumentError(f"{parameter} is {kind}; allowed: a dense torch.Tensor that has numbers")
    if values.is_complex():
        raise InvalidArgumentError(f"{parameter} is of {name_of(values.dtype)}; allowed: real numbers")
    given, wanted = values.detach().resolve_neg().to("cpu"), torch_type(name)
    if given.dtype == wanted:
        return given.contiguous()
    converted = given.to(wanted).contiguous()
    whole = not given.is_floating_point()
    if not converted.is_floating_point():
        same = (
            given.to(torch.float64) == converted.to(torch.float64) if given.is_floating_point() else given == converted
        )
        if not bool(same.all()):
            raise _lost(parameter, given.dtype, name)
    elif whole and bool(torch.isinf(converted).any()):
        raise _lost(parameter, given.dtype, name)
    return converted


def from_storage(memory: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """What Array.numpy() returns: bfloat16 becomes float32, which has the same numbers, if there is no ml_dtypes."""
    if name == "bfloat16" and ml_dtypes is None:
        return (memory.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return memory
