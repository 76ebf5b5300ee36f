"""Normal mode: an operator that brings each row once to a rank, and its call, from dispatch to combine."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any, NamedTuple

import numpy as np

from .. import _c, dtypes
from ..call import Call, is_torch
from ..descriptor import choice
from ..errors import InvalidArgumentError, MisuseError, check
from ..operator import Operator
from ..world import World
from .memory import DeviceMemory, HostMemory, Result
from .moe_desc import descriptor, heap_bytes_of

_MODES = ("auto", "words", "bulk")  # in the order of farwarp_moe_mode
_MOST_TOKENS, _MOST_ENTRIES = 65535, (1 << 20) - 1


class Shape(NamedTuple):
    """What an operator is made for. A dispatched row has dispatch_hidden bf16 elements, or as many bytes of another
    kind; a returned one hidden."""

    max_tokens: int
    hidden: int
    dispatch_hidden: int
    num_experts: int
    top_k: int
    index_type: str
    num_sms: int
    mode: str


def _descriptor(shape: Shape) -> ctypes.Structure:
    return descriptor(
        shape,
        dispatch_hidden=shape.dispatch_hidden,
        rows=True,
        max_sms=shape.num_sms,
        mode=choice("mode", shape.mode, _MODES),
    )


def heap_bytes(shape: Shape, ranks: int, target: str, device: int) -> int:
    return heap_bytes_of(_descriptor(shape), ranks, target, device)


def most_tokens(shape: Shape, ranks: int, target: str, device: int, room: int) -> int:
    """The most tokens of a rank and call, a multiple of 32, for which an operator takes no more than `room` bytes of the
    heap; 0 if there are none."""
    low, high = 0, min(_MOST_TOKENS, _MOST_ENTRIES // shape.top_k) // 32
    while low < high:
        middle = (low + high + 1) // 2
        fits = heap_bytes(shape._replace(max_tokens=32 * middle), ranks, target, device) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return 32 * low


def on(stream: Any) -> Any:
    """torch's operations go to `stream`; None: to the current one."""
    return contextlib.nullcontext() if stream is None else sys.modules["torch"].cuda.stream(stream)


class NormalOperator(Operator):
    """One call at a time."""

    _name = "moe"

    def __init__(self, world: World, shape: Shape) -> None:
        self._open(world, _descriptor(shape))
        self.shape = shape
        self.local_experts: int = _c.lib.moe_local_experts(self._handle)
        self.call: NormalCall | None = None  # under way
        sent, received, counted = "x topk_idx topk_weights", "recv_x recv_topk_idx recv_topk_weights", "counts offsets"
        self.dispatch = Call(world, "moe_dispatch_rows", sent, f"{received} {counted}")
        self.dispatch_send = Call(world, "moe_dispatch_rows_send", sent, counted)
        self.dispatch_recv = Call(world, "moe_dispatch_rows_recv", "", received)
        self.combine = Call(world, "moe_combine", "x", "out")

    def _recovered(self) -> None:
        """After World.recover(): a call under way is over."""
        check(_c.lib.moe_forget(self._open_handle()))
        if self.call is not None:
            self.call._end()


class NormalCall:
    """A call, and the handle that a program is given for it. combine() takes it once; dispatch() takes its routing as
    often as wanted."""

    def __init__(self, operator: NormalOperator, memory: DeviceMemory | HostMemory, tokens: int, routing: tuple[Any, Any]) -> None:
        self.operator, self.memory, self.tokens, self.routing = operator, memory, tokens, routing
        self.received = False  # and not yet combined
        self.rows = 0
        ranks = operator.world.size
        self.counts, self.offsets = memory.new((operator.local_experts,), "int32"), memory.new((ranks + 1,), "int32")
        self.recv_x: Result | None = None
        self.recv_topk_idx: Result | None = None
        self.recv_topk_weights: Result | None = None
        self._kept: tuple = ()

    def dispatch(self, x: Any, rows: int, stream: Any) -> None:
        """Into room for `rows` rows; those beyond the last that arrives have indices of -1. The host waits for
        nothing."""
        operator = self.operator
        results = self._make_room(rows)
        keep = operator.dispatch.enqueue(operator, (x, *self.routing, *results, self.counts.device, self.offsets.device), stream)
        self._begun(x, keep)
        self.memory.deliver((*self._results(), self.counts, self.offsets))

    def dispatch_counted(self, x: Any, stream: Any) -> None:
        """Into room for as many rows as arrive: the host waits for the counts."""
        operator = self.operator
        keep = operator.dispatch_send.enqueue(operator, (x, *self.routing, self.counts.device, self.offsets.device), stream)
        self._begun(x, keep)
        self.memory.deliver((self.counts, self.offsets))
        with on(stream):
            rows = int(self.offsets.given.tolist()[-1])
        operator.world.check()
        operator.dispatch_recv.enqueue(operator, tuple(self._make_room(rows)), stream)
        self.memory.deliver(self._results())

    def _begun(self, x: Any, keep: list) -> None:
        self._kept, self.received, self.operator.call = (x, *keep), True, self

    def _make_room(self, rows: int) -> list[Any]:
        shape, new = self.operator.shape, self.memory.new
        self.rows = rows
        self.recv_x = new((rows, shape.dispatch_hidden or shape.hidden), "bfloat16")
        self.recv_topk_idx, self.recv_topk_weights = new((rows, shape.top_k), shape.index_type), new((rows, shape.top_k), "float32")
        return [result.device for result in self._results()]

    def _results(self) -> tuple[Result, ...]:
        return self.recv_x, self.recv_topk_idx, self.recv_topk_weights  # type: ignore[return-value]

    def combine(self, x: Any, out: Result, stream: Any) -> None:
        operator = self.operator
        operator.combine.enqueue(operator, (x, out.device), stream)
        self._end()
        self.memory.deliver((out,))

    def finish(self, stream: Any) -> None:
        """Of a call that nobody has combined: combines whatever lies there, so that the operator is free. All ranks do
        the same."""
        hidden, new = self.operator.shape.hidden, self.memory.new
        self.combine(new((self.rows, hidden), "bfloat16").device, new((self.tokens, hidden), "bfloat16"), stream)

    def check_received(self, method: str) -> None:
        if not self.received:
            raise MisuseError(
                f"{method}: the call of its handle is over (combined, or followed by more dispatches than can be in flight); allowed: "
                "once after each dispatch()"
            )

    def _end(self) -> None:
        self.received, self.operator.call, self._kept = False, None, ()


