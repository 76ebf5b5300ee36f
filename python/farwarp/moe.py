"""The MoE all-to-all, by experts."""

from __future__ import annotations

import ctypes
from typing import Literal, NamedTuple

from . import _c, dtypes
from .arguments import flag, shape_of, shown, whole
from .call import Call
from .descriptor import choice
from .device_streams import StreamLike
from .errors import InvalidArgumentError, MisuseError
from .moe_calls import MoeCalls
from .moe_operator import Mode
from .tensors import Result, Tensor, TensorSpec
from .world import World

Layout = Literal["expert_major", "masked"]
Scales = Literal["rows", "columns", "ue8m0"]

_LAYOUTS = ("expert_major", "masked")
_SCALES = ("rows", "columns", "ue8m0")
_SCALED = 128  # numbers of a row that have one scale
_RANK_SCALE, _TABLE = ctypes.c_int32(0), ctypes.c_int32(1)  # farwarp_moe_expert


def _check_scales(scales: object, layout: str, round_scales: int, hidden: int, dtype: str) -> None:
    """Raise InvalidArgumentError unless rows can have such scales."""
    if scales is None:
        if round_scales:
            raise InvalidArgumentError("round_scales is True; allowed: False, or with scales")
        return
    if not isinstance(scales, str) or scales not in _SCALES:
        raise InvalidArgumentError(f"scales is {shown(scales)}; allowed: None, {', '.join(_SCALES)}")
    if dtype != "bfloat16":
        raise InvalidArgumentError(f"dtype is {dtype}; allowed: with scales bfloat16")
    if scales != "rows" and layout != "masked":
        raise InvalidArgumentError(f"scales is {scales!r}; allowed: None, rows, or with layout masked the others")
    if scales == "ue8m0" and hidden % (4 * _SCALED) != 0:
        raise InvalidArgumentError(f"hidden is {hidden}; allowed: with scales ue8m0 a multiple of {4 * _SCALED}")


class MoeReceived(NamedTuple):
    """What a dispatch of MoeAllToAll brings to this rank.

    Rows of expert i (of this rank's) are offsets[i] to offsets[i] + counts[i]; the others have any contents.

    Attributes
    ----------
    recv_x : tensor [recv_rows, hidden]
        Tokens' rows, of the operator's dtype; with scales uint8: e4m3 numbers, on "hip" for gfx942 and on
        "emu_gfx942" of the FNUZ kind.
    counts : tensor [local_experts] int32
        Rows of each expert.
    offsets : tensor [local_experts + 1] int32
        First row of each expert, and the end.
    origins : tensor [recv_rows] int64
        Source rank << 48 | token << 16 | k-slot; -1: an expert's padding, up to row_alignment, in layout "masked" up
        to its room. From offsets[-1] on any contents.
    scales : tensor or None
        Factors of 128 numbers each, in the form of the operator's `scales`.
    """

    recv_x: Result
    counts: Result
    offsets: Result
    origins: Result
    scales: Result | None


