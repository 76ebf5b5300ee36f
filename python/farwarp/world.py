"""World: this rank's place among ranks that share memory."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import warnings
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

from . import _c
from .arguments import Handle, milliseconds, whole
from .array import Array, asarray
from .descriptor import given, new_desc
from .errors import Error, InvalidArgumentError, MisuseError, check, error_of
from .targets import TARGETS as TARGETS  # for those that import it from here
from .targets import choose_target, target_number

if TYPE_CHECKING:
    from .operator import Operator

_DEVICE_TYPES = (_c.CUDA, _c.ROCM, _c.CPU, _c.CPU)

# Memory of dropped Arrays that waits for the device, before World waits for it.
_MOST_RETIRED = 256
_MOST_RETIRED_BYTES = 64 << 20


class Seat(NamedTuple):
    """A rank that run() has started."""

    threads: int
    rank: int


class Stream(Handle):
    """A stream of a world's device. Closed with its world."""

    _copying = "another stream of World.stream()"

    def __init__(self, world: World) -> None:
        self.world = world
        handle = ctypes.c_void_p()
        check(_c.lib.stream_create(world._handle, ctypes.addressof(handle)))
        self.handle: int = handle.value or 0

    def synchronize(self, timeout: float = 60.0) -> None:
        """Waits for everything that was enqueued on it. Raises if a call has failed."""
        self.world.synchronize(self, timeout)


