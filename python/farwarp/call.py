"""Calls of the functions of c.h that take a handle, tensors and a stream, and the tensors that they are given."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from . import _c, dtypes, exchange
from .array import Array
from .context import Context
from .device_streams import StreamLike
from .errors import InvalidArgumentError
from .operator import Operator
from .tensors import Tensor, is_torch

if TYPE_CHECKING:
    import torch

_MOST_PREPARED = 64
_ALLOWED = "a farwarp.Array, a numpy.ndarray, a torch.Tensor"
_fills: dict[type, exchange.Fill | None] = {}  # of each class that operators have been given


class _Prepared:
    """A DLTensor of which only the data's address is still to be set: for a torch without the exchange API."""

    __slots__ = ("dtype", "index", "tensor", "reference", "_sizes", "_strides")

    def __init__(self, tensor: torch.Tensor, device: _c.DLDevice) -> None:
        self.dtype, self.index = tensor.dtype, tensor.get_device()
        name = dtypes.name_of(tensor.dtype)
        code = dtypes.CODES.get(name) or dtypes.FP8_CODES.get(name)
        ndim = tensor.dim()
        self._sizes = (ctypes.c_int64 * max(1, ndim))(*tensor.shape)
        self._strides = (ctypes.c_int64 * max(1, ndim))(*tensor.stride())
        kind = device.device_type if tensor.is_cuda else _c.CPU
        self.tensor = _c.DLTensor(
            device=_c.DLDevice(kind, max(self.index, 0)),
            ndim=ndim,
            shape=self._sizes,
            strides=self._strides,
            dtype=_c.DLDataType(*code, 1) if code is not None else _c.DLDataType(255, 8 * tensor.element_size(), 1),
        )
        self.reference = ctypes.byref(self.tensor)


class Parameter:
    """A tensor parameter of an operator: of what a caller gives, a reference to a DLTensor.

    On a GPU the library says whether its type, shape, strides and device are allowed. On the emulator, where inputs are
    copied, type, strides and device are checked here, and the shape there.
    """

    __slots__ = ("name", "world", "tensor", "reference", "_prepared")

    def __init__(self, name: str, world: Context) -> None:
        self.name, self.world = name, world
        self.tensor = _c.DLTensor()
        self.reference = ctypes.byref(self.tensor)
        self._prepared: dict[torch.Size | None, _Prepared] = {}

    def input(self, value: Tensor, stream: int | None, keep: list[Array]) -> _c.Reference:
        """A reference to the DLTensor; `keep` gets what must live until the call has been enqueued."""
        if type(value) is Array:
            return self._own(value)
        if self.world.emulated:  # its kernels see memory of the world only
            copy = self._copy(value, stream)
            keep.append(copy)
            return copy.reference
        return self._device_tensor(value)

    def output(self, value: Tensor) -> _c.Reference:
        """The same of a tensor that the call writes."""
        if type(value) is Array:
            return self._own(value)
        if self.world.emulated:
            raise InvalidArgumentError(
                f"{self.name} is a {type(value).__name__}; allowed: a farwarp.Array, as World.empty() makes"
            )
        return self._device_tensor(value)

    def _own(self, array: Array) -> _c.Reference:
        if array.world is not self.world:
            raise InvalidArgumentError(f"{self.name} is of {array.world!r}; allowed: an Array of {self.world!r}")
        return array.reference

    def _copy(self, value: Tensor, stream: int | None) -> Array:
        if not isinstance(value, np.ndarray) and not is_torch(value):
            raise InvalidArgumentError(f"{self.name} is a {type(value).__name__}; allowed: {_ALLOWED}")
        if not isinstance(value, np.ndarray) and value.device.type != "cpu":
            raise InvalidArgumentError(f"{self.name} is on {value.device}; allowed: cpu, on the emulator")
        if dtypes.name_of(value.dtype) not in dtypes.CODES:
            raise InvalidArgumentError(
                f"{self.name} is of {dtypes.name_of(value.dtype)}; allowed: {', '.join(dtypes.CODES)}"
            )
        contiguous = value.flags.c_contiguous if isinstance(value, np.ndarray) else value.is_contiguous()
        if not contiguous:
            raise InvalidArgumentError(
                f"{self.name} has strides {_strides(value)} for shape {tuple(value.shape)}; "
                "allowed: a contiguous tensor"
            )
        return Array(self.world, value.shape, value.dtype).copy_from(value, stream, name=self.name)

    def _device_tensor(self, tensor: Tensor) -> _c.Reference:
        try:
            fill = _fills[tensor.__class__]
        except KeyError:
            fill = _fills[tensor.__class__] = exchange.fill_of(tensor.__class__)
        if fill is None:
            return self._prepare(tensor)
        fill(id(tensor), self.reference)
        return self.reference

    def _prepare(self, tensor: Tensor) -> _c.Reference:
        if not is_torch(tensor):
            raise InvalidArgumentError(
                f"{self.name} is a {type(tensor).__name__}; allowed: a torch.Tensor on the device, a farwarp.Array"
            )
        contiguous = tensor.is_contiguous()
        prepared = self._prepared.get(tensor.shape) if contiguous else None
        if prepared is None or tensor.dtype is not prepared.dtype or tensor.get_device() != prepared.index:
            prepared = _Prepared(tensor, self.world.dl_device)
            if len(self._prepared) == _MOST_PREPARED:
                self._prepared.clear()
            self._prepared[tensor.shape if contiguous else None] = prepared  # None: alive during the call
        prepared.tensor.data = tensor.data_ptr()
        return prepared.reference


