"""Events between streams."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    import torch

TorchStream = Optional["torch.cuda.Stream"]
"""None: the current stream."""


class EventHandle:
    """What the current stream has been given until now.

    Where there is no GPU every call has ended when it returns, and there is nothing to wait for.
    """

    def __init__(self, stream: TorchStream = None) -> None:
        loaded = sys.modules.get("torch")
        self._event: torch.cuda.Event | None = None
        if loaded is not None and loaded.cuda.is_available():
            self._event = loaded.cuda.Event()
            self._event.record(loaded.cuda.current_stream() if stream is None else stream)

    def wait_on(self, stream: torch.cuda.Stream) -> None:
        """`stream` waits for it."""
        if self._event is not None:
            stream.wait_event(self._event)

    def current_stream_wait(self) -> None:
        """The current stream waits for it; the host does not."""
        if self._event is not None:
            sys.modules["torch"].cuda.current_stream().wait_event(self._event)


class EventOverlap:
    """The end of a call that was made with async_finish=True.

    event: an EventHandle; None: the call was made without async_finish, and the current stream has it.
    extra_tensors: live as long as this object, because another stream uses them.

    In a `with` statement the current stream waits at the end of the block.
    """

    def __init__(self, event: EventHandle | None = None, extra_tensors: tuple[object, ...] | None = None) -> None:
        self.event = event
        self.extra_tensors = extra_tensors

    def current_stream_wait(self) -> None:
        """The current stream waits for the event. AssertionError if there is none, as DeepEP has it."""
        assert self.event is not None, (
            "the call was made without async_finish; allowed: after a call with async_finish=True"
        )
        self.event.current_stream_wait()

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.event is not None:
            self.event.current_stream_wait()
