"""The layout of rows of the MoE all-to-all: a token comes once to each rank that has experts of it."""

from __future__ import annotations

from typing import NamedTuple

from .call import Call
from .device_streams import StreamLike
from .errors import MisuseError
from .moe_combine import MoeCombine
from .tensors import Result, Tensor, TensorSpec


class MoeRows(NamedTuple):
    """What a dispatch of an operator with `rows` brings to this rank, by source rank and token.

    Attributes
    ----------
    recv_x : tensor [rows, hidden]
        Tokens' rows, of the operator's dtype. Those beyond offsets[-1] have any contents.
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


class MoeRowsCalls(MoeCombine):
    """The part of MoeAllToAll that needs `rows`."""

    index_type: str
    experts_per_token: int
    local_experts: int
    recv_rows: int

    def _begin_calls(self) -> None:
        super()._begin_calls()
        self._counted: tuple[Result, Result] | None = None  # of the call whose rows are still to come
        sent, received = "x indices weights", "recv_x recv_indices recv_weights"
        self._dispatch_rows = Call(self.world, "moe_dispatch_rows", sent, f"{received} counts offsets")
        self._dispatch_rows_send = Call(self.world, "moe_dispatch_rows_send", sent, "counts offsets")
        self._dispatch_rows_recv = Call(self.world, "moe_dispatch_rows_recv", "", received)

    def _end(self) -> None:
        super()._end()
        self._counted = None

    def rows_specs(self, rows: int) -> tuple[TensorSpec, ...]:
        """Shape and type of each result of dispatch_rows(), in the order of MoeRows' fields."""
        return (
            TensorSpec((rows, self.hidden), self.dtype),
            TensorSpec((rows, self.experts_per_token), self.index_type),
            TensorSpec((rows, self.experts_per_token), "float32"),
            TensorSpec((self.local_experts,), "int32"),
            TensorSpec((self.world.size + 1,), "int32"),
        )

    def new_rows(self, like: Tensor, rows: int | None = None) -> MoeRows:
        """Room for what dispatch_rows() receives, for any number of calls.

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
        """
        specs = self.rows_specs(self.recv_rows if rows is None else rows)
        return MoeRows(*(self._new(like, shape, dtype) for shape, dtype in specs))

    def dispatch_rows(
        self, x: Tensor, indices: Tensor, weights: Tensor, *, out: MoeRows | None = None, stream: StreamLike = None
    ) -> MoeRows:
        """Send this rank's tokens and receive those of its experts, each once. Every rank calls it; `rows` only.

        Parameters
        ----------
        x : tensor [tokens, hidden]
            Of the operator's dtype; tokens may be 0.
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
            The operator is closed, has not `rows`, or another call is under way.
        """
        if out is None:
            out = self.new_rows(x)
        self._begin(x, indices, None, self._dispatch_rows.enqueue(self, (x, indices, weights, *out), stream))
        return out

    def dispatch_rows_send(
        self, x: Tensor, indices: Tensor, weights: Tensor, *, stream: StreamLike = None
    ) -> tuple[Result, Result]:
        """The half of dispatch_rows() that sends. Every rank calls it. Parameters and failures: dispatch_rows().

        It waits for the other ranks' counts, so that the host can make room for the rows that there are.

        Returns
        -------
        counts, offsets : Array or torch.Tensor
            Those of MoeRows: offsets[-1] rows arrive.
        """
        *_, counts_spec, offsets_spec = self.rows_specs(0)
        counted = self._new(x, *counts_spec), self._new(x, *offsets_spec)
        self._begin(x, indices, None, self._dispatch_rows_send.enqueue(self, (x, indices, weights, *counted), stream))
        self._like, self._counted = x, counted
        return counted

    def dispatch_rows_recv(self, rows: int | None = None, *, stream: StreamLike = None) -> MoeRows:
        """The half of dispatch_rows() that receives. Every rank calls it. Failures: dispatch_rows().

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
            raise MisuseError("dispatch_rows_recv() has no call; allowed: after dispatch_rows_send()")
        like, (counts, offsets) = self._like, self._counted
        specs = self.rows_specs(self.recv_rows if rows is None else rows)[:3]
        x, indices, weights = (self._new(like, shape, dtype) for shape, dtype in specs)
        self._dispatch_rows_recv.enqueue(self, (x, indices, weights), stream)
        self._counted = None
        return MoeRows(x, indices, weights, counts, offsets)
