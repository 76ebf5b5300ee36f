"""What all operators share: creation, calls, closing, and their tensors."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Sequence, Union

import numpy as np

from . import _c, dtypes, exchange
from .array import Array
from .errors import InvalidArgumentError, MisuseError, check
from .world import World

if TYPE_CHECKING:
    import torch

Tensor = Union[Array, np.ndarray, "torch.Tensor"]  # what operators take

_MOST_PREPARED = 64
_fills: dict[type, exchange.Fill | None] = {}  # of each class that operators have been given


class _Prepared:
    """A DLTensor of which only the data's address is still to be set: for a torch without the exchange API."""

    __slots__ = ("dtype", "index", "tensor", "address", "_sizes", "_strides")

    def __init__(self, tensor: Any, device: _c.DLDevice) -> None:
        self.dtype, self.index = tensor.dtype, tensor.get_device()
        name = dtypes.name_of(tensor.dtype)
        known = name in dtypes.CODES
        ndim = tensor.dim()
        self._sizes = (ctypes.c_int64 * max(1, ndim))(*tensor.shape)
        self._strides = (ctypes.c_int64 * max(1, ndim))(*tensor.stride())
        kind = device.device_type if tensor.is_cuda else _c.CPU
        self.tensor = _c.DLTensor(
            device=_c.DLDevice(kind, max(self.index, 0)),
            ndim=ndim,
            shape=self._sizes,
            strides=self._strides,
            dtype=dtypes.dl_type(name) if known else _c.DLDataType(255, 8 * tensor.element_size(), 1),
        )
        self.address = ctypes.addressof(self.tensor)


