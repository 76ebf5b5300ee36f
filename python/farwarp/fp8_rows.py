"""Rows in e4m3 with their scales, as rows of bytes that a dispatch carries and nobody looks into."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Union, overload

import numpy as np

from . import dtypes
from .errors import InvalidArgumentError, UnavailableError
from .tensors import is_torch
from .world import World

if TYPE_CHECKING:
    import torch

Numbers = np.ndarray[Any, Any]
FP8Rows = Union["tuple[Numbers, Numbers]", "tuple[torch.Tensor, torch.Tensor]"]
"""Numbers and scales."""

MOST_ELEMENTS = 1 << 20  # of 16 bits, of a dispatched row


def fp8_type(world: World) -> str:
    """torch's and ml_dtypes' name of the device's e4m3."""
    if world.target == "emu_gfx942":
        return "float8_e4m3fnuz"
    if world.target == "hip":
        torch = sys.modules.get("torch")
        if torch is None:
            raise UnavailableError(
                "which e4m3 a device of target hip has is known by torch only; allowed: import torch"
            )
        name = torch.cuda.get_device_properties(world.device).gcnArchName
        return "float8_e4m3fnuz" if name.startswith("gfx94") else "float8_e4m3fn"
    return "float8_e4m3fn"


def packed_elements(hidden: int, groups: int) -> int:
    """Elements of 16 bits of a row of e4m3 numbers and its scales."""
    return (hidden + 4 * groups + 15) // 16 * 8


@overload
def pack(numbers: Numbers, scales: Numbers, dtype: str = "bfloat16") -> Numbers: ...
@overload
def pack(numbers: torch.Tensor, scales: torch.Tensor, dtype: str = "bfloat16") -> torch.Tensor: ...
def pack(numbers: Any, scales: Any, dtype: str = "bfloat16") -> Any:  # as the overloads say
    """[tokens, hidden] e4m3 and [tokens, groups] float32 -> [tokens, packed_elements()] of a type of 16 bits."""
    tokens, hidden = numbers.shape
    groups = scales.shape[1]
    shape = (tokens, 2 * packed_elements(hidden, groups))
    if is_torch(numbers):
        import torch

        rows = torch.zeros(shape, dtype=torch.uint8, device=numbers.device)
        rows[:, :hidden] = numbers.view(torch.uint8)
        rows[:, hidden : hidden + 4 * groups] = scales.flatten().view(torch.uint8).reshape(tokens, 4 * groups)
        return rows.view(dtypes.torch_type(dtype))
    if dtypes.ml_dtypes is None:
        raise InvalidArgumentError("numbers are NumPy arrays; allowed: with ml_dtypes, which has their types")
    bits = np.zeros(shape, np.uint8)
    bits[:, :hidden] = numbers.view(np.uint8)
    bits[:, hidden : hidden + 4 * groups] = np.ascontiguousarray(scales).view(np.uint8)
    return bits.view(dtypes.numpy_type(dtype))


@overload
def unpack(rows: Numbers, hidden: int, groups: int, fp8: np.dtype[Any]) -> tuple[Numbers, Numbers]: ...
@overload
def unpack(rows: torch.Tensor, hidden: int, groups: int, fp8: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]: ...
def unpack(rows: Any, hidden: int, groups: int, fp8: Any) -> tuple[Any, Any]:  # as the overloads say
    """The reverse; `fp8`: the numbers' type."""
    if is_torch(rows):
        import torch

        rows = rows.view(torch.uint8)
        scales = rows[:, hidden : hidden + 4 * groups].flatten().view(torch.float32)
        return rows[:, :hidden].contiguous().view(fp8), scales.reshape(len(rows), groups)
    rows = rows.view(np.uint8)
    numbers, scales = (np.ascontiguousarray(part) for part in (rows[:, :hidden], rows[:, hidden : hidden + 4 * groups]))
    return numbers.view(fp8), scales.view(np.float32)
