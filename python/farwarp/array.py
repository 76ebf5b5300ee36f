"""Tensors in a device's memory, for programs without a runtime of their own: on the emulator, or on a GPU without
torch."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from . import _c, dtypes
from .arguments import Handle, shape_of
from .arguments import shape as checked_shape
from .errors import InvalidArgumentError, MisuseError, check

if TYPE_CHECKING:
    from .world import World


class Array(Handle):
    """A contiguous tensor in the memory of a world's device. World.empty(), zeros() and asarray() make one; operators
    return them where they are given no torch tensors on the device.

    Its memory is used again only when the device has passed all calls that were made before the Array was dropped. It is
    neither copied nor pickled.
    """

    __slots__ = ("world", "shape", "dtype", "nbytes", "_pointer", "_stream", "_sizes", "_tensor", "_address", "_reference", "__weakref__")
    _copying = "its numbers, as numpy() gives"

    def __init__(self, world: World, shape: Sequence[int], dtype: Any) -> None:
        self._pointer = None
        self.world = world
        self.dtype = dtypes.name_of(dtype)
        self.shape = checked_shape(shape, dtypes.item_bytes(self.dtype))
        self._sizes = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        self._tensor = _c.DLTensor(device=world._dl_device, ndim=len(self.shape), dtype=dtypes.dl_type(self.dtype), shape=self._sizes)
        self.nbytes = math.prod(self.shape) * dtypes.item_bytes(self.dtype)
        self._pointer = world._allocate(max(self.nbytes, 1))
        self._tensor.data = self._pointer
        self._address, self._reference = ctypes.addressof(self._tensor), ctypes.byref(self._tensor)
        self._stream: int | None = None  # of the last call that wrote it

    def __del__(self) -> None:
        if self._pointer is not None:
            self.world._retire(self._pointer)

    def __repr__(self) -> str:
        return f"farwarp.Array(shape={self.shape}, dtype={self.dtype}, rank={self.world.rank})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("the Array has no dimensions")
        return self.shape[0]

    def numpy(self, stream: Any = None) -> np.ndarray:
        """A copy in the host's memory. Waits for the stream of the last call that wrote this Array, or for `stream`,
        then raises if a call has failed.

        bfloat16 comes as ml_dtypes.bfloat16 if ml_dtypes is installed, else as float32, which has the same numbers.
        """
        memory = np.empty(self.shape, dtypes.numpy_type(self.dtype))
        self._copy_out(memory.ctypes.data, stream)
        return dtypes.from_storage(memory, self.dtype)

    def torch(self, stream: Any = None) -> Any:
        """The same as a torch tensor in the host's memory."""
        import torch

        tensor = torch.empty(self.shape, dtype=dtypes.torch_type(self.dtype))
        self._copy_out(tensor.data_ptr(), stream)
        return tensor

    def copy_from(self, values: Any, stream: Any = None) -> Array:
        """Copies `values` (NumPy, torch in the host's memory, lists) here, ordered in `stream`. Returns this Array.

        Of another type, floats are rounded; whole numbers must fit.
        """
        return self._copy_in(values, stream, "values")

    def _copy_in(self, values: Any, stream: Any, name: str) -> Array:
        """name: of `values`, for messages."""
        world = self.world
        handle = world._stream_of(stream)
        torch = sys.modules.get("torch")
        if isinstance(values, Array):
            raise InvalidArgumentError(f"{name} is a farwarp.Array; allowed: numbers in the host's memory, as numpy() gives")
        if torch is not None and isinstance(values, torch.Tensor):
            values = dtypes.to_torch_storage(values, self.dtype, name)
            source = values.data_ptr()
        else:
            values = dtypes.to_storage(values, self.dtype, name)
            source = values.ctypes.data
        if tuple(values.shape) != self.shape:
            raise InvalidArgumentError(f"{name} has shape {tuple(values.shape)}; allowed: {self.shape}")
        with world._lock:
            self._usable()
            self._written(handle)  # before the call: what ends it early must not hide it from close()
            check(_c.lib.copy_in(world._handle, self._pointer, source, self.nbytes, handle))
        return self

    def _usable(self) -> None:
        self.world._usable()
        if self._pointer is None:
            raise MisuseError("the Array has no memory")

    def _written(self, stream: int | None) -> None:
        self._stream = stream
        self.world._use(stream)

    def _copy_out(self, target: int, stream: Any) -> None:
        world = self.world
        handle = self._stream if stream is None else world._stream_of(stream)
        with world._lock:
            self._usable()
            check(_c.lib.copy_out(world._handle, target, self._pointer, self.nbytes, handle))
            world._passed(handle)
            world.check()


def asarray(world: World, values: Any, dtype: Any = None, stream: Any = None) -> Array:
    """What World.asarray() does."""
    if isinstance(values, Array):
        if dtype is None or dtypes.name_of(dtype) == values.dtype:
            return values
        raise InvalidArgumentError(f"dtype is {dtypes.name_of(dtype)}; allowed: {values.dtype}, which the Array has")
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(values, torch.Tensor):
        values = dtypes.as_numbers(values, "values")
    name = dtypes.name_of(values.dtype if dtype is None else dtype)
    return Array(world, shape_of("values", values), name)._copy_in(values, stream, "values")
