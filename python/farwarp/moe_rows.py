"""The MoE all-to-all by tokens: a row comes once to each rank that has experts of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import numpy as np

from . import dtypes
from .arguments import shape_of, whole
from .array import Array
from .call import Call
from .device_streams import StreamLike
from .errors import InvalidArgumentError, MisuseError
from .fp8_rows import MOST_ELEMENTS, FP8Rows, fp8_type, pack, packed_elements, unpack
from .moe_calls import MoeCalls
from .moe_operator import Mode
from .operator import check_world
from .tensors import HostTensor, Result, Tensor, TensorSpec, is_torch
from .world import World

if TYPE_CHECKING:
    import torch

PackedT = TypeVar("PackedT", "np.ndarray[Any, Any]", "torch.Tensor")


class MoeRows(NamedTuple):
    """What a dispatch of MoeRowsAllToAll brings to this rank, by source rank and token.

    Attributes
    ----------
    recv_x : tensor [rows, hidden]
        Tokens' rows, of the operator's dtype. Those beyond offsets[-1] have any contents. With scales_per_row
        [rows, row_elements], for unpack_fp8().
    recv_indices : tensor [rows, experts_per_token]
        Of index_type: a local expert, or -1, also in rows beyond the last.
    recv_weights : tensor [rows, experts_per_token] float32
        Those of the entries; 0 where the index is -1.
    counts : tensor [local_experts] int32
        Entries of each expert.
    offsets : tensor [ranks + 1] int32
        First row of each source, and the end.
    """

    recv_x: Result
    recv_indices: Result
    recv_weights: Result
    counts: Result
    offsets: Result


class MoeRowsAllToAll(MoeCalls):
    """Sends each token once to a rank that has experts of it, with their indices and weights, as DeepEP's normal mode.

    Calls are dispatch(), of which MoeRows are the result, then combine() of the sums that this rank's experts make of
    each row; and their halves, as of MoeAllToAll.

    Parameters
    ----------
    world, num_experts, experts_per_token, hidden, max_tokens
        As of MoeAllToAll.
    dtype, index_type, recv_rows, mode, segments, send_only_blocks, max_sms
        As of MoeAllToAll.
    scales_per_row : int
        0: rows are of dtype. Else they are in e4m3 already, with so many float32 scales each, up to min(hidden, (2**21
        - hidden) // 4): dispatch() takes what pack_fp8() makes of them, and unpack_fp8() gives them back.

    Attributes
    ----------
    recv_rows : int
        The most rows that arrive.
    local_experts : int
        Experts of this rank.
    mode : str
        As given; "bulk" where scales_per_row needs it.
    row_elements : int
        Elements of a row that dispatch() takes and brings: hidden, or with scales_per_row those of its bytes.
    tokens : int
        Of this rank, in the call under way.

    Raises
    ------
    Error
        As of MoeAllToAll.
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
        scales_per_row: int = 0,
        recv_rows: int = 0,
        mode: Mode = "auto",
        segments: int = 0,
        send_only_blocks: int = 0,
        max_sms: int = 0,
    ) -> None:
        self.scales_per_row = whole("scales_per_row", scales_per_row)
        self.row_elements = hidden
        if self.scales_per_row != 0:
            mode = self._mode_of_fp8(world, whole("hidden", hidden), mode)
            self.row_elements = packed_elements(hidden, self.scales_per_row)
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
            rows=True,
            dispatch_hidden=self.row_elements if self.scales_per_row > 0 else 0,
            recv_rows=recv_rows,
            send_only_blocks=send_only_blocks,
            max_sms=max_sms,
        )
        self._counted: tuple[Result, Result] | None = None  # of the call whose rows are still to come
        sent, received = "x indices weights", "recv_x recv_indices recv_weights"
        self._dispatch = Call(world, "moe_dispatch_rows", sent, f"{received} counts offsets")
        self._dispatch_send = Call(world, "moe_dispatch_rows_send", sent, "counts offsets")
        self._dispatch_recv = Call(world, "moe_dispatch_rows_recv", "", received)

    def _mode_of_fp8(self, world: World, hidden: int, mode: Mode) -> Mode:
        """The mode in which the bits of a row are as they were."""
        most = min(hidden, (2 * MOST_ELEMENTS - hidden) // 4)
        if not 0 < self.scales_per_row <= most:
            raise InvalidArgumentError(f"scales_per_row is {self.scales_per_row}; allowed: 0 to {most}")
        # Bytes of all ones are not a NaN in the FNUZ kind: see dispatch_hidden in moe_a2a's plan.h.
        if fp8_type(check_world(world)) != "float8_e4m3fnuz":
            return mode
        if mode == "words":
            raise InvalidArgumentError(
                f"mode is 'words'; allowed: auto, bulk, with scales_per_row on {world.target}, which has FNUZ e4m3"
            )
        return "bulk" if mode == "auto" else mode

    def _call_ended(self) -> None:
        super()._call_ended()
        self._counted = None

    def received_specs(self, rows: int) -> tuple[TensorSpec, ...]:
        """Shape and type of each result of a dispatch into room for `rows` rows, in the order of MoeRows' fields."""
        return (
            TensorSpec((rows, self.row_elements), self.dtype),
            TensorSpec((rows, self.experts_per_token), self.index_type),
            TensorSpec((rows, self.experts_per_token), "float32"),
            TensorSpec((self.local_experts,), "int32"),
            TensorSpec((self.world.size + 1,), "int32"),
        )

    def new_received(self, like: Tensor, rows: int | None = None) -> MoeRows:
        """Room for what a dispatch receives, for any number of calls.

        Parameters
        ----------
        like : tensor
            Tensors are torch's if it is a torch tensor on the device, else Arrays.
        rows : int, optional
            For so many rows. None: recv_rows, the most that arrive.

        Returns
        -------
        MoeRows
            With any contents.

        Raises
        ------
        MisuseError
            The operator is closed.
        """
        specs = self.received_specs(self.recv_rows if rows is None else rows)
        return MoeRows(*(self._new(like, shape, dtype) for shape, dtype in specs))

    def pack_fp8(self, numbers: PackedT, scales: PackedT) -> PackedT:
        """Rows in e4m3 and their scales, as dispatch() takes them; for an operator with scales_per_row.

        With torch tensors it is copies on torch's current stream.

        Parameters
        ----------
        numbers : numpy.ndarray or torch.Tensor [tokens, hidden]
            Of the device's e4m3: float8_e4m3fn; on "hip" for gfx942 and on "emu_gfx942" float8_e4m3fnuz.
        scales : numpy.ndarray or torch.Tensor [tokens, scales_per_row] float32
            Where `numbers` are. Nobody looks into them, so a scale may stand for any part of a row.

        Returns
        -------
        numpy.ndarray or torch.Tensor [tokens, row_elements]
            Bytes of both, of the operator's dtype.

        Raises
        ------
        InvalidArgumentError
            A tensor's shape or type is not allowed.
        MisuseError
            The operator has scales_per_row 0.
        """
        self._check_scales_per_row("pack_fp8")
        if is_torch(numbers) != is_torch(scales) or isinstance(numbers, Array) or isinstance(scales, Array):
            raise InvalidArgumentError(
                f"numbers is a {type(numbers).__name__}, scales a {type(scales).__name__}; "
                "allowed: numpy.ndarray or torch.Tensor, both the same"
            )
        _check_part("numbers", numbers, None, self.hidden, fp8_type(self.world))
        _check_part("scales", scales, shape_of("numbers", numbers)[0], self.scales_per_row, "float32")
        packed: PackedT = pack(numbers, scales, self.dtype)
        return packed

    @overload
    def unpack_fp8(self, rows: HostTensor) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]: ...
    @overload
    def unpack_fp8(self, rows: Result) -> FP8Rows: ...
    def unpack_fp8(self, rows: Tensor) -> FP8Rows:
        """What pack_fp8() has packed, of rows that dispatch() has brought.

        With torch tensors it is copies on torch's current stream. Of an Array it waits, as Array.numpy() does.

        Parameters
        ----------
        rows : tensor [rows, row_elements]
            recv_x, or some rows of it.

        Returns
        -------
        numbers : numpy.ndarray or torch.Tensor [rows, hidden]
            Of the device's e4m3.
        scales : numpy.ndarray or torch.Tensor [rows, scales_per_row] float32
            Their scales.

        Raises
        ------
        InvalidArgumentError
            The shape or type is not allowed.
        MisuseError
            The operator has scales_per_row 0.
        """
        self._check_scales_per_row("unpack_fp8")
        _check_part("rows", rows, None, self.row_elements, self.dtype)
        kind = fp8_type(self.world)
        if is_torch(rows):
            return unpack(rows, self.hidden, self.scales_per_row, dtypes.torch_type(kind))
        if dtypes.ml_dtypes is None:
            raise InvalidArgumentError(f"rows is a {type(rows).__name__}; allowed: with ml_dtypes, which has {kind}")
        host = rows.numpy() if isinstance(rows, Array) else np.ascontiguousarray(rows)
        return unpack(host, self.hidden, self.scales_per_row, np.dtype(getattr(dtypes.ml_dtypes, kind)))

    def _check_scales_per_row(self, method: str) -> None:
        if self.scales_per_row == 0:
            raise MisuseError(f"{method}() of a MoeRowsAllToAll with scales_per_row 0; allowed: with 1 or more")

    def dispatch(
        self, x: Tensor, indices: Tensor, weights: Tensor, *, out: MoeRows | None = None, stream: StreamLike = None
    ) -> MoeRows:
        """Send this rank's tokens and receive those of its experts, each once. Every rank calls it.

        Parameters
        ----------
        x : tensor [tokens, hidden]
            Of the operator's dtype; tokens may be 0. With scales_per_row [tokens, row_elements], what pack_fp8() makes.
        indices : tensor [tokens, experts_per_token]
            Of index_type, the tokens' experts; -1: no expert. On the device it must not be changed until combine.
        weights : tensor [tokens, experts_per_token] float32
            They arrive beside the rows.
        out : MoeRows, optional
            Room for the results. None: new tensors of recv_rows rows.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current stream.

        Returns
        -------
        MoeRows
            `out`, or new tensors. combine() takes y [rows of recv_x, hidden].

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
            self._call_begun(x, indices, None, self._dispatch.enqueue(self, (x, indices, weights, *out), stream))
        return out

    def dispatch_send(
        self, x: Tensor, indices: Tensor, weights: Tensor, *, stream: StreamLike = None
    ) -> tuple[Result, Result]:
        """The half of dispatch() that sends. Every rank calls it. Parameters and failures: dispatch().

        It waits for the other ranks' counts, so that the host can make room for the rows that there are.

        Returns
        -------
        counts, offsets : Array or torch.Tensor
            Those of MoeRows: offsets[-1] rows arrive.
        """
        *_, counts_spec, offsets_spec = self.received_specs(0)
        counted = self._new(x, *counts_spec), self._new(x, *offsets_spec)
        tensors = x, indices, weights, *counted
        with self.world.exclusive():
            self._call_begun(x, indices, None, self._dispatch_send.enqueue(self, tensors, stream))
            self._like, self._counted = x, counted
        return counted

    def dispatch_recv(self, rows: int | None = None, *, stream: StreamLike = None) -> MoeRows:
        """The half of dispatch() that receives. Every rank calls it. Failures: dispatch().

        Parameters
        ----------
        rows : int, optional
            Rows of the results, at least offsets[-1]. None: recv_rows.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current stream.

        Returns
        -------
        MoeRows
            New tensors, and the counts and offsets of the first half.
        """
        if self._like is None or self._counted is None:
            raise MisuseError("dispatch_recv() has no call; allowed: after dispatch_send()")
        like, (counts, offsets) = self._like, self._counted
        specs = self.received_specs(self.recv_rows if rows is None else rows)[:3]
        x, indices, weights = (self._new(like, shape, dtype) for shape, dtype in specs)
        with self.world.exclusive():
            self._dispatch_recv.enqueue(self, (x, indices, weights), stream)
            self._like = self._counted = None
        return MoeRows(x, indices, weights, counts, offsets)


def _check_part(name: str, tensor: Tensor, rows: int | None, columns: int, dtype: str) -> None:
    """Raise InvalidArgumentError unless it is [rows, columns] of that type; rows None: any number."""
    shape, found = shape_of(name, tensor), dtypes.name_of(tensor.dtype)
    if len(shape) != 2 or shape[1] != columns or found != dtype or rows not in (None, shape[0]):
        wanted = "any number" if rows is None else rows
        raise InvalidArgumentError(
            f"{name} is {found} of shape {shape}; allowed: {dtype} of shape ({wanted}, {columns})"
        )
