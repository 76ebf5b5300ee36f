"""Tensors in a device's memory.

For programs without a runtime of their own: on the emulator, or on a GPU without torch.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _c, dlpack, dtypes
from .arguments import NotCopyable, shape_of
from .arguments import shape as checked_shape
from .errors import InvalidArgumentError, MisuseError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from numpy.typing import DTypeLike as NumPyDTypeLike  # wider than that of dtypes
    from torch import Tensor as TorchTensor  # in the class torch is a method
    from typing_extensions import CapsuleType  # not needed to run

    from .context import Context
    from .device_streams import StreamLike


class Array(NotCopyable):
    """A contiguous tensor in the memory of a world's device.

    World.empty(), zeros() and asarray() make one; operators return them where they are given no torch tensors on the
    device. Its memory is used again only when the device has passed all calls that were made before the Array was
    dropped. It is neither copied nor pickled.

    NumPy takes an Array (numpy.asarray() copies it, as numpy() does). Libraries with DLPack's from_dlpack() get its
    memory itself, on the emulator as memory of the host.

    Attributes
    ----------
    world : World
        Whose memory it is.
    shape : tuple of int
        Sizes.
    dtype : str
        "bfloat16", "float16", "float32", "int32", "int64" or "uint8".
    nbytes : int
        Bytes of all elements.
    written_on : int or None
        Handle of the stream of the last call that wrote it; None: the default stream.
    address : int
        Of its DLTensor.
    reference : ctypes reference
        To its DLTensor, as calls pass it.
    """

    __slots__ = (
        "world",
        "shape",
        "dtype",
        "nbytes",
        "written_on",
        "address",
        "reference",
        "_pointer",
        "_sizes",
        "_tensor",
        "__weakref__",
    )
    _copying = "its numbers, as numpy() gives"

    def __init__(self, world: Context, shape: Sequence[int], dtype: dtypes.DTypeLike) -> None:
        self._pointer: int | None = None
        self.world = world
        self.dtype = dtypes.name_of(dtype)
        self.shape = checked_shape(shape, dtypes.item_bytes(self.dtype))
        self._sizes = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        kind = dtypes.dl_type(self.dtype)
        self._tensor = _c.DLTensor(device=world.dl_device, ndim=len(self.shape), dtype=kind, shape=self._sizes)
        self.nbytes = math.prod(self.shape) * dtypes.item_bytes(self.dtype)
        self._pointer = world.allocate(max(self.nbytes, 1))
        self._tensor.data = self._pointer
        self.address, self.reference = ctypes.addressof(self._tensor), ctypes.byref(self._tensor)
        self.written_on: int | None = None

    def __del__(self) -> None:
        if self._pointer is not None:
            self.world.retire(self._pointer)

    def __repr__(self) -> str:
        return f"farwarp.Array(shape={self.shape}, dtype={self.dtype}, rank={self.world.rank})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("the Array has no dimensions")
        return self.shape[0]

    # ---- copies

    def numpy(self, stream: StreamLike = None) -> np.ndarray[Any, Any]:
        """A copy in the host's memory.

        Parameters
        ----------
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            The stream to wait for. None: that of the last call that wrote this Array.

        Returns
        -------
        numpy.ndarray
            bfloat16 comes as ml_dtypes.bfloat16 if ml_dtypes is installed, else as float32, which has the same numbers.

        Raises
        ------
        Error
            A call has failed.
        """
        memory = np.empty(self.shape, dtypes.numpy_type(self.dtype))
        self._copy_out(memory.ctypes.data, stream)
        return dtypes.from_storage(memory, self.dtype)

    def torch(self, stream: StreamLike = None) -> TorchTensor:
        """The same as a torch tensor in the host's memory. Parameters and failures: numpy()."""
        import torch

        tensor = torch.empty(self.shape, dtype=dtypes.torch_type(self.dtype))
        self._copy_out(tensor.data_ptr(), stream)
        return tensor

    def copy_from(self, values: TorchTensor | ArrayLike, stream: StreamLike = None, *, name: str = "values") -> Array:
        """Copy numbers of the host here.

        Parameters
        ----------
        values : array_like or torch.Tensor
            Numbers in the host's memory, of this shape. Of another type, floats are rounded; whole numbers must fit.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            The copy is ordered in it.
        name : str
            What messages call `values`.

        Returns
        -------
        Array
            This one.

        Raises
        ------
        InvalidArgumentError
            `values` have another shape, or are not numbers that this Array's type has.
        """
        world = self.world
        handle = world.streams.handle_of(stream)
        torch = sys.modules.get("torch")
        if isinstance(values, Array):
            raise InvalidArgumentError(
                f"{name} is a farwarp.Array; allowed: numbers in the host's memory, as numpy() gives"
            )
        if torch is not None and isinstance(values, torch.Tensor):
            stored: TorchTensor | np.ndarray[Any, Any] = dtypes.to_torch_storage(values, self.dtype, name)
        else:
            stored = dtypes.to_storage(values, self.dtype, name)
        source = stored.ctypes.data if isinstance(stored, np.ndarray) else stored.data_ptr()
        if tuple(stored.shape) != self.shape:
            raise InvalidArgumentError(f"{name} has shape {tuple(stored.shape)}; allowed: {self.shape}")
        with world.exclusive():
            pointer = self._usable()
            self.written(handle)  # before the call: what ends it early must not hide it from close()
            world.check_call(_c.lib.copy_in(world.handle, pointer, source, self.nbytes, handle))
        return self

    def _usable(self) -> int:
        self.world.check_open()
        if self._pointer is None:
            raise MisuseError("the Array has no memory")
        return self._pointer

    def written(self, stream: int | None) -> None:
        """A call that writes it is enqueued on the stream. Within exclusive()."""
        self.written_on = stream
        self.world.streams.use(stream)

    def _copy_out(self, target: int, stream: StreamLike) -> None:
        world = self.world
        handle = self.written_on if stream is None else world.streams.handle_of(stream)
        with world.exclusive():
            pointer = self._usable()
            world.check_call(_c.lib.copy_out(world.handle, target, pointer, self.nbytes, handle))
            world.passed(handle)
            world.check()

    # ---- protocols

    def __array__(self, dtype: NumPyDTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """What numpy.asarray() and numpy.array() ask for: numpy(), as `dtype`.

        Raises
        ------
        ValueError
            `copy` is False: the numbers are always copied.
        """
        if copy is False:
            raise ValueError("copy is False; allowed: True or None, as a farwarp.Array is in the device's memory")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's kind of the device, and its ordinal. Of the emulator: the host's memory, (1, 0)."""
        device = self.world.dl_device
        return device.device_type, device.device_id

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """What from_dlpack() asks for: the memory itself, without a copy.

        The reader has the Array's memory as long as it wants, also when the world is closed. Calls that are made later
        and write the Array write the reader's memory when they run; before the reader writes, calls that read the Array
        must have ended: World.synchronize().

        Parameters
        ----------
        stream : int, optional
            The reader's stream, as DLPack numbers them: None and 1 are the default stream, -1: wait for nothing (an
            emulated World waits). Unless it is that of the last call that wrote this Array, the host waits for that
            call.
        max_version : tuple of int, optional
            The newest DLPack that the reader takes. None: from before version 1.
        dl_device : tuple of int, optional
            The device that the reader wants; it must be this one.
        copy : bool, optional
            Must not be True.

        Returns
        -------
        PyCapsule
            "dltensor_versioned", or "dltensor" for a reader from before version 1.

        Raises
        ------
        BufferError
            Another device, or a copy, is wanted.
        MisuseError
            The world is closed.
        Error
            A call has failed.
        """
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != device:
            raise BufferError(f"dl_device is {dl_device}; allowed: {device}, the Array's device; numpy() copies")
        if copy:
            raise BufferError("copy is True; allowed: None or False; numpy() copies")
        if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int) or stream < -1):
            raise BufferError(f"stream is {stream!r}; allowed: None, -1, a stream as DLPack numbers them")
        world = self.world
        reader = None if stream in (0, 1) else stream  # the default stream is 1 in CUDA, 0 in ROCm
        if world.emulated or (stream != -1 and reader != self.written_on):
            world.synchronize(self.written_on or 0)
        with world.exclusive():
            pointer = self._usable()
            memory = world.memory

            def released(key: int, _held: Array = self) -> None:
                memory.give_back(key)

            return dlpack.capsule(
                pointer,
                self.shape,
                self._tensor.dtype,
                world.dl_device,
                max_version is not None and tuple(max_version) >= dlpack.VERSION,
                lambda key: memory.lend(key, pointer),
                released,
            )


def asarray(
    world: Context,
    values: Array | TorchTensor | ArrayLike,
    dtype: dtypes.DTypeLike | None = None,
    stream: StreamLike = None,
) -> Array:
    """What World.asarray() does."""
    if isinstance(values, Array):
        if dtype is None or dtypes.name_of(dtype) == values.dtype:
            return values
        raise InvalidArgumentError(f"dtype is {dtypes.name_of(dtype)}; allowed: {values.dtype}, which the Array has")
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(values, torch.Tensor):
        values = dtypes.as_numbers(values, "values")
    name = dtypes.name_of(values.dtype if dtype is None else dtype)
    return Array(world, shape_of("values", values), name).copy_from(values, stream)
