"""The MoE all-to-all."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from . import _c, dtypes
from .arguments import flag, shape_of
from .call import Call, Tensor
from .descriptor import choice, given, new_desc
from .errors import MisuseError, check
from .operator import Operator
from .world import World

_SCALED = 128  # numbers of a row that have one scale
_MODES = ("auto", "words", "bulk")  # in the order of farwarp_moe_mode
_RANK_SCALE, _TABLE = ctypes.c_int32(0), ctypes.c_int32(1)  # farwarp_moe_expert


class MoeReceived(NamedTuple):
    """What a dispatch brings to this rank. Rows of expert i (of this rank's) are offsets[i] to offsets[i] + counts[i];
    the others have any contents."""

    recv_x: Any
    """[recv_rows, hidden]; with fp8_dispatch uint8: e4m3 numbers, on "hip" for gfx942 and on "emu_gfx942" of the FNUZ
    kind"""
    counts: Any
    """[local_experts] int32: rows of each expert"""
    offsets: Any
    """[local_experts + 1] int32: first row of each expert, and the end"""
    origins: Any
    """[recv_rows] int64: source rank << 48 | token << 16 | k-slot; -1: no row"""
    scales: Any
    """[recv_rows, ceil(hidden / 128)] float32 with fp8_dispatch, else None"""


class MoeAllToAll(Operator):
    """Sends tokens to the ranks of their experts (dispatch), and the weighted sums of the experts' outputs back
    (combine). Collective to create, and every rank makes every call, in turn dispatch and combine; or fused(), which is
    both with an element-wise expert between.

    Each has two halves, dispatch_send(), dispatch_recv(), combine_send(), combine_recv(), called in this order: kernels
    on other streams may run between them, beside the transfer, on multiprocessors that max_sms leaves. dispatch() may
    stand for the first two, combine() for the last two. Another order raises MisuseError. After World.recover() the
    next call is a dispatch or fused().

    num_experts: expert e is of rank floor(e * ranks / num_experts).
    experts_per_token: 1 to 32.
    hidden: a multiple of 8.
    max_tokens: of a rank and call, 1 to 65535.
    dtype: "bfloat16" or "float16".
    index_type: "int32" or "int64".
    fp8_dispatch: rows arrive as e4m3 with a scale for each 128 numbers.
    masked: each expert has the same room for rows, instead of one expert's rows after another's, and gets a token's row
        once, also if it is in several k-slots.
    row_alignment: of an expert's first row; a power of two up to 1024.
    recv_rows: room for so many rows, more raise CapacityError; 0: the worst case.
    mode: "words" (rows cross as words that are their own flags), "bulk" (as copies, then a flag) or "auto", the plan's
        choice.
    segments: of a row, which different warps take; 0: the plan's choice.
    send_only_blocks: of a dispatch in one launch; 0: the plan's choice; -1: none.
    max_sms: multiprocessors of a call; 0: all.
    """

    _name = "moe"

    def __init__(
        self,
        world: World,
        num_experts: int,
        experts_per_token: int,
        hidden: int,
        max_tokens: int,
        *,
        dtype: Any = "bfloat16",
        index_type: Any = "int32",
        fp8_dispatch: bool = False,
        masked: bool = False,
        row_alignment: int = 1,
        recv_rows: int = 0,
        mode: str = "auto",
        segments: int = 0,
        send_only_blocks: int = 0,
        max_sms: int = 0,
    ) -> None:
        desc = new_desc(_c.MoeDesc)
        self._open(
            world,
            given(
                desc,
                num_experts=num_experts,
                experts_per_token=experts_per_token,
                hidden=hidden,
                max_tokens=max_tokens,
                dtype=dtype,
                index_type=index_type,
                fp8_dispatch=flag("fp8_dispatch", fp8_dispatch),
                masked=flag("masked", masked),
                row_alignment=row_alignment,
                recv_rows=recv_rows,
                mode=choice("mode", mode, _MODES),
                segments=segments,
                send_only_blocks=send_only_blocks,
                max_sms=max_sms,
            ),
        )
        self.num_experts, self.experts_per_token, self.hidden, self.max_tokens = (num_experts, experts_per_token, hidden, max_tokens)
        self.dtype, self.fp8_dispatch = dtypes.name_of(dtype), bool(fp8_dispatch)
        self.recv_rows: int = _c.lib.moe_recv_rows(self._handle)
        """rows of recv_x"""
        self.local_experts: int = _c.lib.moe_local_experts(self._handle)
        """experts of this rank"""
        self._tokens = 0  # of the call under way
        self._kept: list[Any] = []  # what its later halves read: indices and count
        self._like: Any = None  # its x, until the results are made
        sent, received = "x indices weights", " ".join(MoeReceived._fields)
        self._dispatch = Call(world, "moe_dispatch", sent, received)
        self._dispatch_counted = Call(world, "moe_dispatch_counted", sent + " count", received)
        self._dispatch_send = Call(world, "moe_dispatch_send", sent + " count")
        self._dispatch_recv = Call(world, "moe_dispatch_recv", "", received)
        self._combine = Call(world, "moe_combine", "y", "out")
        self._combine_send = Call(world, "moe_combine_send", "y")
        self._combine_recv = Call(world, "moe_combine_recv", "", "out")
        fused = _c.lib.unchecked("moe_fused")

        def call_fused(handle: Any, x: Any, indices: Any, weights: Any, count: Any, table: Any, out: Any, stream: Any) -> int:
            expert = _RANK_SCALE if table is None else _TABLE
            return fused(handle, x, indices, weights, count, expert, table, out, stream)

        self._fused = Call(world, call_fused, sent + " count expert_table", "out")

    def _received_results(self) -> tuple:
        """Shape and type of each result of a dispatch."""
        rows, experts = self.recv_rows, self.local_experts
        scales = (((rows, -(-self.hidden // _SCALED)), "float32"),) if self.fp8_dispatch else ()
        return (
            ((rows, self.hidden), "uint8" if self.fp8_dispatch else self.dtype),
            ((experts,), "int32"),
            ((experts + 1,), "int32"),
            ((rows,), "int64"),
            *scales,
        )

    def new_received(self, like: Tensor) -> MoeReceived:
        """Room for what a dispatch receives, of torch if `like` is a torch tensor on the device. It can be used for any
        number of calls."""
        recv_x, counts, offsets, origins, *scales = (self._new(like, shape, dtype) for shape, dtype in self._received_results())
        return MoeReceived(recv_x, counts, offsets, origins, scales[0] if scales else None)

    def _begin(self, x: Tensor, indices: Tensor, count: Tensor | None, keep: list[Any]) -> None:
        self._tokens, self._kept = x.shape[0], [indices, count, *keep]

    def _end(self) -> None:
        self._kept, self._like = [], None

    def _recovered(self) -> None:
        """After World.recover(): a call of which not all halves were made is over."""
        check(_c.lib.moe_forget(self._open_handle()))
        self._end()

    def dispatch(
        self,
        x: Tensor,
        indices: Tensor,
        weights: Tensor,
        *,
        count: Tensor | None = None,
        out: MoeReceived | None = None,
        stream: Any = None,
    ) -> MoeReceived:
        """Sends this rank's tokens; tokens may be 0.

        x [tokens, hidden]; indices [tokens, experts_per_token] of index_type, -1: no expert; weights [tokens,
        experts_per_token] float32. Indices on the device must not be changed until combine.

        count: [1] int32, read when the call runs: x, indices and weights (and the result of combine) then have
        max_tokens rows, of which so many count. It must not be changed until combine. One outside 0 to max_tokens is a
        BadInputError of World.check().
        """
        if out is None:
            out = self.new_received(x)
        if count is None:
            keep = self._dispatch.enqueue(self, (x, indices, weights, *out), stream)
        else:
            keep = self._dispatch_counted.enqueue(self, (x, indices, weights, count, *out), stream)
        self._begin(x, indices, count, keep)
        return out

    def dispatch_send(self, x: Tensor, indices: Tensor, weights: Tensor, *, count: Tensor | None = None, stream: Any = None) -> None:
        """The half of dispatch() that sends. indices and count must not be changed until the call's last half."""
        self._begin(x, indices, count, self._dispatch_send.enqueue(self, (x, indices, weights, count), stream))
        self._like = x

    def dispatch_recv(self, *, out: MoeReceived | None = None, stream: Any = None) -> MoeReceived:
        """The half of dispatch() that receives."""
        if out is None:
            if self._like is None:
                raise MisuseError("dispatch_recv() has no call; allowed: after dispatch_send()")
            out = self.new_received(self._like)
        self._dispatch_recv.enqueue(self, tuple(out), stream)
        return out

    def combine(self, y: Tensor, *, out: Tensor | None = None, stream: Any = None) -> Any:
        """The second half of a call: y [recv_rows, hidden], the experts' outputs in the rows of dispatch -> [tokens,
        hidden], the sums over a token's experts of weight * output."""
        if out is None:
            out = self._new(y, (self._tokens, self.hidden), self.dtype)
        self._combine.enqueue(self, (y, out), stream)
        self._end()
        return out

    def combine_send(self, y: Tensor, *, stream: Any = None) -> None:
        """The half of combine() that sends."""
        self._combine_send.enqueue(self, (y,), stream)
        self._like = y

    def combine_recv(self, *, out: Tensor | None = None, stream: Any = None) -> Any:
        """The half of combine() that receives."""
        if out is None:
            if self._like is None:
                raise MisuseError("combine_recv() has no call; allowed: after combine_send()")
            out = self._new(self._like, (self._tokens, self.hidden), self.dtype)
        self._combine_recv.enqueue(self, (out,), stream)
        self._end()
        return out

    def fused(
        self,
        x: Tensor,
        indices: Tensor,
        weights: Tensor,
        *,
        expert_table: Tensor | None = None,
        count: Tensor | None = None,
        out: Tensor | None = None,
        stream: Any = None,
    ) -> Any:
        """Dispatch, an element-wise stand-in for experts, and combine in one launch, with the bits of the split form ->
        [rows of x, hidden]. Not with the layout of rows.

        expert_table: [local_experts, 2] float32: an expert is y = x * scale + shift of its row. None: y = x * (1 + the
        owner's rank). Other tensors: dispatch().
        """
        if out is None:
            out = self._new(x, (*shape_of("x", x)[:1], self.hidden), self.dtype)
        self._fused.enqueue(self, (x, indices, weights, count, expert_table, out), stream)
        return out
