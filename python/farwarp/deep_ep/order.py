"""The order of a Buffer's kernels, which wait for other ranks: on every rank that in which the calls were made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..world import World
from .event import TorchStream

if TYPE_CHECKING:
    import torch

_MOST_STREAMS = 64


class Order:
    """Kernels on one stream run in the order of their calls.

    Where calls are made on several streams, each waits for the one before it: two kernels of which each needs the whole
    device, in another order on another rank, would wait for each other.

    Not across the border of a graph's capture: a graph is replayed in the order of its stream.
    """

    def __init__(self, world: World) -> None:
        self._streams = world.streams
        self._last: tuple[int | None, bool] | None = None  # stream of the last call, and whether it was captured
        self._objects: dict[int | None, torch.cuda.Stream] = {}
        self._event: torch.cuda.Event | None = None  # after the last call, from the first change of streams on

    def before(self, stream: TorchStream) -> None:
        """Before the launches of a call on `stream`; None: the current stream."""
        if self._streams.emulated:
            return
        raw = self._streams.handle_of(stream)
        if self._event is None and (self._last is None or self._last[0] == raw):
            self._last = (raw, False)
            return
        capturing = self._streams.is_capturing()  # a `stream` that is given has joined the current one
        if self._event is None:
            self._event = sys.modules["torch"].cuda.Event()
            if not capturing:
                self._event.record(self._stream(self._last[0]))  # type: ignore[index]
        if self._last != (raw, capturing) and self._last[1] == capturing:  # type: ignore[index]
            self._stream(raw).wait_event(self._event)
        self._last = (raw, capturing)

    def after(self) -> None:
        """After the launches."""
        if self._event is not None:
            self._event.record(self._stream(self._last[0]))  # type: ignore[index]

    def _stream(self, raw: int | None) -> torch.cuda.Stream:
        """torch's object of a stream; to make one takes longer than to record an event."""
        stream = self._objects.get(raw)
        if stream is None:
            if len(self._objects) == _MOST_STREAMS:
                self._objects.clear()
            cuda, device = sys.modules["torch"].cuda, self._streams.device
            stream = self._objects[raw] = (
                cuda.default_stream(device) if raw is None else cuda.ExternalStream(raw, device)
            )
        return stream
