"""The low-latency calls: an operator with the batched layout, and its call, from dispatch to the end of combine."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .. import _c
from ..call import Call
from ..errors import MisuseError, check
from ..moe_operator import MoeOperator
from ..tensors import Tensor
from ..world import World
from .event import TorchStream
from .memory import FP8, DeviceMemory, HostMemory, Written
from .moe_desc import descriptor, heap_bytes_of

SCALED = 128  # numbers of a row that have one scale
MOST_TOP_K = 32
IN_FLIGHT = 2  # calls of which halves may be outstanding


def _nothing() -> None:
    return None


class LowLatencyShape(NamedTuple):
    """What operators are made for."""

    max_tokens: int
    hidden: int
    num_experts: int
    top_k: int
    fp8: bool
    index_type: str
    powers_of_two: bool = False
    exponents: bool = False


def _descriptor(shape: LowLatencyShape) -> ctypes.Structure:
    return descriptor(
        shape,
        fp8_dispatch=shape.fp8,
        scale_columns=shape.fp8,
        powers_of_two=shape.powers_of_two,
        scale_exponents=shape.exponents,
        masked=True,
        weights_at_combine=True,
        handles=True,
    )


def low_latency_heap_bytes(shape: LowLatencyShape, ranks: int, target: str, device: int) -> int:
    """Of the symmetric heap, for IN_FLIGHT operators of this shape."""
    return IN_FLIGHT * heap_bytes_of(_descriptor(shape), ranks, target, device)


class Phase(enum.Enum):
    """What a program has done with a call."""

    SENT = "its hook has not been called"
    RECEIVED = "it has been received"
    SUMMING = "the hook of its combine has not been called"


class LowLatencyOperator(MoeOperator):
    """One call at a time, between its halves."""

    def __init__(self, world: World, shape: LowLatencyShape) -> None:
        self._open(world, _descriptor(shape))
        self.shape = shape
        self.local_experts: int = _c.lib.moe_local_experts(self.handle)
        self.room = shape.max_tokens * world.size
        """rows of an expert"""
        layout = (ctypes.c_int64 * 3)()
        check(_c.lib.moe_handle_layout(self.handle, *(ctypes.addressof(layout) + 8 * i for i in range(3))))
        self.handle_bytes, self.ranges_at, self.tokens_at = layout
        self.pending: LowLatencyCall | None = None  # whose hook is still to come
        self.last: LowLatencyCall | None = None  # the last one that was dispatched
        self.combine_buffer: Written | None = None  # what get_next_low_latency_combine_buffer() has given
        self.offsets: Written | None = None  # which no program sees
        self._makers: (
            tuple[Callable[[], Written], Callable[[], Written], Callable[[], Written], Callable[[], Written | None]]
            | None
        ) = None  # of new_results()
        sent, received = (
            "x topk_idx topk_weights",
            "recv_x recv_count offsets scales cumulative_local_expert_recv_stats handle",
        )
        self.dispatch = Call(world, "moe_dispatch_kept", sent, received, optional="topk_weights")
        self.dispatch_send = Call(world, "moe_dispatch_send", sent + " count", optional="topk_weights count")
        self.dispatch_recv = Call(world, "moe_dispatch_recv_kept", "", received)
        self.combine = Call(world, "moe_combine_kept", "x topk_idx topk_weights handle", "out")
        self.combine_send = Call(world, "moe_combine_send_kept", "x topk_idx topk_weights handle")
        self.combine_recv = Call(world, "moe_combine_recv", "", "out")
        self.batched = (self.local_experts, self.room, shape.hidden)

    def new_results(self, memory: DeviceMemory | HostMemory) -> tuple[Written, Written, Written, Written | None]:
        """Of a dispatch: rows, counts, its handle's memory, scales."""
        if self._makers is None or memory.on_host:
            shape, local, room = self.shape, self.local_experts, self.room
            scales: Callable[[], Written | None] = _nothing
            if shape.exponents:
                scales = memory.maker((local, room, shape.hidden // (4 * SCALED)), "int32", columns=True)
            elif shape.fp8:
                scales = memory.maker((local, room, -(-shape.hidden // SCALED)), "float32", columns=True)
            rows = memory.maker(self.batched, FP8 if shape.fp8 else "bfloat16")
            self._makers = rows, memory.maker((local,), "int32"), memory.maker((self.handle_bytes,), "uint8"), scales
            self.offsets = memory.new((local + 1,), "int32")
        rows, counts, kept, scales = self._makers
        return rows(), counts(), kept(), scales()

    def recovered(self) -> None:
        """After World.recover(): halves that are still to come are of no call any more."""
        super().recovered()
        self.pending = self.last = None


class LowLatencyCall(Sequence[Any]):
    """A call, and the handle that a program is given for it.

    As DeepEP's handle, a sequence: src_info, layout_range, num_max_dispatch_tokens_per_rank, hidden, num_experts.
    """

    def __init__(
        self, operator: LowLatencyOperator, memory: DeviceMemory | HostMemory, tokens: int, stats: Written | None
    ) -> None:
        self.shape, self.memory, self.tokens, self.stats = operator.shape, memory, tokens, stats
        self.world = operator.world
        self.phase = Phase.SENT
        self._operator = operator  # that of its outstanding half, or of its dispatch
        self.recv_x, self.recv_count, self.kept, self.scales = operator.new_results(memory)
        self._inputs: tuple[Tensor | None, ...] = ()  # what the device still reads
        self._out: Written | None = None

    # ---- the handle

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: Any) -> Any:  # elements of several types
        if isinstance(index, slice):
            return tuple(self)[index]
        if index < 0:
            index += 5
        if index in (0, 1):
            if self.phase is Phase.SENT:
                raise MisuseError("handle[0], handle[1]: the call has not been received; allowed: after its hook")
            operator = self._operator
            local, room, ranks = operator.local_experts, operator.room, operator.world.size
            if index == 0:
                return self.memory.part(self.kept, operator.tokens_at, (local, room), "int32")
            return self.memory.part(self.kept, operator.ranges_at, (local, ranks), "int64")
        return (self.shape.max_tokens, self.shape.hidden, self.shape.num_experts)[index - 2]

    # ---- dispatch

    def send(self, x: Tensor, topk_idx: Tensor, stream: TorchStream) -> None:
        """The half of dispatch() that sends. The call keeps its inputs until it has been received."""
        operator = self._operator
        keep = operator.dispatch_send.enqueue(operator, (x, topk_idx, None, None), stream)
        self._inputs = (x, topk_idx, *keep)
        operator.pending = operator.last = self

    def receive(self, stream: TorchStream) -> None:
        """The half of dispatch() that receives: what the program's hook runs."""
        operator = self._operator
        operator.dispatch_recv.enqueue(operator, self._received(), stream)
        operator.pending = None
        self._arrived()

    def dispatch(self, x: Tensor, topk_idx: Tensor, stream: TorchStream) -> None:
        """send() and receive() in one launch."""
        operator = self._operator
        keep = operator.dispatch.enqueue(operator, (x, topk_idx, None, *self._received()), stream)
        self._inputs = (x, topk_idx, *keep)
        operator.last = self
        self._arrived()

    def _arrived(self) -> None:
        self.phase, self._inputs = Phase.RECEIVED, ()
        self.memory.deliver((self.recv_x, self.recv_count, self.scales, self.stats))
        self.stats = None

    def _received(self) -> tuple[Tensor | None, ...]:
        scales = None if self.scales is None else self.scales.device
        stats = None if self.stats is None else self.stats.device
        offsets = self._operator.offsets
        assert offsets is not None
        return (self.recv_x.device, self.recv_count.device, offsets.device, scales, stats, self.kept.device)

    # ---- combine, as often as wanted

    def combine(
        self,
        operator: LowLatencyOperator,
        x: Tensor,
        topk_idx: Tensor,
        weights: Tensor,
        out: Written,
        stream: TorchStream,
    ) -> None:
        """combine_send() and combine_receive() in one launch. `operator` may be another one of the shape."""
        operator.combine.enqueue(operator, (x, topk_idx, weights, self.kept.device, out.device), stream)
        self.memory.deliver((out,))

    def combine_send(
        self,
        operator: LowLatencyOperator,
        x: Tensor,
        topk_idx: Tensor,
        weights: Tensor,
        out: Written,
        stream: TorchStream,
    ) -> None:
        """The half of combine() that sends. The call is `operator`'s, and keeps its inputs, until the other half."""
        keep = operator.combine_send.enqueue(operator, (x, topk_idx, weights, self.kept.device), stream)
        self._inputs, self._out, self.phase = (x, topk_idx, weights, *keep), out, Phase.SUMMING
        self._operator, operator.pending = operator, self

    def combine_receive(self, stream: TorchStream) -> None:
        """The half of combine() that receives: what the program's hook runs."""
        operator, out = self._operator, self._out
        assert out is not None
        operator.combine_recv.enqueue(operator, (out.device,), stream)
        operator.pending = None
        self.phase, self._inputs, self._out = Phase.RECEIVED, (), None
        self.memory.deliver((out,))

    def finish(self, stream: TorchStream) -> None:
        """Its outstanding half, if there is one."""
        if self._operator.pending is not self:
            return
        (self.receive if self.phase is Phase.SENT else self.combine_receive)(stream)

    def check_received(self, method: str) -> None:
        if self.phase is not Phase.RECEIVED:
            raise MisuseError(
                f"{method}: the call of its handle is not ready: {self.phase.value}; allowed: when it has been received"
            )