def _strides(value: np.ndarray[Any, Any] | torch.Tensor) -> tuple[int, ...]:
    """In elements."""
    if isinstance(value, np.ndarray):
        return tuple(stride // value.itemsize for stride in value.strides)
    return tuple(value.stride())


class Call:
    """A function of c.h that takes a handle, tensors (inputs first) and a stream.

    What the function takes is compared with its declaration once, here. For combinations of classes that all have the
    exchange API, what to do is kept: which tensors fill which DLTensor, and the references that the function is given.
    So ctypes converts nothing in such a call.
    """

    __slots__ = ("_function", "_inputs", "_parameters", "_needed", "_streams", "_known", "_slow")

    def __init__(
        self, world: Context, function: str | Callable[..., int], inputs: str, outputs: str = "", *, optional: str = ""
    ) -> None:
        """Of a world's operators.

        Parameters
        ----------
        world : World
            Whose calls they are.
        function : str or callable
            Its name in c.h without "farwarp_", or what stands between this call and one of another form:
            function(handle, reference..., stream) -> code.
        inputs, outputs : str
            Names of the tensors, for messages.
        optional : str
            Inputs that may be None.
        """
        self._parameters = tuple(Parameter(name, world) for name in f"{inputs} {outputs}".split())
        self._inputs = len(inputs.split())
        self._needed = frozenset(inputs.split()) - set(optional.split())
        if isinstance(function, str):
            if _c.FUNCTIONS[function] != (ctypes.c_int32, *[ctypes.c_void_p] * (len(self._parameters) + 2)):
                raise TypeError(f"{function} takes other parameters than a handle, {inputs} {outputs} and a stream")
            self._function: Callable[..., int] = _c.lib.unchecked(function)
        else:
            self._function = function
        self._streams = world.streams
        self._known: dict[
            tuple[type, ...], tuple[list[tuple[int, exchange.Fill, _c.Reference]], list[_c.Reference | None]]
        ] = {}
        self._slow: set[tuple[type, ...]] = set()  # combinations whose references are made anew by every call

    def enqueue(self, operator: Operator, tensors: Sequence[Tensor | None], stream: StreamLike) -> list[Array]:
        """Make a call.

        Parameters
        ----------
        operator : Operator
            Whose handle the function is given.
        tensors : sequence
            Inputs, then outputs; None: none.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current one.

        Returns
        -------
        list
            The copies of inputs that were made; a later half of the call may read them again.

        Raises
        ------
        InvalidArgumentError
            A tensor, its class or the number of outputs is not allowed.
        MisuseError
            The operator is closed.
        Error
            What the function of C has returned.
        """
        streams = self._streams
        with streams.exclusive():
            handle = operator.handle
            if handle is None:
                handle = operator.open_handle()
            on = streams.current() if stream is None else streams.handle_of(stream)
            keep: list[Array] = []
            kinds = tuple(map(type, tensors))
            known = self._known.get(kinds)
            if known is not None:
                fills, references = known
                for i, fill, reference in fills:
                    fill(id(tensors[i]), reference)
            else:
                if len(tensors) != len(self._parameters):  # the function would be called with fewer, or more
                    outputs = [parameter.name for parameter in self._parameters[self._inputs :]]
                    raise InvalidArgumentError(
                        f"out has {len(tensors) - self._inputs} tensors; allowed: {len(outputs)}, {' '.join(outputs)}"
                    )
                references = self._references(tensors, on, keep)
                if kinds not in self._slow:
                    self._learn(kinds)
            busy = streams.busy
            if on not in busy:
                streams.use(on)
            if known is None:
                for output in tensors[self._inputs :]:
                    if type(output) is Array:
                        output.written_on = on
            code = self._function(handle, *references, busy[on])
            if code:
                raise operator.world.failure(code)
            return keep

    def _references(
        self, tensors: Sequence[Tensor | None], on: int | None, keep: list[Array]
    ) -> list[_c.Reference | None]:
        """References to the tensors, whatever their classes."""
        references: list[_c.Reference | None] = []
        for i, (parameter, tensor) in enumerate(zip(self._parameters, tensors)):
            if tensor is None:
                if parameter.name in self._needed:
                    raise InvalidArgumentError(f"{parameter.name} is a NoneType; allowed: {_ALLOWED}")
                references.append(None)
            elif i < self._inputs:
                references.append(parameter.input(tensor, on, keep))
            else:
                references.append(parameter.output(tensor))
        return references

    def _learn(self, kinds: tuple[type, ...]) -> None:
        """Of classes that a call has come with and that are allowed."""
        present = [(i, parameter) for i, parameter in enumerate(self._parameters) if kinds[i] is not type(None)]
        found = [(i, _fills.get(kinds[i]), parameter.reference) for i, parameter in present]
        fills = [(i, fill, reference) for i, fill, reference in found if fill is not None]
        if self._streams.emulated or len(fills) < len(found):
            self._slow.add(kinds)
        else:
            references = [
                None if kind is type(None) else parameter.reference for kind, parameter in zip(kinds, self._parameters)
            ]
            self._known[kinds] = fills, references
