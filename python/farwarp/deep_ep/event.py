"""Events between streams."""

from __future__ import annotations

import sys
from typing import Any


class EventHandle:
    """What the current stream has been given until now.

    Where there is no GPU every call has ended when it returns, and there is nothing to wait for.
    """

    def __init__(self, stream: Any = None) -> None:
        torch = sys.modules.get("torch")
        self._event: Any = None
        if torch is not None and torch.cuda.is_available():
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream() if stream is None else stream)

    def wait_on(self, stream: Any) -> None:
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

    def __init__(self, event: EventHandle | None = None, extra_tensors: tuple[Any, ...] | None = None) -> None:
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

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.event is not None:
            self.event.current_stream_wait()
