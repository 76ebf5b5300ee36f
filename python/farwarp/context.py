"""What arrays, calls and operators need of their world.

Its handle in C, its streams and memory, and how it fails and ends. World adds what needs arrays.
"""

from __future__ import annotations

import ctypes
import warnings
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeVar

from . import _c, process
from .allocations import Allocations
from .arguments import NotCopyable, milliseconds
from .device_streams import DeviceStreams, StreamLike
from .errors import Error, MisuseError, check, error_of
from .registry import Registry
from .targets import TARGETS

_DEVICE_TYPES = dict(zip(TARGETS, (_c.CUDA, _c.ROCM, _c.CPU, _c.CPU)))  # DLPack's

Self = TypeVar("Self", bound="Context")


class Context(NotCopyable):
    """A rank, its device and its symmetric heap: the part of World that knows no arrays.

    Attributes
    ----------
    rank, size : int
        This rank's number, and how many there are.
    target : str
        "cuda", "hip", "emu_sm90" or "emu_gfx942".
    device : int
        Ordinal of this rank's device.
    deadline : float
        The longest wait of a kernel for another rank, in seconds.
    emulated : bool
        Whether the device is the emulator's.
    handle : int or None
        The farwarp_world of C; None before it was created and after it was closed.
    streams : DeviceStreams
        Those of the device.
    memory : Allocations
        What its Arrays have.
    operators : Registry
        The open ones.
    dl_device : DLDevice
        The device as DLPack calls it.
    """

    _copying = "another World, which all ranks create"
    _why_not: str | None = "the World was not created"  # usable, if None
    handle: int | None = None

    def _attach(self, handle: int, target: str, device: int, deadline: float) -> None:
        """Of what C has created."""
        self.handle = handle
        self._why_not = None
        self._told = False  # whether the failure that it is in has been raised
        self.rank: int = _c.lib.world_rank(handle)
        self.size: int = _c.lib.world_size(handle)
        self.target = target
        self.device = device if device >= 0 else self.rank
        self.deadline = deadline
        self.emulated = target.startswith("emu_")
        self.dl_device = _c.DLDevice(_DEVICE_TYPES[target], 0 if self.emulated else self.device)
        name = f"farwarp.World(rank {self.rank} of {self.size}, {target})"
        self._name = name
        self.streams = DeviceStreams(self.device, self.emulated, name)
        self.memory = Allocations(handle, self.streams)
        self.operators = Registry()
        process.add(self)

    def __repr__(self) -> str:
        return self._name if self.handle else "farwarp.World(closed)"

    # ---- for arrays and operators

    @property
    def is_open(self) -> bool:
        """Whether it can be used: it was created, is not closed, and not a copy in the child of a fork()."""
        return self._why_not is None

    def check_open(self) -> None:
        """Raise MisuseError if it cannot be used."""
        if self._why_not is not None:
            raise MisuseError(f"{self._why_not}; allowed: a World that is open")

    def exclusive(self) -> AbstractContextManager[object]:
        """That of the streams."""
        return self.streams.exclusive()

    def allocate(self, nbytes: int) -> int:
        """The address of new memory of the device, which retire() gives back."""
        with self.exclusive():
            self.check_open()
            if self.memory.crowded:
                self.synchronize()
            return self.memory.allocate(nbytes)

    def retire(self, address: int) -> None:
        """Nobody uses that memory in new calls. On any thread; nothing if the world has ended."""
        if self.is_open:
            self.memory.retire(address)

    def passed(self, stream: int | None) -> None:
        """The device has passed everything that was enqueued on the stream. Within exclusive()."""
        self.streams.busy.pop(stream, None)
        self.memory.passed(stream)

    def synchronize(self, stream: StreamLike = None, timeout: float = 60.0) -> None:
        """Wait for streams.

        Parameters
        ----------
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            The stream. None: all streams that calls of this world were enqueued on.
        timeout : float
            The longest wait for each, in seconds.

        Raises
        ------
        DeadlineError
            A wait was longer.
        Error
            A call has failed.
        """
        most = milliseconds("timeout", timeout)
        with self.exclusive():
            self.check_open()
            handles = list(self.streams.busy) if stream is None else [self.streams.handle_of(stream)]
            for handle in handles:
                self.check_call(_c.lib.synchronize(self.handle, handle, most))
                self.passed(handle)
            if not handles:
                self.passed(None)  # Arrays that were dropped while no stream was in use
            self.check()

    # ---- failures

    def check(self) -> None:
        """Raise the first failure of a call that was enqueued, since creation or recover().

        It does not wait for the device.
        """
        with self.exclusive():
            self.check_open()
            self.check_call(_c.lib.world_status(self.handle))

    def check_call(self, code: int) -> None:
        """Raise the failure that a function of C has returned to this thread. Within exclusive()."""
        if code:
            raise self.failure(code)

    def failure(self, code: int) -> Error:
        """The same, for the caller to raise: if the world is in that failure, close() does not raise it again."""
        error = error_of(code)
        state = _c.lib.world_status(self.handle)
        if state and str(error_of(state)) == str(error):  # not a wait that was too short, or a bad argument
            self._told = True
        return error

    def recover(self) -> None:
        """Wait for the streams after a failure, and clear it. Collective.

        Operators are usable again; Qwen3's sequences have ended.

        Raises
        ------
        PeerLostError
            A rank is gone: the world can only be closed.
        MismatchError
            A rank makes another call.
        MisuseError
            The world is closed.
        """
        with self.exclusive():
            self.check_open()
            handles = list(self.streams.busy)
            streams = (ctypes.c_void_p * max(1, len(handles)))(*handles)
            check(_c.lib.world_recover(self.handle, ctypes.addressof(streams), len(handles)))
            self._told = False
            for handle in handles:
                self.passed(handle)
            self.operators.recovered()

    # ---- the end

    def close(self) -> None:
        """Close the operators that are open, then the world. Collective. Does nothing if it is closed.

        Arrays lose their memory; what is lent through DLPack stays allocated until the process ends.

        Raises
        ------
        Error
            A failure of a call that has not been raised yet, or the first one of closing. The world is closed in any
            case.
        """
        self._finish(together=True)

    def leave(self) -> None:
        """End without the other ranks, whose waits end with an error. Does nothing if it is closed."""
        self._finish(together=False)

    def __enter__(self: Self) -> Self:
        self.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """close(). After an exception this rank leaves instead: the other ranks' waits end with an error."""
        self._finish(together=kind is None)

    def __del__(self) -> None:
        if self.handle is not None and self.is_open:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)
            self.leave()

    def _finish(self, together: bool) -> None:
        if self.handle is None or not self.is_open:
            return
        with self.exclusive():
            if self.handle is not None and self.is_open:
                self._destroy(together)

    def _destroy(self, together: bool) -> None:
        lib, handle = _c.lib, self.handle
        self._why_not = "the World is closed"
        if not together:
            lib.world_leave(handle)
        failure: Error | None = None
        most = 3 * milliseconds("deadline", self.deadline)
        drained = all([lib.synchronize(handle, stream, most) == 0 for stream in self.streams.busy])  # noqa: C419
        code = lib.world_status(handle) if together and not self._told else 0
        if code:
            failure = error_of(code)
        failure_of_closing = self.operators.close_all()
        self.memory.end(free=drained or not together)  # a rank that leaves has ended its kernels' waits
        for stream in self.streams.made:
            lib.stream_destroy(handle, stream.handle)
        lib.world_destroy(handle)
        self.handle = None
        failure = failure or failure_of_closing
        if together and failure is not None:
            raise failure

    def forked(self, why: str) -> None:
        """In the child of a fork(): its copy cannot be used, for that reason."""
        self._why_not = why
        self.streams.forked()
        self.operators.forked()
