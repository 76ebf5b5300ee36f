"""World: this rank's place among ranks that share memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from . import _c, process
from .arguments import MOST_DEADLINE, milliseconds, whole
from .array import Array, asarray
from .context import Context
from .creation import create
from .descriptor import new_desc, set_fields
from .device_streams import Stream, StreamLike
from .targets import choose_target, target_number

if TYPE_CHECKING:
    import torch

    from .creation import GroupLike
    from .dtypes import DTypeLike


class World(Context):
    """A rank, its device and its symmetric heap. Collective: all ranks create it, and close it, alike.

    Use it by `with`, or call close(). Calls of several threads, of its Arrays and operators too, wait for each other.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        Its ranks are processes of this machine. None: the ranks that torchrun, mpirun, srun or `farwarp launch` have
        started, else one rank alone. run() starts ranks as threads.
    target : str
        "cuda", "hip", "emu_sm90" (Hopper, emulated), "emu_gfx942" (CDNA3, emulated), or "auto": a GPU if there is one,
        else "emu_sm90". run() has the emulator as its default: see there.
    device : int
        Ordinal of this rank's device; -1: its rank.
    deadline : float
        The longest wait of a kernel for another rank, in seconds.
    heap_bytes : int
        Of the symmetric heap, from which operators take their buffers.

    Attributes
    ----------
    rank, size : int
        This rank's number, and how many there are.
    target : str
        What `target` stands for on this machine.
    device : int
        Ordinal of this rank's device.
    deadline : float
        As given.
    emulated : bool
        Whether the device is the emulator's.

    Raises
    ------
    InvalidArgumentError
        A parameter is outside what is allowed.
    UnavailableError
        The machine lacks the device, its driver or this target's kernels.
    OutOfMemoryError
        The device has no room for the heap.
    MismatchError
        The ranks disagree.
    MisuseError
        In the child of a fork() of a process that had a World.
    DeadlineError
        A rank has not come.
    """

    def __init__(
        self,
        group: GroupLike = None,
        target: str = "auto",
        *,
        device: int = -1,
        deadline: float = 10.0,
        heap_bytes: int = 256 << 20,
    ) -> None:
        process.check_can_have_worlds()
        target = choose_target(target)
        desc = set_fields(
            new_desc(_c.WorldDesc),
            target=target_number(target),
            device=whole("device", device, -1),
            deadline_ms=milliseconds("deadline", deadline, MOST_DEADLINE),
            heap_bytes=heap_bytes,
        )
        process.begin()
        self._attach(create(group, desc), target, device, deadline)

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        """An Array with any contents.

        Parameters
        ----------
        shape : sequence of int
            Its sizes.
        dtype : str, numpy.dtype or torch.dtype
            "bfloat16", "float16", "float32", "int32", "int64" or "uint8", or a type of NumPy or torch.

        Returns
        -------
        Array
            In the device's memory.

        Raises
        ------
        InvalidArgumentError
            A size, or the type, is not allowed.
        OutOfMemoryError
            The device has no room.
        MisuseError
            The world is closed.
        Error
            A call has failed, for which this one waited to reuse memory.
        """
        return Array(self, shape, dtype)

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        """An Array of zeros. Parameters and failures: empty()."""
        array = Array(self, shape, dtype)
        return array.copy_from(np.zeros(array.shape, np.uint8), None)

    def asarray(
        self,
        values: Array | torch.Tensor | np.typing.ArrayLike,
        dtype: DTypeLike | None = None,
        stream: StreamLike = None,
    ) -> Array:
        """Numbers of the host as an Array.

        Parameters
        ----------
        values : array_like or torch.Tensor
            NumPy arrays, torch tensors, lists. An Array is returned as it is; `dtype` must be its own.
        dtype : str, numpy.dtype or torch.dtype, optional
            As of empty(). Floats are rounded, whole numbers must fit. None: the type of `values`.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            The copy is ordered in it.

        Returns
        -------
        Array
            A copy in the device's memory, so that `values` may be changed; or `values`, an Array.

        Raises
        ------
        InvalidArgumentError
            `values` are no numbers, or numbers that `dtype` has not.
        OutOfMemoryError, MisuseError, Error
            As of empty().
        """
        return asarray(self, values, dtype, stream)

    def stream(self) -> Stream:
        """A new stream, where there is no torch.

        Returns
        -------
        Stream
            It is closed with the world.

        Raises
        ------
        MisuseError
            The world is closed.
        """
        with self.exclusive():
            self.check_open()
            made = Stream(self)
            self.streams.made.append(made)
            return made
