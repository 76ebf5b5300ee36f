"""Memory of a world's device that Arrays have."""

from __future__ import annotations

import ctypes
from collections import deque

from . import _c
from .device_streams import DeviceStreams
from .errors import check

# Memory of dropped Arrays that waits for the device, before the world waits for it.
_MOST_RETIRED = 256
_MOST_RETIRED_BYTES = 64 << 20


class Allocations:
    """What was allocated with a world's handle.

    Memory that is not needed any more is freed when the streams have passed the calls that may use it.
    """

    def __init__(self, handle: int, streams: DeviceStreams) -> None:
        self._handle, self._streams = handle, streams
        self._sizes: dict[int, int] = {}  # bytes of each allocation
        self._retired: deque[tuple[int, set[int | None]]] = deque()  # and the streams whose work may still use it
        self._lent: dict[int, int] = {}  # addresses, by the borrowers' keys

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def crowded(self) -> bool:
        """Whether so much waits for the device that the world should wait for it before it allocates more."""
        if len(self._retired) > _MOST_RETIRED:
            return True
        retired = self._retired.copy()  # others may append
        return sum(self._sizes.get(address, 0) for address, _ in retired) > _MOST_RETIRED_BYTES

    def allocate(self, nbytes: int) -> int:
        """The address of new memory. Within exclusive()."""
        pointer = ctypes.c_void_p()
        check(_c.lib.allocate(self._handle, nbytes, ctypes.addressof(pointer)))
        address = pointer.value or 0
        self._sizes[address] = nbytes
        return address

    def retire(self, address: int) -> None:
        """Nobody uses it in new calls. On any thread, within exclusive() or not."""
        self._retired.append((address, set(self._streams.busy)))

    def passed(self, stream: int | None) -> None:
        """The device has passed everything that was enqueued on the stream. Within exclusive()."""
        for _ in range(len(self._retired)):  # others may append
            address, streams = self._retired.popleft()
            streams.discard(stream)
            if streams:
                self._retired.append((address, streams))
            else:
                del self._sizes[address]
                _c.lib.release(self._handle, address)

    def lend(self, key: int, address: int) -> None:
        """Another library uses it until give_back(key): end() leaves it allocated."""
        self._lent[key] = address

    def give_back(self, key: int) -> None:
        """On any thread, also after end()."""
        self._lent.pop(key, None)

    def end(self, free: bool) -> None:
        """When the world closes. free: no kernel uses the memory; what is lent stays until the process ends."""
        if free:
            lent = set(self._lent.copy().values())  # other threads may give back
            for address in self._sizes.keys() - lent:
                _c.lib.release(self._handle, address)
        self._sizes.clear()
