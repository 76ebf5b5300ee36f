"""Where a Buffer's tensors lie: on the device, as torch tensors that kernels use; or, on the emulator, in the host's
memory, as NumPy arrays or torch tensors that are copied to the emulated device and back."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Sequence

import numpy as np

from .. import dtypes
from ..array import Array
from ..call import is_torch
from ..errors import InvalidArgumentError
from ..world import World

FP8 = "fp8"  # among names of types: e4m3, of the device's kind


def fp8_type(world: World) -> str:
    """torch's and ml_dtypes' name of the device's e4m3."""
    if world.target == "emu_gfx942":
        return "float8_e4m3fnuz"
    if world.target == "hip":
        name = sys.modules["torch"].cuda.get_device_properties(world.device).gcnArchName
        return "float8_e4m3fnuz" if name.startswith("gfx94") else "float8_e4m3fn"
    return "float8_e4m3fn"


class Result(NamedTuple):
    """A tensor that a call writes."""

    device: Any  # what the kernel writes
    given: Any  # what the program has: the same, or its copy in the host's memory


class DeviceMemory:
    """torch tensors on the world's device."""

    on_host = False

    def __init__(self, world: World) -> None:
        self._torch = sys.modules["torch"]
        self._device = self._torch.device("cuda", world.device)
        self._fp8 = fp8_type(world)

    def new(self, shape: Sequence[int], dtype: str) -> Result:
        given = self._torch.empty(shape, dtype=getattr(self._torch, self._fp8 if dtype == FP8 else dtype), device=self._device)
        return Result(given.view(self._torch.uint8) if dtype == FP8 else given, given)

    def output(self, name: str, given: Any, shape: Sequence[int], dtype: str) -> Result:
        """A tensor of the program's; the library checks it."""
        return Result(given, given)

    def input(self, given: Any, dtype: str) -> Any:
        return given

    def deliver(self, results: Sequence[Result | None]) -> None:
        """After a call was enqueued that writes them."""


class HostMemory:
    """NumPy arrays, or torch tensors in the host's memory, for the emulator. A call has ended when it returns."""

    on_host = True

    def __init__(self, world: World, like: Any) -> None:
        self._world = world
        self._torch = sys.modules["torch"] if is_torch(like) else None

    def new(self, shape: Sequence[int], dtype: str) -> Result:
        array = Array(self._world, shape, "uint8" if dtype == FP8 else dtype)
        name = fp8_type(self._world) if dtype == FP8 else dtype
        if self._torch is not None:
            return Result(array, self._torch.empty(tuple(shape), dtype=getattr(self._torch, name)))
        return Result(array, np.empty(shape, _numpy_type(name)))

    def output(self, name: str, given: Any, shape: Sequence[int], dtype: str) -> Result:
        found = dtypes.name_of(given.dtype)
        if tuple(given.shape) != tuple(shape) or found != dtype:
            raise InvalidArgumentError(f"{name} is {found} of shape {tuple(given.shape)}; allowed: {dtype} of shape {tuple(shape)}")
        return Result(Array(self._world, shape, dtype), given)

    def input(self, given: Any, dtype: str) -> Any:
        return self._world.asarray(given, dtype)

    def deliver(self, results: Sequence[Result | None]) -> None:
        self._world.synchronize()
        for result in results:
            if result is None:
                continue
            array, given = result
            if self._torch is not None:
                bits = given.view(self._torch.uint8) if array.dtype == "uint8" else given
                bits.copy_(array.torch())
            else:
                bits = given.view(np.uint8) if array.dtype == "uint8" else given
                bits[...] = array.numpy()


def _numpy_type(name: str) -> np.dtype:
    """bfloat16 without ml_dtypes: float32, as Array.numpy() has it; e4m3 without: bytes."""
    if dtypes.ml_dtypes is None:
        name = "float32" if name == "bfloat16" else "uint8" if name.startswith("float8") else name
    return np.dtype(getattr(dtypes.ml_dtypes, name, name))
