"""What both modes of a Buffer need: its world, its operators, and the order of its calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from ..arguments import NotCopyable
from ..errors import InvalidArgumentError, MisuseError, UnavailableError
from ..operator_cache import OperatorCache
from ..world import World
from .event import EventHandle, EventOverlap, TorchStream
from .memory import DeviceMemory
from .order import Order

if TYPE_CHECKING:
    import torch

WORLD_BYTES = 2 << 20  # of the heap, for the world itself
_LEAST_HEAP = 64 << 20


def refuse(method: str, **options: object) -> None:
    """Raise UnavailableError for one of DeepEP's options that are not here, unless it is None or False."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise UnavailableError(
                f"{method}: {name} is {value!r}, which farwarp.deep_ep has not; allowed: the default"
            )


class BufferBase(NotCopyable):
    """A Buffer without its calls. For its parameters see Buffer."""

    num_sms: int
    deadline: float

    def __init__(
        self,
        group: torch.distributed.ProcessGroup | World | None = None,
        num_nvl_bytes: int = 0,
        num_rdma_bytes: int = 0,
        low_latency_mode: bool = False,
        num_qps_per_rank: int = 24,
        allow_nvlink_for_low_latency_mode: bool = True,
        allow_mnnvl: bool = False,
        use_fabric: bool = False,
        explicitly_destroy: bool = False,
        enable_shrink: bool = False,
        comm: object = None,
    ) -> None:
        refuse("Buffer", enable_shrink=enable_shrink, comm=comm)
        if not allow_nvlink_for_low_latency_mode:
            raise UnavailableError(
                "Buffer: allow_nvlink_for_low_latency_mode is False; allowed: True, as nothing but NVLink is used"
            )
        if group is None:
            raise InvalidArgumentError("group is None; allowed: a torch.distributed.ProcessGroup, a farwarp.World")
        self.group = group
        self._owns_world = not isinstance(group, World)
        room = num_nvl_bytes + num_rdma_bytes
        self._world = group if isinstance(group, World) else _world_of(group, room, self.deadline)
        self.rank, self.group_size = self._world.rank, self._world.size
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self.low_latency_mode, self.explicitly_destroy = low_latency_mode, explicitly_destroy
        self._operators = OperatorCache(self._world)
        self._turns: dict[Hashable, int] = {}  # by the shape of low-latency calls, which of its operators is next
        self._comm_stream: torch.cuda.Stream | None = None
        self._order = Order(self._world)
        self._memory = None if self._world.emulated else DeviceMemory(self._world)

    def destroy(self) -> None:
        """Give the memory back, after the calls under way. Collective.

        Raises
        ------
        MisuseError
            explicitly_destroy is False.
        """
        if not self.explicitly_destroy:
            raise MisuseError("destroy(): explicitly_destroy is False; allowed: with explicitly_destroy=True")
        if self._owns_world:
            self._world.close()
            self._operators.forget()
        else:
            self._operators.close()

    def get_comm_stream(self) -> torch.cuda.Stream:
        """The stream on which calls with async_finish=True run. UnavailableError on the emulator."""
        if self._comm_stream is None:
            if self._world.emulated:
                raise UnavailableError("get_comm_stream(): the emulator has no torch streams; allowed: on a GPU")
            self._comm_stream = sys.modules["torch"].cuda.Stream(self._world.device)
        return self._comm_stream

    def _enqueue(self, work: Callable[[TorchStream], None], stream: TorchStream = None) -> None:
        """work(stream), in the order of this Buffer's calls; None: the current stream."""
        self._order.before(stream)
        work(stream)
        self._order.after()

    def _run(
        self,
        work: Callable[[TorchStream], None],
        async_finish: bool,
        tensors: tuple[object, ...],
        previous_event: EventOverlap | None = None,
    ) -> EventOverlap:
        """Enqueue on the current stream, or with async_finish on the communication stream.

        After what the current stream has been given, or after previous_event.
        """
        after = None if previous_event is None else previous_event.event
        if not async_finish or self._world.emulated:
            if after is not None:
                after.current_stream_wait()
            self._enqueue(work)
            return EventOverlap(EventHandle() if async_finish else None)
        stream = self.get_comm_stream()
        if after is None:
            stream.wait_stream(sys.modules["torch"].cuda.current_stream())
        else:
            after.wait_on(stream)
        self._enqueue(work, stream)
        return EventOverlap(EventHandle(stream), tensors)


def current_device() -> int:
    """Ordinal of torch's current device; 0 without a GPU."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_available() else 0


def _world_of(group: torch.distributed.ProcessGroup, room: int, deadline: float) -> World:
    return World(group, device=current_device(), deadline=deadline, heap_bytes=max(room + WORLD_BYTES, _LEAST_HEAP))
