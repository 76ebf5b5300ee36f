"""The MoE all-to-all."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from . import _c, dtypes
from .arguments import flag, shape_of, whole
from .call import Call
from .descriptor import choice, new_desc, set_fields
from .device_streams import StreamLike
from .errors import InvalidArgumentError, MisuseError
from .moe_operator import MODES
from .moe_rows import MoeRowsCalls
from .tensors import Result, Tensor, TensorSpec
from .world import World

_SCALED = 128  # numbers of a row that have one scale
_RANK_SCALE, _TABLE = ctypes.c_int32(0), ctypes.c_int32(1)  # farwarp_moe_expert


def _check_powers(hidden: int, fp8_dispatch: Any, scale_columns: Any, powers_of_two: Any, scale_exponents: Any) -> None:
    """Raise InvalidArgumentError unless scales can be of that form."""
    if flag("powers_of_two", powers_of_two) and not flag("fp8_dispatch", fp8_dispatch):
        raise InvalidArgumentError(f"powers_of_two is {powers_of_two}; allowed: False, or with fp8_dispatch")
    if not flag("scale_exponents", scale_exponents):
        return
    if not (powers_of_two and flag("scale_columns", scale_columns)):
        raise InvalidArgumentError(
            f"scale_exponents is {scale_exponents}; allowed: False, or with powers_of_two and scale_columns"
        )
    if hidden % (4 * _SCALED) != 0:
        raise InvalidArgumentError(f"hidden is {hidden}; allowed: with scale_exponents a multiple of {4 * _SCALED}")


class MoeReceived(NamedTuple):
    """What a dispatch brings to this rank.

    Rows of expert i (of this rank's) are offsets[i] to offsets[i] + counts[i]; the others have any contents.

    Attributes
    ----------
    recv_x : tensor [recv_rows, hidden]
        Tokens' rows, of the operator's dtype; with fp8_dispatch uint8: e4m3 numbers, on "hip" for gfx942 and on
        "emu_gfx942" of the FNUZ kind.
    counts : tensor [local_experts] int32
        Rows of each expert.
    offsets : tensor [local_experts + 1] int32
        First row of each expert, and the end.
    origins : tensor [recv_rows] int64
        Source rank << 48 | token << 16 | k-slot; -1: no row.
    scales : tensor [recv_rows, ceil(hidden / 128)] float32, or None
        With fp8_dispatch factors of 128 numbers each; with scale_columns [experts, ceil(hidden / 128), room]; with
        scale_exponents uint8 [experts, hidden / 512, room, 4]. experts: of the rank that has most.
    """

    recv_x: Result
    counts: Result
    offsets: Result
    origins: Result
    scales: Result | None


class MoeAllToAll(MoeRowsCalls):
    """Sends tokens to the ranks of their experts, and the weighted sums of the experts' outputs back.

    Collective to create, and every rank makes every call, in turn dispatch() and combine(); or fused(), which is both
    with an element-wise expert between.

    Each has two halves, dispatch_send(), dispatch_recv(), combine_send(), combine_recv(), called in this order: kernels
    on other streams may run between them, beside the transfer, on multiprocessors that max_sms leaves. dispatch() may
    stand for the first two, combine() for the last two. Another order raises MisuseError. After World.recover() the
    next call is a dispatch or fused().

    Parameters
    ----------
    world : World
        Whose ranks have the experts.
    num_experts : int
        Expert e is of rank floor(e * ranks / num_experts).
    experts_per_token : int
        1 to 32.
    hidden : int
        Numbers of a row, a multiple of 8.
    max_tokens : int
        Of a rank and call, 1 to 65535.
    dtype : str, numpy.dtype or torch.dtype
        "bfloat16" or "float16".
    index_type : str, numpy.dtype or torch.dtype
        "int32" or "int64".
    fp8_dispatch : bool
        Rows arrive as e4m3 with a scale for each 128 numbers.
    masked : bool
        Each expert has the same room for rows, instead of one expert's rows after another's, and gets a token's row
        once, also if it is in several k-slots.
    row_alignment : int
        Of an expert's first row; a power of two up to 1024.
    recv_rows : int
        Room for so many rows, more raise CapacityError; 0: the worst case.
    mode : str
        "words" (rows cross as words that are their own flags), "bulk" (as copies, then a flag) or "auto", the plan's
        choice.
    segments : int
        Of a row, which different warps take; 0: the plan's choice.
    send_only_blocks : int
        Of a dispatch in one launch; 0: the plan's choice; -1: none.
    max_sms : int
        Multiprocessors of a call; 0: all.
    rows : bool
        The layout of rows: a token with several experts of a rank comes there once. Calls are dispatch_rows() and its
        halves, instead of dispatch(), and combine(); there is no fused(). Not with masked or fp8_dispatch.
    weights_at_combine : bool
        combine() is given the weights, dispatch() is not; there is no fused().
    scale_columns : bool
        With fp8_dispatch and masked: scales lie by column, [experts, ceil(hidden / 128), an expert's room], where
        experts are those of the rank that has most.
    powers_of_two : bool
        With fp8_dispatch: scales are rounded up to powers of two.
    scale_exponents : bool
        With powers_of_two, scale_columns and a hidden that 512 divides: of scales the biased exponents (UE8M0), uint8
        [experts, hidden / 512, an expert's room, 4]. A scale is 2 ** (exponent - 127).
    row_scales : int
        With `rows`: rows are in e4m3 already, with so many float32 scales each, up to min(hidden, (2**21 - hidden) //
        4): dispatch_rows() takes what pack_fp8() makes of them, and unpack_fp8() gives them back. 0: rows are of dtype.

    Attributes
    ----------
    recv_rows : int
        Rows of recv_x.
    local_experts : int
        Experts of this rank.
    masked : bool
        As given, as are row_alignment, segments and the other parameters.
    mode : str
        As given; "bulk" where row_scales need it.
    row_elements : int
        Elements of a row that dispatch_rows() takes and brings.
    tokens : int
        Of this rank, in the call under way.

    Raises
    ------
    InvalidArgumentError
        A parameter is outside what is allowed.
    OutOfMemoryError
        The symmetric heap has no room.
    MismatchError
        The ranks gave different parameters.
    MisuseError
        The world is closed.
    """

    def __init__(
        self,
        world: World,
        num_experts: int,
        experts_per_token: int,
        hidden: int,
        max_tokens: int,
        *,
        dtype: dtypes.DTypeLike = "bfloat16",
        index_type: dtypes.DTypeLike = "int32",
        fp8_dispatch: bool = False,
        masked: bool = False,
        row_alignment: int = 1,
        recv_rows: int = 0,
        mode: str = "auto",
        segments: int = 0,
        send_only_blocks: int = 0,
        max_sms: int = 0,
        rows: bool = False,
        weights_at_combine: bool = False,
        scale_columns: bool = False,
        powers_of_two: bool = False,
        scale_exponents: bool = False,
        row_scales: int = 0,
    ) -> None:
        desc, hidden = new_desc(_c.MoeDesc), whole("hidden", hidden)
        _check_powers(hidden, fp8_dispatch, scale_columns, powers_of_two, scale_exponents)
        choice("mode", mode, MODES)
        mode = self._choose_mode(world, row_scales, bool(flag("rows", rows)), hidden, mode)
        self._open(
            world,
            set_fields(
                desc,
                num_experts=num_experts,
                experts_per_token=experts_per_token,
                hidden=hidden,
                max_tokens=max_tokens,
                dtype=dtype,
                index_type=index_type,
                fp8_dispatch=fp8_dispatch,
                masked=masked,
                row_alignment=row_alignment,
                recv_rows=recv_rows,
                mode=choice("mode", mode, MODES),
                segments=segments,
                send_only_blocks=send_only_blocks,
                max_sms=max_sms,
                rows=rows,
                weights_at_combine=weights_at_combine,
                scale_columns=scale_columns,
                powers_of_two=powers_of_two,
                scale_exponents=scale_exponents,
                dispatch_hidden=self.row_elements if self.row_scales > 0 else 0,
            ),
        )
        self.num_experts, self.experts_per_token, self.hidden, self.max_tokens = (
            num_experts,
            experts_per_token,
            hidden,
            max_tokens,
        )
        self.dtype, self.index_type = dtypes.name_of(dtype), dtypes.name_of(index_type)
        self.fp8_dispatch, self.scale_columns = bool(fp8_dispatch), bool(scale_columns)
        self.powers_of_two, self.scale_exponents = bool(powers_of_two), bool(scale_exponents)
        self.masked, self.row_alignment, self.mode, self.segments = bool(masked), row_alignment, mode, segments
        self.rows, self.weights_at_combine = bool(rows), bool(weights_at_combine)
        self.recv_rows = _c.lib.moe_recv_rows(self.handle)
        self.local_experts = _c.lib.moe_local_experts(self.handle)
        self._declare_calls()
        sent, received = "x indices weights", " ".join(MoeReceived._fields)
        self._dispatch = Call(world, "moe_dispatch", sent, received)
        self._dispatch_counted = Call(world, "moe_dispatch_counted", sent + " count", received)
        self._dispatch_send = Call(world, "moe_dispatch_send", sent + " count")
        self._dispatch_recv = Call(world, "moe_dispatch_recv", "", received)
        fused = _c.lib.unchecked("moe_fused")

        def call_fused(
            handle: Any, x: Any, indices: Any, weights: Any, count: Any, table: Any, out: Any, stream: Any
        ) -> int:
            expert = _RANK_SCALE if table is None else _TABLE
            return fused(handle, x, indices, weights, count, expert, table, out, stream)

        self._fused = Call(world, call_fused, sent + " count expert_table", "out")

    def received_specs(self) -> tuple[TensorSpec, ...]:
        """Shape and type of each result of a dispatch, in the order of MoeReceived's fields. Not with `rows`."""
        if self.rows:
            raise MisuseError("received_specs() of a MoeAllToAll with rows; allowed: rows_specs()")
        return self._received_specs()

    def _received_specs(self) -> tuple[TensorSpec, ...]:
        rows, experts = self.recv_rows, self.local_experts
        scales = (self._scales_spec(),) if self.fp8_dispatch else ()
        return (
            TensorSpec((rows, self.hidden), "uint8" if self.fp8_dispatch else self.dtype),
            TensorSpec((experts,), "int32"),
            TensorSpec((experts + 1,), "int32"),
            TensorSpec((rows,), "int64"),
            *scales,
        )

    def _scales_spec(self) -> TensorSpec:
        groups, experts = -(-self.hidden // _SCALED), -(-self.num_experts // self.world.size)  # of the most on a rank
        room = self.recv_rows // experts
        if self.scale_exponents:
            return TensorSpec((experts, groups // 4, room, 4), "uint8")
        return TensorSpec((experts, groups, room) if self.scale_columns else (self.recv_rows, groups), "float32")

    def new_received(self, like: Tensor) -> MoeReceived:
        """Room for what a dispatch receives, for any number of calls. With `rows` it is new_rows().

        Parameters
        ----------
        like : tensor
            Tensors are torch's if it is a torch tensor on the device, else Arrays.

        Returns
        -------
        MoeReceived
            With any contents.

        Raises
        ------
        MisuseError
            The operator is closed, or has `rows`.
        """
        if self.rows:
            raise MisuseError("new_received() of a MoeAllToAll with rows; allowed: new_rows()")
        return self._new_received(like)

    def _new_received(self, like: Tensor) -> MoeReceived:
        recv_x, counts, offsets, origins, *scales = (
            self._new(like, shape, dtype) for shape, dtype in self._received_specs()
        )
        return MoeReceived(recv_x, counts, offsets, origins, scales[0] if scales else None)

    def dispatch(
        self,
        x: Tensor,
        indices: Tensor,
        weights: Tensor | None = None,
        *,
        count: Tensor | None = None,
        out: MoeReceived | None = None,
        stream: StreamLike = None,
    ) -> MoeReceived:
        """Send this rank's tokens and receive those of its experts. Every rank calls it.

        Parameters
        ----------
        x : tensor [tokens, hidden]
            Of the operator's dtype; tokens may be 0.
        indices : tensor [tokens, experts_per_token]
            Of index_type, the tokens' experts; -1: no expert. On the device it must not be changed until combine.
        weights : tensor [tokens, experts_per_token] float32, optional
            Of the sum that combine() makes. None with weights_at_combine.
        count : tensor [1] int32, optional
            Read when the call runs: x, indices and weights (and the result of combine) then have max_tokens rows, of
            which so many count. It must not be changed until combine. One outside 0 to max_tokens is a BadInputError of
            World.check().
        out : MoeReceived, optional
            Room for the results, as new_received() makes. None: new tensors.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current stream.

        Returns
        -------
        MoeReceived
            `out`, or new tensors.

        Raises
        ------
        InvalidArgumentError
            A tensor's shape, type, strides or device is not allowed, or tensors overlap.
        MisuseError
            The operator is closed, or another call is under way.
        """
        if out is None:
            out = self._new_received(x)  # with `rows` the library says what is allowed
        if count is None:
            keep = self._dispatch.enqueue(self, (x, indices, weights, *out), stream)
        else:
            keep = self._dispatch_counted.enqueue(self, (x, indices, weights, count, *out), stream)
        self._call_begun(x, indices, count, keep)
        return out

    def dispatch_send(
        self,
        x: Tensor,
        indices: Tensor,
        weights: Tensor | None = None,
        *,
        count: Tensor | None = None,
        stream: StreamLike = None,
    ) -> None:
        """The half of dispatch() that sends. Every rank calls it.

        indices and count must not be changed until the call's last half. Parameters and failures: dispatch().
        """
        self._call_begun(x, indices, count, self._dispatch_send.enqueue(self, (x, indices, weights, count), stream))
        self._like = x

    def dispatch_recv(self, *, out: MoeReceived | None = None, stream: StreamLike = None) -> MoeReceived:
        """The half of dispatch() that receives. Every rank calls it.

        Parameters, result and failures: dispatch().
        """
        if out is None:
            if self._like is None:
                raise MisuseError("dispatch_recv() has no call; allowed: after dispatch_send()")
            out = self._new_received(self._like)
        self._dispatch_recv.enqueue(self, tuple(out), stream)
        self._like = None
        return out

    def fused(
        self,
        x: Tensor,
        indices: Tensor,
        weights: Tensor,
        *,
        expert_table: Tensor | None = None,
        count: Tensor | None = None,
        out: Result | None = None,
        stream: StreamLike = None,
    ) -> Result:
        """Dispatch, an element-wise stand-in for experts, and combine in one launch. Every rank calls it.

        It has the bits of the split form. Parameters that are not here, and failures: dispatch().

        Parameters
        ----------
        expert_table : tensor [local_experts, 2] float32, optional
            An expert is y = x * scale + shift of its row. None: y = x * (1 + the owner's rank).
        out : tensor [rows of x, hidden], optional
            For the result. None: a new tensor.

        Returns
        -------
        Array or torch.Tensor [rows of x, hidden]
            `out`, or a new tensor.
        """
        if out is None:
            out = self._new(x, (*shape_of("x", x)[:1], self.hidden), self.dtype)
        self._fused.enqueue(self, (x, indices, weights, count, expert_table, out), stream)
        return out