class MoeAllToAll(MoeCalls):
    """Sends tokens to the ranks of their experts, and the weighted sums of the experts' outputs back.

    Collective to create, and every rank makes every call, in turn dispatch() and combine(); or fused(), which is both
    with an element-wise expert between. A token crosses once to a rank, and is copied to the rows of its experts there;
    MoeRowsAllToAll delivers it once to a rank, whatever experts it has there.

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
        Numbers of a row, a multiple of 8 up to 1048576.
    max_tokens : int
        Of a rank and call, 1 to 65535; times experts_per_token at most 1048575.
    dtype : str, numpy.dtype or torch.dtype
        "bfloat16" or "float16".
    index_type : str, numpy.dtype or torch.dtype
        "int32" or "int64".
    layout : str
        Of recv_x [recv_rows, hidden]. "expert_major" (DeepGEMM's contiguous): the experts' rows one after another, a
        row for each of a token's k-slots. "masked" (DeepEP's low-latency, vLLM's batched): recv_x is seen as, and out=
        may be, [E, C, hidden] (masked_shape), expert i's rows begin at i * C, and it gets a token's row once, also if
        it is in several k-slots.
    scales : str, optional
        None: rows arrive in dtype. Else, of bfloat16, they arrive as e4m3, and each 128 numbers have a scale:
        "rows" float32 [recv_rows, ceil(hidden / 128)]; or, with layout "masked", "columns" float32 [E, ceil(hidden /
        128), C], or "ue8m0" uint8 [E, hidden / 512, C, 4], biased exponents of 2 ** (exponent - 127), for a hidden
        that 512 divides.
    round_scales : bool
        Scales are rounded up to powers of two, as those of "ue8m0" always are.
    weights_at_combine : bool
        combine() is given the weights, dispatch() is not; there is no fused().
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

    Attributes
    ----------
    recv_rows : int
        Rows of recv_x.
    local_experts : int
        Experts of this rank.
    masked_shape : tuple of int
        (E, C): experts of the rank that has most, and recv_rows // E, the room of each in layout "masked".
    layout : str
        As given, as are num_experts, experts_per_token, hidden, max_tokens, scales, row_alignment, mode ("auto", too)
        and segments. weights_at_combine and round_scales are bools, the latter True with "ue8m0"; dtype and index_type
        are names.
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
        layout: Layout = "expert_major",
        scales: Scales | None = None,
        round_scales: bool = False,
        weights_at_combine: bool = False,
        row_alignment: int = 1,
        recv_rows: int = 0,
        mode: Mode = "auto",
        segments: int = 0,
        send_only_blocks: int = 0,
        max_sms: int = 0,
    ) -> None:
        choice("layout", layout, _LAYOUTS)
        rounded = flag("round_scales", round_scales)
        _check_scales(scales, layout, rounded, whole("hidden", hidden), dtypes.name_of(dtype))
        self.layout, self.scales, self.round_scales = layout, scales, bool(rounded) or scales == "ue8m0"
        self._create(
            world,
            num_experts,
            experts_per_token,
            hidden,
            max_tokens,
            dtype=dtype,
            index_type=index_type,
            mode=mode,
            segments=segments,
            weights_at_combine=weights_at_combine,
            fp8_dispatch=scales is not None,
            masked=layout == "masked",
            scale_columns=scales in ("columns", "ue8m0"),
            powers_of_two=self.round_scales,
            scale_exponents=scales == "ue8m0",
            row_alignment=row_alignment,
            recv_rows=recv_rows,
            send_only_blocks=send_only_blocks,
            max_sms=max_sms,
        )
        self.row_alignment = row_alignment
        experts = -(-num_experts // world.size)
        self.masked_shape = experts, self.recv_rows // experts
        sent, received = "x indices weights", " ".join(MoeReceived._fields)
        late = "weights" if self.weights_at_combine else ""
        self._dispatch = Call(world, "moe_dispatch", sent, received, optional=late)
        self._dispatch_counted = Call(world, "moe_dispatch_counted", sent + " count", received, optional=late)
        self._dispatch_send = Call(world, "moe_dispatch_send", sent + " count", optional=late + " count")
        self._dispatch_recv = Call(world, "moe_dispatch_recv", "", received)
        fused = _c.lib.unchecked("moe_fused")

        def call_fused(handle: ctypes.c_void_p, *arguments: _c.Reference | None) -> int:
            *sent, table, out, stream = arguments
            return fused(handle, *sent, _RANK_SCALE if table is None else _TABLE, table, out, stream)

        optional = late + " count expert_table"
        self._fused = Call(world, call_fused, sent + " count expert_table", "out", optional=optional)

    def received_specs(self) -> tuple[TensorSpec, ...]:
        """Shape and type of each result of a dispatch, in the order of MoeReceived's fields; scales if there are."""
        rows, experts = self.recv_rows, self.local_experts
        return (
            TensorSpec((rows, self.hidden), self.dtype if self.scales is None else "uint8"),
            TensorSpec((experts,), "int32"),
            TensorSpec((experts + 1,), "int32"),
            TensorSpec((rows,), "int64"),
            *(() if self.scales is None else (self._scales_spec(),)),
        )

    def _scales_spec(self) -> TensorSpec:
        groups, (experts, room) = -(-self.hidden // _SCALED), self.masked_shape
        if self.scales == "ue8m0":
            return TensorSpec((experts, groups // 4, room, 4), "uint8")
        return TensorSpec((experts, groups, room) if self.scales == "columns" else (self.recv_rows, groups), "float32")

    def new_received(self, like: Tensor) -> MoeReceived:
        """Room for what a dispatch receives, for any number of calls.

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
            The operator is closed.
        """
        recv_x, counts, offsets, origins, *scales = (
            self._new(like, shape, dtype) for shape, dtype in self.received_specs()
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
            out = self.new_received(x)
        with self.world.exclusive():
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
        with self.world.exclusive():
            self._call_begun(x, indices, count, self._dispatch_send.enqueue(self, (x, indices, weights, count), stream))
            self._like = x

    def dispatch_recv(self, *, out: MoeReceived | None = None, stream: StreamLike = None) -> MoeReceived:
        """The half of dispatch() that receives. Every rank calls it.

        Parameters, result and failures: dispatch().
        """
        if out is None:
            if self._like is None:
                raise MisuseError("dispatch_recv() has no call; allowed: after dispatch_send()")
            out = self.new_received(self._like)
        with self.world.exclusive():
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