class World(Handle):
    """A rank, its device and its symmetric heap. Collective: all ranks create it, and close it, alike.

    group: a torch.distributed.ProcessGroup whose ranks are processes of this machine. None: the ranks that torchrun,
        mpirun or `farwarp launch` have started, else one rank alone. run() starts ranks as threads.
    target: "cuda", "hip", "emu_sm90" (Hopper, emulated), "emu_gfx942" (CDNA3, emulated), or "auto": a GPU if there is
        one, else "emu_sm90".
    device: ordinal of this rank's device; -1: its rank.
    deadline: the longest wait of a kernel for another rank, in seconds.
    heap_bytes: of the symmetric heap, from which operators take their buffers.

    Use it by `with`, or call close(). Calls of several threads, of its Arrays and operators too, wait for each other.
    """

    _copying = "another World, which all ranks create"

    def __init__(
        self, group: Any = None, target: str = "auto", *, device: int = -1, deadline: float = 10.0, heap_bytes: int = 256 << 20
    ) -> None:
        global _used
        self._why_not: str | None = "the World was not created"
        self._handle: int | None = None
        self._lock = threading.RLock()  # held by whoever calls C with the handle
        if _used_before_fork is not None:
            raise MisuseError(f"{_used_before_fork}; allowed: a process that begins anew, as multiprocessing's method 'spawn' starts it")
        target = choose_target(target)
        desc = given(
            new_desc(_c.WorldDesc),
            target=target_number(target),
            device=whole("device", device, -1),
            deadline_ms=milliseconds("deadline", deadline),
            heap_bytes=heap_bytes,
        )
        _used = True
        self._handle = _create(group, desc)
        self._why_not = None
        self._told = False  # whether the failure that it is in has been raised
        self.rank: int = _c.lib.world_rank(self._handle)
        self.size: int = _c.lib.world_size(self._handle)
        self.target = target
        self.device = device if device >= 0 else self.rank
        self.deadline = deadline
        self.emulated = target.startswith("emu_")
        self._dl_device = _c.DLDevice(_DEVICE_TYPES[desc.target], 0 if self.emulated else self.device)
        self._operators: dict[int, Operator] = {}  # open ones, in the order of their creation
        self._streams: list[Stream] = []
        # Streams that were used since the last wait for them, as ctypes passes them.
        self._busy: dict[int | None, ctypes.c_void_p | None] = {}
        self._ask_stream: Callable[[int], int] | None = _no_stream if self.emulated else None
        self._sizes: dict[int, int] = {}  # bytes of each allocation
        # Dropped memory, and the streams whose work may still use it.
        self._retired: deque[tuple[int, set[int | None]]] = deque()
        self._retired_bytes = 0
        _worlds.add(self)

    def __repr__(self) -> str:
        return f"farwarp.World(rank {self.rank} of {self.size}, {self.target})" if self._handle else "farwarp.World(closed)"

    # ---- arrays and streams

    def empty(self, shape: Sequence[int], dtype: Any) -> Array:
        """An Array with any contents. dtype: "bfloat16", "float16", "float32", "int32", "int64", "uint8", or NumPy's or
        torch's."""
        return Array(self, shape, dtype)

    def zeros(self, shape: Sequence[int], dtype: Any) -> Array:
        """An Array of zeros."""
        import numpy as np

        array = Array(self, shape, dtype)
        return array.copy_from(np.zeros(array.shape, np.uint8), None)

    def asarray(self, values: Any, dtype: Any = None, stream: Any = None) -> Array:
        """`values` (NumPy, torch in the host's memory, lists) as an Array, of their own type or of `dtype`: floats are
        rounded, whole numbers must fit. An Array is returned as it is. The copy is ordered in `stream`."""
        return asarray(self, values, dtype, stream)

    def stream(self) -> Stream:
        """A new stream, where there is no torch."""
        with self._lock:
            self._usable()
            self._streams.append(Stream(self))
            return self._streams[-1]

    def synchronize(self, stream: Any = None, timeout: float = 60.0) -> None:
        """Waits for `stream`, or for all streams that calls of this world were enqueued on, at most `timeout` seconds
        for each. Raises if a call has failed."""
        most = milliseconds("timeout", timeout)
        with self._lock:
            self._usable()
            handles = list(self._busy) if stream is None else [self._stream_of(stream)]
            for handle in handles:
                self._tell(_c.lib.synchronize(self._handle, handle, most))
                self._passed(handle)
            if not handles:
                self._passed(None)  # Arrays that were dropped while no stream was in use
            self.check()

    # ---- failures

    def check(self) -> None:
        """Raises the first failure of a call that was enqueued, since creation or recover(). Does not wait for the
        device."""
        with self._lock:
            self._usable()
            self._tell(_c.lib.world_status(self._handle))

    def _tell(self, code: int) -> None:
        if code:
            self._told = True
            raise error_of(code)

    def recover(self) -> None:
        """Collective, after a failure: waits for the streams and clears it. Operators are usable again; Qwen3's
        sequences have ended. PeerLostError if a rank is gone: then the world can only be closed."""
        with self._lock:
            self._usable()
            handles = list(self._busy)
            streams = (ctypes.c_void_p * max(1, len(handles)))(*handles)
            check(_c.lib.world_recover(self._handle, ctypes.addressof(streams), len(handles)))
            self._told = False
            for handle in handles:
                self._passed(handle)
            for operator in list(self._operators.values()):
                operator._recovered()

    # ---- the end

    def close(self) -> None:
        """Collective: closes the operators that are open, then the world. Arrays lose their memory. Raises a failure of
        a call that has not been raised yet, or the first one of closing; the world is closed in any case. Does nothing
        if it is closed."""
        if self._handle is None or self._why_not is not None:
            return
        self._end(together=True)

    def __enter__(self) -> World:
        self._usable()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """close(). After an exception this rank leaves instead: the other ranks' waits end with an error."""
        if self._handle is not None and self._why_not is None:
            self._end(together=kind is None)

    def __del__(self) -> None:
        if self._handle is not None and self._why_not is None:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)
            self._end(together=False)

    def _end(self, together: bool) -> None:
        with self._lock:
            if self._handle is not None and self._why_not is None:
                self._destroy(together)

    def _destroy(self, together: bool) -> None:
        lib, handle = _c.lib, self._handle
        self._why_not = "the World is closed"
        if not together:
            lib.world_leave(handle)
        failure: Error | None = None
        drained = all([lib.synchronize(handle, stream, int(3000 * self.deadline)) == 0 for stream in self._busy])
        code = lib.world_status(handle) if together and not self._told else 0
        if code:
            failure = error_of(code)
        for operator in reversed(list(self._operators.values())):
            try:
                operator._close()
            except Error as error:
                failure = failure or error
        if drained or not together:  # a rank that leaves has ended its kernels' waits
            for pointer in self._sizes:
                lib.release(handle, pointer)
        self._sizes.clear()
        for stream in self._streams:
            lib.stream_destroy(handle, stream.handle)
        lib.world_destroy(handle)
        self._handle = None
        if together and failure is not None:
            raise failure

    # ---- for arrays and operators

    def _usable(self) -> None:
        if self._why_not is not None:
            raise MisuseError(f"{self._why_not}; allowed: a World that is open")

    def _stream_of(self, stream: Any) -> int | None:
        """The handle of a stream; None: torch's current one on a GPU where torch is loaded, else the default stream."""
        if stream is None:
            return self._current_stream()
        if isinstance(stream, Stream):
            if stream.world is not self:
                raise InvalidArgumentError(f"stream is of {stream.world!r}; allowed: a stream of {self!r}")
            return stream.handle or None
        handle = getattr(stream, "cuda_stream", stream)  # torch's have one
        if isinstance(handle, bool) or not hasattr(handle, "__index__"):
            raise InvalidArgumentError(
                f"stream is a {type(stream).__name__}; allowed: None, a farwarp.Stream, a torch.cuda.Stream, a handle"
            )
        number = whole("stream", handle, 0, 2**64 - 1)
        if self.emulated and number != 0 and all(number != known.handle for known in self._streams):
            raise InvalidArgumentError(f"stream is {number}; allowed on the emulator: 0, the handle of a stream of World.stream()")
        return number or None

    def _current_stream(self) -> int | None:
        ask = self._ask_stream
        if ask is None:
            torch = sys.modules.get("torch")
            if torch is None:
                return None
            ask = self._ask_stream = _ask_torch(torch)
        return ask(self.device) or None

    def is_capturing(self) -> bool:
        """Whether the calls that torch's current stream is given go into a CUDA graph."""
        # The default stream cannot be captured. torch takes 10 us to say so.
        if self.emulated or self._current_stream() is None:
            return False
        return sys.modules["torch"].cuda.is_current_stream_capturing()

    def _use(self, stream: int | None) -> None:
        """A call was enqueued there."""
        if stream not in self._busy:
            self._busy[stream] = None if stream is None else ctypes.c_void_p(stream)

    def _allocate(self, nbytes: int) -> int:
        with self._lock:
            self._usable()
            if len(self._retired) > _MOST_RETIRED or self._retired_bytes > _MOST_RETIRED_BYTES:
                self.synchronize()
            pointer = ctypes.c_void_p()
            check(_c.lib.allocate(self._handle, nbytes, ctypes.addressof(pointer)))
            address = pointer.value or 0
            self._sizes[address] = nbytes
            return address

    def _retire(self, pointer: int) -> None:
        """An Array was dropped, on any thread: its memory is freed when the streams have passed the calls that may use
        it."""
        if self._handle is not None and self._why_not is None:
            self._retired_bytes += self._sizes.get(pointer, 0)
            self._retired.append((pointer, set(self._busy)))

    def _passed(self, stream: int | None) -> None:
        """The device has passed everything that was enqueued on the stream."""
        self._busy.pop(stream, None)
        for _ in range(len(self._retired)):  # others may append
            pointer, streams = self._retired.popleft()
            streams.discard(stream)
            if streams:
                self._retired.append((pointer, streams))
            else:
                self._retired_bytes -= self._sizes.pop(pointer)
                _c.lib.release(self._handle, pointer)


