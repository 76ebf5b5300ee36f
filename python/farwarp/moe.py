"""The MoE all-to-all."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _c, dtypes
from .descriptor import given, new_desc
from .operator import Operator, Parameter, Tensor
from .world import World

_SCALED = 128  # numbers of a row that have one scale


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
    (combine). Collective to create, and every rank makes every call, in turn dispatch and combine.

    num_experts: expert e is of rank floor(e * ranks / num_experts).
    experts_per_token: 1 to 32.
    hidden: a multiple of 8.
    max_tokens: of a rank and call, 1 to 65535.
    dtype: "bfloat16" or "float16".
    index_type: "int32" or "int64".
    fp8_dispatch: rows arrive as e4m3 with a scale for each 128 numbers.
    masked: each expert has the same room for rows, instead of one expert's rows after another's.
    row_alignment: of an expert's first row; a power of two up to 1024.
    recv_rows: room for so many rows, more raise CapacityError; 0: the worst case.
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
        max_sms: int = 0,
    ) -> None:
        desc = new_desc(_c.MoeDesc, _c.lib.moe_desc_init)
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
                fp8_dispatch=bool(fp8_dispatch),
                masked=bool(masked),
                row_alignment=row_alignment,
                recv_rows=recv_rows,
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
        self._routing: Any = None  # its indices, which combine reads
        self._x, self._indices, self._weights, self._y, self._out = (
            Parameter(name, world) for name in ("x", "indices", "weights", "y", "out")
        )
        self._received = tuple(Parameter(name, world) for name in MoeReceived._fields)

    def dispatch(self, x: Tensor, indices: Tensor, weights: Tensor, *, out: MoeReceived | None = None, stream: Any = None) -> MoeReceived:
        """Sends this rank's tokens; tokens may be 0.

        x [tokens, hidden]; indices [tokens, experts_per_token] of index_type, -1: no expert; weights [tokens,
        experts_per_token] float32. Indices on the device must not be changed until combine.
        """
        handle, on = self._begin(stream)
        if out is None:
            out = self.new_received(x)
        x_at, keep_x = self._x.input(x, on)
        indices_at, keep_indices = self._indices.input(indices, on)
        weights_at, keep_weights = self._weights.input(weights, on)
        to = [None if tensor is None else parameter.output(tensor) for parameter, tensor in zip(self._received, out)]
        self._called(_c.lib.moe_dispatch(handle, x_at, indices_at, weights_at, *to, on), on, out)
        self._tokens, self._routing = x.shape[0], indices if keep_indices is None else keep_indices
        return out

    def new_received(self, like: Tensor) -> MoeReceived:
        """Room for what a dispatch receives, of torch if `like` is a torch tensor on the device. It can be used for any
        number of calls."""
        rows = self.recv_rows
        return MoeReceived(
            self._new(like, (rows, self.hidden), "uint8" if self.fp8_dispatch else self.dtype),
            self._new(like, (self.local_experts,), "int32"),
            self._new(like, (self.local_experts + 1,), "int32"),
            self._new(like, (rows,), "int64"),
            self._new(like, (rows, -(-self.hidden // _SCALED)), "float32") if self.fp8_dispatch else None,
        )

    def combine(self, y: Tensor, *, out: Tensor | None = None, stream: Any = None) -> Any:
        """The second half of a call: y [recv_rows, hidden], the experts' outputs in the rows of dispatch -> [tokens,
        hidden], the sums over a token's experts of weight * output."""
        handle, on = self._begin(stream)
        if out is None:
            out = self._new(y, (self._tokens, self.hidden), self.dtype)
        y_at, keep_y = self._y.input(y, on)
        self._called(_c.lib.moe_combine(handle, y_at, self._out.output(out), on), on, (out,))
        self._routing = None
        return out
