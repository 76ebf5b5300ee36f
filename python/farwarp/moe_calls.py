"""What both classes of the MoE all-to-all share: creation, state between the halves, and combine."""

from __future__ import annotations

from typing import overload

from . import _c, dtypes
from .array import Array
from .call import Call
from .descriptor import choice, new_desc, set_fields
from .device_streams import StreamLike
from .errors import InvalidArgumentError, MisuseError
from .moe_operator import MODES, Mode, MoeOperator
from .tensors import HostTensor, Result, ResultT, Tensor
from .world import World


class MoeCalls(MoeOperator):
    """What MoeAllToAll and MoeRowsAllToAll have in common. For its parameters see there."""

    def _create(
        self,
        world: World,
        num_experts: int,
        experts_per_token: int,
        hidden: int,
        max_tokens: int,
        *,
        dtype: dtypes.DTypeLike,
        index_type: dtypes.DTypeLike,
        mode: Mode,
        segments: int,
        weights_at_combine: bool = False,
        **fields: object,
    ) -> None:
        """Collective. fields: further ones of farwarp_moe_desc."""
        self._open(
            world,
            set_fields(
                new_desc(_c.MoeDesc),
                num_experts=num_experts,
                experts_per_token=experts_per_token,
                hidden=hidden,
                max_tokens=max_tokens,
                dtype=dtype,
                index_type=index_type,
                mode=choice("mode", mode, MODES),
                segments=segments,
                weights_at_combine=weights_at_combine,
                **fields,
            ),
        )
        self.num_experts, self.experts_per_token = num_experts, experts_per_token
        self.hidden, self.max_tokens = hidden, max_tokens
        self.dtype, self.index_type = dtypes.name_of(dtype), dtypes.name_of(index_type)
        self.mode, self.segments, self.weights_at_combine = mode, segments, bool(weights_at_combine)
        self.recv_rows: int = _c.lib.moe_recv_rows(self.handle)
        self.local_experts: int = _c.lib.moe_local_experts(self.handle)
        self.tokens = 0
        self._kept: list[Tensor | None] = []  # what the later halves of the call under way read: indices and count
        self._like: Tensor | None = None  # its x, until the results are made
        self._combine = Call(self.world, "moe_combine", "y", "out")
        self._combine_weighted = Call(self.world, "moe_combine_weighted", "y weights", "out")
        self._combine_send = Call(self.world, "moe_combine_send", "y")
        self._combine_send_weighted = Call(self.world, "moe_combine_send_weighted", "y weights")
        self._combine_recv = Call(self.world, "moe_combine_recv", "", "out")

    def _call_begun(self, x: Tensor, indices: Tensor, count: Tensor | None, keep: list[Array]) -> None:
        """Within exclusive(), with the call: the state is that of the call enqueued last."""
        self.tokens, self._kept = x.shape[0], [indices, count, *keep]

    def _call_ended(self) -> None:
        self._kept, self._like = [], None

    def recovered(self) -> None:
        """After World.recover(): a call of which not all halves were made is over."""
        super().recovered()
        self._call_ended()

    def _weighted(self, weights: Tensor | None) -> bool:
        """Whether a combine has weights; InvalidArgumentError unless it has what the operator was created for."""
        if (weights is not None) == self.weights_at_combine:
            return self.weights_at_combine
        found, allowed = ("None", "a tensor, with") if weights is None else ("given", "None, without")
        raise InvalidArgumentError(f"weights is {found}; allowed: {allowed} weights_at_combine")

    @overload
    def combine(
        self, y: Tensor, weights: Tensor | None = None, *, out: ResultT, stream: StreamLike = None
    ) -> ResultT: ...
    @overload
    def combine(
        self, y: HostTensor, weights: Tensor | None = None, *, out: None = None, stream: StreamLike = None
    ) -> Array: ...
    @overload
    def combine(
        self, y: Tensor, weights: Tensor | None = None, *, out: None = None, stream: StreamLike = None
    ) -> Result: ...
    def combine(
        self, y: Tensor, weights: Tensor | None = None, *, out: Result | None = None, stream: StreamLike = None
    ) -> Result:
        """Send the experts' outputs back and add them. Every rank calls it, after a dispatch.

        Parameters
        ----------
        y : tensor [recv_rows, hidden]
            The experts' outputs in the rows of dispatch, of the operator's dtype; with layout "masked" also [E, C,
            hidden]. Of MoeRowsAllToAll [rows of recv_x, hidden], of each row the sum of its experts' weighted outputs.
        weights : tensor [tokens, experts_per_token] float32, optional
            With weights_at_combine, else None. They travel to the owners first.
        out : tensor [tokens, hidden], optional
            For the result. None: a new tensor.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current stream.

        Returns
        -------
        Array or torch.Tensor [tokens, hidden]
            `out` or a new tensor: the sums over a token's experts of weight * output; of MoeRowsAllToAll those over its
            ranks of y.

        Raises
        ------
        InvalidArgumentError
            A tensor's shape, type, strides or device is not allowed.
        MisuseError
            The operator is closed, or no call waits for combine().
        """
        if out is None:
            out = self._new(y, (self.tokens, self.hidden), self.dtype)
        weighted = self._weighted(weights)
        with self.world.exclusive():
            if weighted:
                self._combine_weighted.enqueue(self, (y, weights, out), stream)
            else:
                self._combine.enqueue(self, (y, out), stream)
            self._call_ended()
        return out

    def combine_send(self, y: Tensor, weights: Tensor | None = None, *, stream: StreamLike = None) -> None:
        """The half of combine() that sends. Every rank calls it. Parameters and failures: combine().

        With weights it waits for those of the other ranks.
        """
        weighted = self._weighted(weights)
        with self.world.exclusive():
            if weighted:
                self._combine_send_weighted.enqueue(self, (y, weights), stream)
            else:
                self._combine_send.enqueue(self, (y,), stream)
            self._like = y

    @overload
    def combine_recv(self, *, out: ResultT, stream: StreamLike = None) -> ResultT: ...
    @overload
    def combine_recv(self, *, out: None = None, stream: StreamLike = None) -> Result: ...
    def combine_recv(self, *, out: Result | None = None, stream: StreamLike = None) -> Result:
        """The half of combine() that receives. Every rank calls it. Parameters, result and failures: combine()."""
        if out is None:
            if self._like is None:
                raise MisuseError("combine_recv() has no call; allowed: after combine_send()")
            out = self._new(self._like, (self.tokens, self.hidden), self.dtype)
        with self.world.exclusive():
            self._combine_recv.enqueue(self, (out,), stream)
            self._call_ended()
        return out