def _no_stream(_device: int) -> int:
    return 0


def _ask_torch(torch: Any) -> Callable[[int], int]:
    """What gives the handle of torch's current stream of a device."""
    # What torch's compiled graphs ask; a Stream object costs more.
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return raw
    return (lambda device: torch.cuda.current_stream(device).cuda_stream) if torch.cuda.is_available() else _no_stream


_worlds: weakref.WeakSet[World] = weakref.WeakSet()
_used = False  # whether this process has had a world
_used_before_fork: str | None = None  # in the child of a process that had


def _create(group: Any, desc: Any) -> int:
    world, address = ctypes.c_void_p(), ctypes.addressof(desc)
    target = ctypes.addressof(world)
    if isinstance(group, Seat):
        check(_c.lib.world_from_threads(group.threads, group.rank, address, target))
    elif group is not None:
        _create_from_group(group, address, target)
    elif _c.lib.environment_has_ranks():
        check(_c.lib.world_from_environment(address, target))
    else:
        alone = ctypes.c_void_p()
        check(_c.lib.threads_create(1, ctypes.addressof(alone)))
        code = _c.lib.world_from_threads(alone.value, 0, address, target)
        failure = error_of(code) if code else None
        _c.lib.threads_destroy(alone.value)
        if failure is not None:
            raise failure
    return world.value or 0


def _create_from_group(group: Any, desc: int, world: int) -> None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and group is distributed.GroupMember.NON_GROUP_MEMBER:
        raise InvalidArgumentError("group has not this rank among its ranks; allowed: a group of which this process is a member")
    if distributed is None or not isinstance(group, distributed.ProcessGroup):
        raise InvalidArgumentError(f"group is a {type(group).__name__}; allowed: None, a torch.distributed.ProcessGroup")
    failures: list[BaseException] = []
    size = distributed.get_world_size(group)

    def allgather(_context: int, mine: int, nbytes: int, everyone: int) -> int:
        try:
            gathered: list[Any] = [None] * size
            distributed.all_gather_object(gathered, ctypes.string_at(mine, nbytes), group=group)
            ctypes.memmove(everyone, b"".join(gathered), nbytes * size)
            return 0
        except BaseException as error:  # it must not leave a callback
            failures.append(error)
            return 1

    code = _c.lib.world_from_allgather(distributed.get_rank(group), size, _c.ALLGATHER(allgather), None, desc, world)
    if failures:
        raise failures[0]
    check(code)


def _end_all() -> None:
    for world in list(_worlds):
        if world._handle is not None and world._why_not is None:
            world._end(together=False)


def _forked() -> None:
    """In the child: its copy of a world has no place among the ranks, and what runs devices has no threads."""
    global _used_before_fork
    if _used:
        _used_before_fork = f"farwarp was used before fork(), in process {os.getppid()}"
    for world in _worlds:
        world._why_not = f"the World was created before fork(), in process {os.getppid()}"
        world._lock = threading.RLock()  # a thread that is not here may have held it
        for operator in world._operators.values():
            operator._handle = None


atexit.register(_end_all)
os.register_at_fork(after_in_child=_forked)
