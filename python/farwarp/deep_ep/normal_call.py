"""Normal mode: an operator that brings each row once to a rank, and its call, from dispatch to combine."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import _c
from ..call import Call
from ..descriptor import choice
from ..errors import check
from ..moe_operator import MODES, MoeOperator
from ..tensors import Tensor, is_torch
from ..world import World
from .event import TorchStream
from .memory import DeviceMemory, Given, HostMemory, Written
from .moe_desc import descriptor, heap_bytes_of

SHAPES = 2  # whose operators a buffer has room for at a time
_MOST_TOKENS, _MOST_ENTRIES = 65535, (1 << 20) - 1


class NormalShape(NamedTuple):
    """What an operator is made for.

    A dispatched row has dispatch_hidden bf16 elements, or as many bytes of another kind; a returned one hidden.
    """

    max_tokens: int
    hidden: int
    dispatch_hidden: int
    num_experts: int
    top_k: int
    index_type: str
    num_sms: int
    mode: str


def _descriptor(shape: NormalShape) -> ctypes.Structure:
    return descriptor(
        shape,
        dispatch_hidden=shape.dispatch_hidden,
        rows=True,
        handles=True,
        max_sms=shape.num_sms,
        mode=choice("mode", shape.mode, MODES),
    )


def normal_heap_bytes(shape: NormalShape, ranks: int, target: str, device: int) -> int:
    return heap_bytes_of(_descriptor(shape), ranks, target, device)


def most_tokens(shape: NormalShape, ranks: int, target: str, device: int, room: int) -> int:
    """The most tokens of a rank and call for which an operator takes no more than `room` bytes of the heap.

    A multiple of 32; 0 if there are none.
    """
    low, high = 0, min(_MOST_TOKENS, _MOST_ENTRIES // shape.top_k) // 32
    while low < high:
        middle = (low + high + 1) // 2
        fits = normal_heap_bytes(shape._replace(max_tokens=32 * middle), ranks, target, device) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return 32 * low


def on(stream: TorchStream) -> contextlib.AbstractContextManager[object]:
    """torch's operations go to `stream`; None: to the current one."""
    return contextlib.nullcontext() if stream is None else sys.modules["torch"].cuda.stream(stream)


class NormalOperator(MoeOperator):
    """Serves any number of handles, one call after another."""

    def __init__(self, world: World, shape: NormalShape) -> None:
        self._open(world, _descriptor(shape))
        self.shape = shape
        self.local_experts: int = _c.lib.moe_local_experts(self.handle)
        layout = (ctypes.c_int64 * 3)()
        check(_c.lib.moe_handle_layout(self.handle, *(ctypes.addressof(layout) + 8 * i for i in range(3))))
        self.handle_bytes: int = layout[0]
        sent, received, counted = (
            "x topk_idx topk_weights num_tokens_per_expert",
            "recv_x recv_topk_idx recv_topk_weights",
            "counts offsets",
        )
        told = "num_tokens_per_expert"
        self.dispatch = Call(world, "moe_dispatch_rows_kept", sent, f"{received} {counted} handle", optional=told)
        self.dispatch_send = Call(world, "moe_dispatch_rows_send_kept", sent, counted, optional=told)
        self.dispatch_recv = Call(world, "moe_dispatch_rows_recv_kept", "", f"{received} handle")
        self.combine = Call(world, "moe_combine_kept", "x topk_idx unused handle", "out", optional="unused")
        self.return_weights = Call(world, "moe_return_row_weights", "topk_weights topk_idx handle", "out")


class Routing(NamedTuple):
    """Where a call's tokens go, as kernels read it."""

    topk_idx: Tensor
    topk_weights: Tensor
    num_tokens_per_expert: Tensor | None  # None: what topk_idx says