class Parameter:
    """A tensor parameter of an operator: of what a caller gives, the address of a DLTensor. Whether its type, shape,
    strides and device are allowed the library says."""

    __slots__ = ("name", "world", "_tensor", "_address", "_prepared")

    def __init__(self, name: str, world: World) -> None:
        self.name, self.world = name, world
        self._tensor = _c.DLTensor()
        self._address = ctypes.addressof(self._tensor)
        self._prepared: dict[Any, _Prepared] = {}

    def input(self, value: Any, stream: int | None) -> tuple[int, Any]:
        """The DLTensor's address, and what must live until the call has been enqueued."""
        if value.__class__ is Array:
            return self._own(value), None
        if self.world.emulated:  # its kernels see memory of the world only
            copy = self._copy(value, stream)
            return copy._address, copy
        return self._device_tensor(value), None

    def output(self, value: Any) -> int:
        """The same of a tensor that the call writes."""
        if value.__class__ is Array:
            return self._own(value)
        if self.world.emulated:
            raise InvalidArgumentError(f"{self.name} is a {type(value).__name__}; allowed: a farwarp.Array, as World.empty() makes")
        return self._device_tensor(value)

    def _own(self, array: Array) -> int:
        if array.world is not self.world:
            raise InvalidArgumentError(f"{self.name} is of {array.world!r}; allowed: an Array of {self.world!r}")
        return array._address

    def _copy(self, value: Any, stream: int | None) -> Array:
        if not isinstance(value, np.ndarray) and not _is_torch(value):
            raise InvalidArgumentError(
                f"{self.name} is a {type(value).__name__}; allowed: a farwarp.Array, a numpy.ndarray, a torch.Tensor"
            )
        if not isinstance(value, np.ndarray) and value.device.type != "cpu":
            raise InvalidArgumentError(f"{self.name} is on {value.device}; allowed: cpu, on the emulator")
        contiguous = value.flags.c_contiguous if isinstance(value, np.ndarray) else value.is_contiguous()
        if not contiguous:
            raise InvalidArgumentError(
                f"{self.name} has strides {_strides(value)} for shape {tuple(value.shape)}; allowed: a contiguous tensor"
            )
        return Array(self.world, value.shape, value.dtype).copy_from(value, stream)

    def _device_tensor(self, tensor: Any) -> int:
        try:
            fill = _fills[tensor.__class__]
        except KeyError:
            fill = _fills[tensor.__class__] = exchange.fill_of(tensor.__class__)
        if fill is None:
            return self._prepare(tensor)
        fill(tensor, self._address)
        return self._address

    def _prepare(self, tensor: Any) -> int:
        if not _is_torch(tensor):
            raise InvalidArgumentError(f"{self.name} is a {type(tensor).__name__}; allowed: a torch.Tensor on the device, a farwarp.Array")
        contiguous = tensor.is_contiguous()
        prepared = self._prepared.get(tensor.shape) if contiguous else None
        if prepared is None or tensor.dtype is not prepared.dtype or tensor.get_device() != prepared.index:
            prepared = _Prepared(tensor, self.world._dl_device)
            if len(self._prepared) == _MOST_PREPARED:
                self._prepared.clear()
            self._prepared[tensor.shape if contiguous else None] = prepared  # None: alive during the call
        prepared.tensor.data = tensor.data_ptr()
        return prepared.address


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _strides(value: Any) -> tuple[int, ...]:
    """In elements."""
    if isinstance(value, np.ndarray):
        return tuple(stride // value.itemsize for stride in value.strides)
    return tuple(value.stride())


class Operator:
    """Created once, collectively, by all ranks of a world, and called many times. It is closed with its world, or by
    close(), or by `with`.

    Calls take farwarp.Array and torch tensors in the memory of the world's device; on the emulator also NumPy arrays
    and torch tensors in the host's memory, which are copied. Results are what `out=` names, which is then returned;
    else new torch tensors if the first input is one on the device, else new Arrays. Calls only enqueue, on `stream`
    (farwarp.Stream, torch.cuda.Stream, a handle), or torch's current stream on a GPU, or the default stream. They can
    be captured in CUDA graphs. What a kernel finds later is raised by World.check(), by Array.numpy(), and when the
    world is closed. torch tensors that are used on a side stream need torch's record_stream(), as always.

    Failures that are known at once are raised at once: InvalidArgumentError names the parameter, its value and what is
    allowed.
    """

    _name = ""  # of its functions in c.h

    def _open(self, world: World, desc: ctypes.Structure) -> None:
        """Collective."""
        self._handle: int | None = None
        self.world = world
        world._usable()
        handle = ctypes.c_void_p()
        check(getattr(_c.lib, self._name + "_create")(world._handle, ctypes.addressof(desc), ctypes.addressof(handle)))
        self._handle = handle.value
        world._operators[id(self)] = self

    def close(self) -> None:
        """Collective; waits for the streams of the world's calls first. Does nothing if it is closed."""
        if self._handle is not None:
            self.world.synchronize()
            self._close()

    def _close(self) -> None:
        handle, self._handle = self._handle, None
        self.world._operators.pop(id(self), None)
        check(getattr(_c.lib, self._name + "_close")(handle))

    def __enter__(self) -> Any:
        self._open_handle()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """close(); not after an exception, because the other ranks may not close it now: the world does it."""
        if kind is None:
            self.close()

    def _open_handle(self) -> int:
        handle = self._handle
        if handle is None:
            self.world._usable()
            raise MisuseError(f"{type(self).__name__} is closed; allowed: calls before close()")
        return handle

    def _begin(self, stream: Any) -> tuple[int, int | None]:
        """The handle and the stream of a call. What the call is given must be referenced until it has been enqueued."""
        handle = self._open_handle()
        on = self.world._stream_of(stream)
        self.world._busy.add(on)
        return handle, on

    def _new(self, like: Any, shape: Sequence[int], dtype: str) -> Any:
        """A tensor for a result: of torch if `like` is one on the device."""
        world = self.world
        if world.emulated or like.__class__ is Array or not _is_torch(like):
            return Array(world, shape, dtype)
        return sys.modules["torch"].empty(shape, dtype=dtypes.torch_type(dtype), device=like.device)

    def _called(self, code: int, stream: int | None, outputs: Sequence[Any]) -> None:
        """After a call."""
        check(code)
        for output in outputs:
            if output.__class__ is Array:
                output._stream = stream
