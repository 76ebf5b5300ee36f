"""The low-latency calls: an operator with the batched layout, and its call, from dispatch to the end of combine."""

from __future__ import annotations

import ctypes
import enum
from typing import Any, NamedTuple

from .. import _c
from ..call import Call
from ..errors import MisuseError, check
from ..operator import Operator
from ..world import World
from .memory import FP8, DeviceMemory, HostMemory, Result
from .moe_desc import descriptor, heap_bytes_of

SCALED = 128  # numbers of a row that have one scale
MOST_TOP_K = 32
IN_FLIGHT = 2  # calls that are dispatched before the first of them is combined


class Shape(NamedTuple):
    """What an operator is made for."""

    max_tokens: int
    hidden: int
    num_experts: int
    top_k: int
    fp8: bool
    index_type: str


def _descriptor(shape: Shape, max_sms: int) -> ctypes.Structure:
    return descriptor(
        shape,
        fp8_dispatch=shape.fp8,
        scale_columns=shape.fp8,
        masked=True,
        weights_at_combine=True,
        max_sms=max_sms,
    )


def heap_bytes(shape: Shape, ranks: int, target: str, device: int) -> int:
    """Of the symmetric heap, for IN_FLIGHT operators of this shape."""
    return IN_FLIGHT * heap_bytes_of(_descriptor(shape, 0), ranks, target, device)


class Phase(enum.Enum):
    """What has been enqueued of a call."""

    SENT = "its hook has not been called"
    RECEIVED = "it has been received"
    SUMMING = "the hook of its combine has not been called"
    OVER = "it is over"


class LowLatencyOperator(Operator):
    """One call at a time."""

    _name = "moe"

    def __init__(self, world: World, shape: Shape, max_sms: int) -> None:
        self._open(world, _descriptor(shape, max_sms))
        self.shape = shape
        self.local_experts: int = _c.lib.moe_local_experts(self._handle)
        self.room = shape.max_tokens * world.size
        """rows of an expert"""
        self.call: LowLatencyCall | None = None  # under way
        self.combine_buffer: Result | None = None  # what get_next_low_latency_combine_buffer() has given
        self.offsets: Result | None = None
        sent, received = "x topk_idx topk_weights", "recv_x recv_count offsets origins scales"
        self.dispatch = Call(world, "moe_dispatch", sent, received)
        self.dispatch_send = Call(world, "moe_dispatch_send", sent + " count")
        self.dispatch_recv = Call(world, "moe_dispatch_recv", "", received)
        self.combine = Call(world, "moe_combine_weighted", "x topk_weights", "out")
        self.combine_send = Call(world, "moe_combine_send_weighted", "x topk_weights")
        self.combine_recv = Call(world, "moe_combine_recv", "", "out")

    @property
    def rows(self) -> tuple[int, int, int]:
        """The batched layout."""
        return self.local_experts, self.room, self.shape.hidden

    def _recovered(self) -> None:
        """After World.recover(): a call under way is over."""
        check(_c.lib.moe_forget(self._open_handle()))
        if self.call is not None:
            self.call.phase = Phase.OVER
            self.call = None


class LowLatencyCall:
    """A call, and the handle that a program is given for it: low_latency_combine() takes it; programs do not look into
    it."""

    def __init__(self, operator: LowLatencyOperator, memory: DeviceMemory | HostMemory, tokens: int) -> None:
        self.operator, self.memory, self.tokens = operator, memory, tokens
        self.phase = Phase.OVER
        shape = operator.shape
        groups = -(-shape.hidden // SCALED)
        self.recv_x = memory.new(operator.rows, FP8 if shape.fp8 else "bfloat16")
        self.recv_count = memory.new((operator.local_experts,), "int32")
        self.scales = memory.new((operator.local_experts, groups, operator.room), "float32") if shape.fp8 else None
        if operator.offsets is None:
            operator.offsets = memory.new((operator.local_experts + 1,), "int32")
        self._kept: tuple = ()  # what the device still reads
        self._out: Result | None = None

    # ---- dispatch

    def send(self, x: Any, topk_idx: Any, stream: Any) -> None:
        operator = self.operator
        keep = operator.dispatch_send.enqueue(operator, (x, topk_idx, None, None), stream)
        self._begun((x, topk_idx, *keep), Phase.SENT)

    def receive(self, stream: Any) -> None:
        operator = self.operator
        operator.dispatch_recv.enqueue(operator, self._received(), stream)
        self.phase = Phase.RECEIVED
        self.memory.deliver((self.recv_x, self.recv_count, self.scales))

    def dispatch(self, x: Any, topk_idx: Any, stream: Any) -> None:
        """send() and receive() in one launch."""
        operator = self.operator
        keep = operator.dispatch.enqueue(operator, (x, topk_idx, None, *self._received()), stream)
        self._begun((x, topk_idx, *keep), Phase.RECEIVED)
        self.memory.deliver((self.recv_x, self.recv_count, self.scales))

    def _begun(self, kept: tuple, phase: Phase) -> None:
        self._kept, self.phase, self.operator.call = kept, phase, self

    def _received(self) -> tuple:
        offsets = self.operator.offsets
        scales = None if self.scales is None else self.scales.device
        return (self.recv_x.device, self.recv_count.device, offsets.device, None, scales)  # type: ignore[union-attr]

    # ---- combine

    def combine(self, x: Any, weights: Any, out: Result, stream: Any) -> None:
        operator = self.operator
        operator.combine.enqueue(operator, (x, weights, out.device), stream)
        self._end()
        self.memory.deliver((out,))

    def combine_send(self, x: Any, weights: Any, out: Result, stream: Any) -> None:
        operator = self.operator
        keep = operator.combine_send.enqueue(operator, (x, weights), stream)
        self._kept += (x, weights, *keep)
        self._out, self.phase = out, Phase.SUMMING

    def combine_receive(self, stream: Any) -> None:
        operator, out = self.operator, self._out
        assert out is not None
        operator.combine_recv.enqueue(operator, (out.device,), stream)
        self._end()
        self.memory.deliver((out,))

    def _end(self) -> None:
        self.phase, self.operator.call, self._kept, self._out = Phase.OVER, None, (), None

    # ---- a call that its program has given up

    def finish(self, stream: Any) -> None:
        """Does the rest of the call. What has not been combined is, into memory that nobody reads: as the other ranks
        do the same, the operator is free for the next call."""
        if self.phase is Phase.SENT:
            self.receive(stream)
        if self.phase is Phase.RECEIVED:
            shape, new = self.operator.shape, self.memory.new
            x, weights = new(self.operator.rows, "bfloat16"), new((self.tokens, shape.top_k), "float32")
            self.combine(x.device, weights.device, new((self.tokens, shape.hidden), "bfloat16"), stream)
        elif self.phase is Phase.SUMMING:
            self.combine_receive(stream)

    def check_phase(self, wanted: Phase, method: str) -> None:
        if self.phase is wanted:
            return
        why = f"the call of its handle is not ready: {self.phase.value}"
        if self.phase is Phase.OVER:
            why = f"the call of its handle is over (combined, or followed by {IN_FLIGHT} dispatches)"
        raise MisuseError(f"{method}: {why}; allowed: once after each low_latency_dispatch(), when that has been received")
