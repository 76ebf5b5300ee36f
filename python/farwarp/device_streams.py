"""Streams of a world's device."""

from __future__ import annotations

import ctypes
import sys
import threading
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Callable, SupportsIndex, Union

from . import _c
from .arguments import NotCopyable, whole
from .errors import InvalidArgumentError, check

if TYPE_CHECKING:
    import torch

    from .context import Context


class Stream(NotCopyable):
    """A stream of a world's device, as World.stream() makes one. It is closed with its world.

    Attributes
    ----------
    world : World
        Whose stream it is.
    handle : int
        What C calls it by: on a GPU a cudaStream_t or hipStream_t.
    """

    _copying = "another stream of World.stream()"

    def __init__(self, world: Context) -> None:
        self.world = world
        self.streams = world.streams
        handle = ctypes.c_void_p()
        check(_c.lib.stream_create(world.handle, ctypes.addressof(handle)))
        self.handle: int = handle.value or 0

    def synchronize(self, timeout: float = 60.0) -> None:
        """Wait for everything that was enqueued on it.

        Parameters
        ----------
        timeout : float
            The longest wait, in seconds.

        Raises
        ------
        DeadlineError
            The wait was longer.
        Error
            A call has failed, on this stream or another one of the world.
        """
        self.world.synchronize(self, timeout)


StreamLike = Union[Stream, "torch.cuda.Stream", SupportsIndex, None]
"""What a parameter `stream` takes: None is torch's current stream on a GPU, else the default stream; an integer is a
handle."""


class DeviceStreams:
    """Streams of a world's device: those that it has made, those in use, and torch's current one.

    It has the world's lock, exclusive(), which is held during waits (synchronize(), numpy()), too.

    Attributes
    ----------
    busy : dict
        Streams that were used since the last wait for them, as ctypes passes them, by their handles; None: the default
        stream.
    made : list of Stream
        By World.stream().
    device : int
        Its ordinal.
    emulated : bool
        Whether it is the emulator's.
    """

    def __init__(self, device: int, emulated: bool, name: str) -> None:
        """name: what messages call the world."""
        self._lock = threading.RLock()
        self.busy: dict[int | None, ctypes.c_void_p | None] = {}
        self.made: list[Stream] = []
        self.device, self.emulated = device, emulated
        self._name = name
        self._ask: Callable[[int], int] | None = _no_stream if emulated else None

    def exclusive(self) -> AbstractContextManager[object]:
        """For `with`, around what enqueues or calls C with the world's handle: one thread at a time. It may nest."""
        return self._lock

    def handle_of(self, stream: StreamLike) -> int | None:
        """The handle of a StreamLike. None: the default stream."""
        if stream is None:
            return self.current()
        if isinstance(stream, Stream):
            if stream.streams is not self:
                raise InvalidArgumentError(f"stream is of {stream.world!r}; allowed: a stream of {self._name}")
            return stream.handle or None
        handle = getattr(stream, "cuda_stream", stream)  # torch's have one
        if isinstance(handle, bool) or not hasattr(handle, "__index__"):
            raise InvalidArgumentError(
                f"stream is a {type(stream).__name__}; allowed: None, a farwarp.Stream, a torch.cuda.Stream, a handle"
            )
        number = whole("stream", handle, 0, 2**64 - 1)
        if self.emulated and number != 0 and all(number != known.handle for known in self.made):
            raise InvalidArgumentError(
                f"stream is {number}; allowed on the emulator: 0, the handle of a stream of World.stream()"
            )
        return number or None

    def current(self) -> int | None:
        """The handle of torch's current stream, on a GPU where torch is loaded. None: the default stream."""
        ask = self._ask
        if ask is None:
            torch = sys.modules.get("torch")
            if torch is None:
                return None
            ask = self._ask = _ask_torch(torch)
        return ask(self.device) or None

    def is_capturing(self) -> bool:
        """Whether the calls that torch's current stream is given go into a CUDA graph."""
        # The default stream cannot be captured. torch takes 10 us to say so.
        if self.emulated or self.current() is None:
            return False
        capturing: bool = sys.modules["torch"].cuda.is_current_stream_capturing()
        return capturing

    def use(self, stream: int | None) -> None:
        """A call was enqueued there."""
        if stream not in self.busy:
            self.busy[stream] = None if stream is None else ctypes.c_void_p(stream)

    def forked(self) -> None:
        """In the child of a fork(): a thread that is not here may have held the lock."""
        self._lock = threading.RLock()


def _no_stream(_device: int) -> int:
    return 0


def _ask_torch(torch: ModuleType) -> Callable[[int], int]:
    """What gives the handle of torch's current stream of a device."""
    # What torch's compiled graphs ask; a Stream object costs more.
    raw: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return raw
    return (lambda device: torch.cuda.current_stream(device).cuda_stream) if torch.cuda.is_available() else _no_stream