# ---- e4m3 rows with their scales, as rows of bytes


def packed_elements(hidden: int, groups: int) -> int:
    """bf16 elements of a row of e4m3 numbers and its scales."""
    return (hidden + 4 * groups + 15) // 16 * 8


def pack(numbers: Any, scales: Any) -> Any:
    """[tokens, hidden] e4m3 and [tokens, groups] float32 -> [tokens, packed_elements()] bfloat16."""
    tokens, hidden = numbers.shape
    groups = scales.shape[1]
    shape = (tokens, 2 * packed_elements(hidden, groups))
    if is_torch(numbers):
        import torch

        rows = torch.zeros(shape, dtype=torch.uint8, device=numbers.device)
        rows[:, :hidden] = numbers.view(torch.uint8)
        rows[:, hidden : hidden + 4 * groups] = scales.flatten().view(torch.uint8).reshape(tokens, 4 * groups)
        return rows.view(torch.bfloat16)
    if dtypes.ml_dtypes is None:
        raise InvalidArgumentError("x is a tuple of NumPy arrays; allowed: with ml_dtypes, which has their types")
    bits = np.zeros(shape, np.uint8)
    bits[:, :hidden] = numbers.view(np.uint8)
    bits[:, hidden : hidden + 4 * groups] = np.ascontiguousarray(scales).view(np.uint8)
    return bits.view(dtypes.ml_dtypes.bfloat16)


def unpack(rows: Any, hidden: int, groups: int, fp8: Any) -> tuple[Any, Any]:
    """The reverse; `fp8`: the numbers' type."""
    if is_torch(rows):
        import torch

        rows = rows.view(torch.uint8)
        scales = rows[:, hidden : hidden + 4 * groups].flatten().view(torch.float32)
        return rows[:, :hidden].contiguous().view(fp8), scales.reshape(len(rows), groups)
    rows = rows.view(np.uint8)
    numbers, scales = (np.ascontiguousarray(part) for part in (rows[:, :hidden], rows[:, hidden : hidden + 4 * groups]))
    return numbers.view(fp8), scales.view(np.float32)


# ---- what get_dispatch_layout() tells


def layout(topk_idx: Any, num_experts: int, ranks: int) -> tuple[Any, Any, Any]:
    """num_tokens_per_rank, num_tokens_per_expert, is_token_in_rank, without waiting for the device."""
    owners = topk_idx // (num_experts // ranks)  # of -1: -1
    if is_torch(topk_idx):
        import torch

        in_rank = (owners[:, :, None] == torch.arange(ranks, device=topk_idx.device)).any(1)
        of_expert = torch.zeros(num_experts, dtype=torch.int32, device=topk_idx.device)
        of_expert.scatter_add_(0, topk_idx.flatten().clamp(min=0).long(), (topk_idx.flatten() >= 0).int())
        return in_rank.sum(0, dtype=torch.int32), of_expert, in_rank
    in_rank = (owners[:, :, None] == np.arange(ranks)).any(1)
    counts = np.bincount(topk_idx[topk_idx >= 0], minlength=num_experts)
    return in_rank.sum(0).astype(np.int32), counts.astype(np.int32), in_rank