class NormalCall(Sequence[Any]):
    """A call, and the handle that a program is given for it, which combine() and dispatch() take as often as wanted.

    As DeepEP's handle, a sequence of six: rank_prefix_matrix, int32 [ranks, ranks], of which the column of this rank is
    known: [i, rank] rows have come from ranks 0 to i; the others are -1. is_token_in_rank, as dispatch() was given it.
    The others are None: they are parts of DeepEP's rings.
    """

    def __init__(
        self,
        operator: NormalOperator,
        memory: DeviceMemory | HostMemory,
        tokens: int,
        routing: Routing,
        is_token_in_rank: Given | None,
    ) -> None:
        self.shape, self.memory, self.tokens, self.routing = operator.shape, memory, tokens, routing
        self.world, self.is_token_in_rank = operator.world, is_token_in_rank
        self.rows = 0
        self.counts, self.offsets = (
            memory.new((operator.local_experts,), "int32"),
            memory.new((operator.world.size + 1,), "int32"),
        )
        self.kept = memory.new((operator.handle_bytes,), "uint8")
        self.recv_x: Written | None = None
        self.recv_topk_idx: Written | None = None
        self.recv_topk_weights: Written | None = None

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: Any) -> Any:  # elements of several types
        if isinstance(index, slice):
            return tuple(self)[index]
        return (
            self._rank_prefix_matrix() if index in (0, -6) else None,
            None,
            None,
            None,
            self.is_token_in_rank,
            None,
        )[index]

    def _rank_prefix_matrix(self) -> Given:
        ranks, rank, given = self.world.size, self.world.rank, self.offsets.given
        if is_torch(given):
            matrix: Given = given.new_full((ranks, ranks), -1)
        else:
            matrix = np.full((ranks, ranks), -1, np.int32)
        matrix[:, rank] = given[1:]
        return matrix

    # ---- dispatch

    def dispatch(self, operator: NormalOperator, x: Tensor, rows: int, stream: TorchStream) -> None:
        """Into room for `rows` rows; those beyond the last that arrives have indices of -1.

        The host waits for nothing.
        """
        results = self._make_room(rows)
        tensors = (x, *self.routing, *results, self.counts.device, self.offsets.device, self.kept.device)
        operator.dispatch.enqueue(operator, tensors, stream)
        self.memory.deliver((*self._results(), self.counts, self.offsets))

    def dispatch_counted(self, operator: NormalOperator, x: Tensor, stream: TorchStream) -> None:
        """Into room for as many rows as arrive: the host waits for the counts."""
        operator.dispatch_send.enqueue(operator, (x, *self.routing, self.counts.device, self.offsets.device), stream)
        self.memory.deliver((self.counts, self.offsets))
        with on(stream):
            rows = int(self.offsets.given.tolist()[-1])
        operator.world.check()
        operator.dispatch_recv.enqueue(operator, (*self._make_room(rows), self.kept.device), stream)
        self.memory.deliver(self._results())

    def again(self, operator: NormalOperator) -> NormalCall:
        """A call of the same routing, whose counts nobody reads."""
        return NormalCall(operator, self.memory, self.tokens, self.routing._replace(num_tokens_per_expert=None), None)

    def _make_room(self, rows: int) -> list[Tensor]:
        shape, new = self.shape, self.memory.new
        self.rows = rows
        self.recv_x = new((rows, shape.dispatch_hidden or shape.hidden), "bfloat16")
        self.recv_topk_idx, self.recv_topk_weights = (
            new((rows, shape.top_k), shape.index_type),
            new((rows, shape.top_k), "float32"),
        )
        return [result.device for result in self._results()]

    def _results(self) -> tuple[Written, ...]:
        return self.recv_x, self.recv_topk_idx, self.recv_topk_weights  # type: ignore[return-value]

    def release(self) -> tuple[Given, Given, Given]:
        """What has arrived; the program has it from now on."""
        x, topk_idx, topk_weights = (result.given for result in self._results())
        self.recv_x = self.recv_topk_idx = self.recv_topk_weights = None
        return x, topk_idx, topk_weights

    # ---- combine

    def combine(
        self,
        operator: NormalOperator,
        x: Tensor,
        out: Written,
        weights: tuple[Tensor, Written] | None,
        stream: TorchStream,
    ) -> None:
        """weights: of the rows, and the room for their sums."""
        if weights is not None:
            tensors = (weights[0], self.routing.topk_idx, self.kept.device, weights[1].device)
            operator.return_weights.enqueue(operator, tensors, stream)
        operator.combine.enqueue(operator, (x, self.routing.topk_idx, None, self.kept.device, out.device), stream)
        self.memory.deliver((out,) if weights is None else (out, weights[1]))
