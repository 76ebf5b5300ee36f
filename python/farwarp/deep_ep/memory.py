"""Where a Buffer's tensors lie.

On the device, as torch tensors that kernels use; or, on the emulator, in the host's memory, as NumPy arrays or torch
tensors that are copied to the emulated device and back.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Union

import numpy as np

from .. import dtypes
from ..array import Array
from ..errors import InvalidArgumentError
from ..fp8_rows import fp8_type
from ..tensors import Tensor, is_torch
from ..world import World

if TYPE_CHECKING:
    import torch

FP8 = "fp8"  # among names of types: e4m3, of the device's kind


Given = Union["torch.Tensor", "np.ndarray[Any, Any]"]
"""What programs give and get: torch tensors on the device; on the emulator NumPy arrays, or torch tensors in the host's
memory."""


class Written(NamedTuple):
    """A tensor that a call writes."""

    device: Tensor  # what the kernel writes
    given: Any  # a Given, of its memory's kind; what the program has: the same, or its copy in the host's memory


_MOST_SHAPES = 64  # whose makers are kept


class DeviceMemory:
    """torch tensors on the world's device."""

    on_host = False

    def __init__(self, world: World) -> None:
        self._torch = sys.modules["torch"]
        self._device = self._torch.device("cuda", world.device)
        self._types = {FP8: getattr(self._torch, fp8_type(world))}
        self._types |= {name: getattr(self._torch, name) for name in dtypes.CODES if hasattr(self._torch, name)}
        self._makers: dict[tuple[tuple[int, ...], str], Callable[[], Written]] = {}

    def maker(self, shape: tuple[int, ...], dtype: str, columns: bool = False) -> Callable[[], Written]:
        """What makes tensors of that form. columns: the last two dimensions lie column by column."""
        torch, kind, index = self._torch, self._types[dtype], self._device.index
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        if columns:
            strides[-2:] = 1, shape[-2]
        # What torch's compiled graphs call: torch.empty() costs the host several times as much.
        guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
        fast = getattr(guards, "_empty_strided_cuda", None)
        current = torch._C._cuda_getDevice
        strides_of_all = tuple(strides)

        def make() -> Written:
            if fast is None or current() != index:
                given = torch.empty_strided(shape, strides_of_all, dtype=kind, device=self._device)
            else:
                given = fast(shape, strides_of_all, kind)
            return Written(given, given)

        return make

    def new(self, shape: tuple[int, ...], dtype: str) -> Written:
        """A tensor with any contents."""
        make = self._makers.get((shape, dtype))
        if make is None:
            if len(self._makers) == _MOST_SHAPES:
                self._makers.clear()
            make = self._makers[shape, dtype] = self.maker(shape, dtype)
        return make()

    def part(self, result: Written, at: int, shape: tuple[int, ...], dtype: str) -> Given:
        """From byte `at` of a tensor of bytes on."""
        elements = self._types[dtype]
        found: torch.Tensor = result.given[at : at + math.prod(shape) * elements.itemsize].view(elements).view(shape)
        return found

    def changed(self, given: Given, dtype: str) -> Written:
        """A tensor that the call reads and writes."""
        return Written(given, given)

    def output(self, name: str, given: Given, shape: Sequence[int], dtype: str) -> Written:
        """A tensor of the program's, which the call writes; the library checks it."""
        return Written(given, given)

    def input(self, given: Given, dtype: str) -> Tensor:
        """A tensor that the call reads, as kernels see it; the library checks it."""
        return given

    def deliver(self, results: Sequence[Written | None]) -> None:
        """Nothing: what the program has is what the call writes."""


class HostMemory:
    """NumPy arrays, or torch tensors in the host's memory, for the emulator. A call has ended when it returns."""

    on_host = True

    def __init__(self, world: World, like: Given) -> None:
        self._world = world
        self._torch = sys.modules["torch"] if is_torch(like) else None

    def new(self, shape: Sequence[int], dtype: str) -> Written:
        """A tensor with any contents, on the device and on the host."""
        array = Array(self._world, shape, "uint8" if dtype == FP8 else dtype)
        name = fp8_type(self._world) if dtype == FP8 else dtype
        if self._torch is not None:
            return Written(array, self._torch.empty(tuple(shape), dtype=getattr(self._torch, name)))
        return Written(array, np.empty(shape, _numpy_type(name)))

    def maker(self, shape: tuple[int, ...], dtype: str, columns: bool = False) -> Callable[[], Written]:
        """What makes tensors of that form. columns: the last two dimensions lie column by column."""
        if not columns:
            return lambda: self.new(shape, dtype)
        experts, rows, groups = shape
        # An int32 holds four exponents, which kernels see as bytes.
        device = ((experts, groups, rows, 4), "uint8") if dtype == "int32" else ((experts, groups, rows), dtype)

        def make() -> Written:
            array = Array(self._world, *device)
            if self._torch is None:
                return Written(array, np.empty((experts, groups, rows), dtype).transpose(0, 2, 1))
            return Written(
                array, self._torch.empty((experts, groups, rows), dtype=getattr(self._torch, dtype)).transpose(1, 2)
            )

        return make

    def output(self, name: str, given: Given, shape: Sequence[int], dtype: str) -> Written:
        """A tensor of the program's, which deliver() fills; InvalidArgumentError unless it has that form."""
        found = dtypes.name_of(given.dtype)
        if tuple(given.shape) != tuple(shape) or found != dtype:
            raise InvalidArgumentError(
                f"{name} is {found} of shape {tuple(given.shape)}; allowed: {dtype} of shape {tuple(shape)}"
            )
        return Written(Array(self._world, shape, dtype), given)

    def part(self, result: Written, at: int, shape: tuple[int, ...], dtype: str) -> Given:
        """From byte `at` of a tensor of bytes on, a copy."""
        assert isinstance(result.device, Array)
        bits = result.device.numpy()[at : at + math.prod(shape) * np.dtype(dtype).itemsize]
        values = bits.view(dtype).reshape(shape)
        if self._torch is None:
            return values
        found: torch.Tensor = self._torch.from_numpy(values)
        return found

    def changed(self, given: Given, dtype: str) -> Written:
        """A tensor that the call reads and writes: a copy, which deliver() brings back."""
        return Written(self._world.asarray(given, dtype), given)

    def input(self, given: Given, dtype: str) -> Tensor:
        """A copy that the call reads."""
        return self._world.asarray(given, dtype)

    def deliver(self, results: Sequence[Written | None]) -> None:
        """Wait for the call that was enqueued, and copy what it has written to the host."""
        self._world.synchronize()
        for result in results:
            if result is None:
                continue
            array, given = result
            assert isinstance(array, Array)
            if self._torch is not None:
                target = given if given.is_contiguous() else given.transpose(1, 2)  # of columns: as its memory lies
                bits = target.view(self._torch.uint8) if array.dtype == "uint8" else target
                bits.view(array.shape).copy_(array.torch())
            else:
                target = given if given.flags.c_contiguous else given.transpose(0, 2, 1)
                bits = target.view(np.uint8) if array.dtype == "uint8" else target
                bits[...] = array.numpy().reshape(bits.shape)


def _numpy_type(name: str) -> np.dtype[Any]:
    """bfloat16 without ml_dtypes: float32, as Array.numpy() has it; e4m3 without: bytes."""
    if dtypes.ml_dtypes is None:
        name = "float32" if name == "bfloat16" else "uint8" if name.startswith("float8") else name
    return np.dtype(getattr(dtypes.ml_dtypes, name, name))
