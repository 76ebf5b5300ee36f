"""Buffer's methods of normal mode."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from .. import dtypes
from ..errors import InvalidArgumentError, UnavailableError
from ..fp8_rows import fp8_type, pack, packed_elements, unpack
from ..tensors import is_torch
from .base import BufferBase
from .config import Config
from .event import EventOverlap, TorchStream
from .memory import DeviceMemory, Given, HostMemory
from .normal_call import SHAPES, NormalCall, NormalOperator, NormalShape, Routing, most_tokens, on
from .normal_tensors import check_routing, check_x, layout, routing_of_ranks


class NormalMethods(BufferBase):
    """What a Buffer has for many tokens: each row crosses once to each rank of its experts, and lies there once."""

    def get_dispatch_layout(
        self,
        topk_idx: Given,
        num_experts: int,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Given, None, Given, Given, EventOverlap]:
        """Where tokens go. Local.

        Parameters
        ----------
        topk_idx : tensor [tokens, top-k] int64 or int32
            The tokens' experts; -1: none.
        num_experts : int
            Of all ranks.
        previous_event : EventOverlap, optional
            The call comes after it, instead of what the current stream has been given.
        async_finish : bool
            The call runs on the communication stream.
        allocate_on_comm_stream : bool
            Without effect.

        Returns
        -------
        num_tokens_per_rank : tensor [ranks] int32
            Tokens that go to each rank.
        num_tokens_per_rdma_rank : None
            There is one machine.
        num_tokens_per_expert : tensor [num_experts] int32
            Tokens that go to each expert.
        is_token_in_rank : tensor [tokens, ranks] bool
            Whether a token goes there.
        event : EventOverlap
            The end of the call, with async_finish.

        Raises
        ------
        InvalidArgumentError
            num_experts is no multiple of the ranks.
        """
        if num_experts <= 0 or num_experts % self.group_size != 0:
            raise InvalidArgumentError(
                f"get_dispatch_layout: num_experts is {num_experts}; "
                f"allowed: a multiple of the ranks, {self.group_size}"
            )
        found: list[Given] = []

        def work(stream: TorchStream) -> None:
            with on(stream):
                found.extend(layout(topk_idx, num_experts, self.group_size))
            _used_here(found, stream)

        event = self._run(work, async_finish, (topk_idx, found), previous_event)
        return found[0], None, found[1], found[2], event

    def dispatch(
        self,
        x: Given | tuple[Given, Given],
        handle: NormalCall | None = None,
        num_tokens_per_rank: Given | None = None,
        num_tokens_per_rdma_rank: None = None,
        is_token_in_rank: Given | None = None,
        num_tokens_per_expert: Given | None = None,
        topk_idx: Given | None = None,
        topk_weights: Given | None = None,
        expert_alignment: int = 1,
        num_worst_tokens: int = 0,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[
        Given | tuple[Given, Given], Given | None, Given | None, list[int] | None, NormalCall | None, EventOverlap
    ]:
        """Send tokens to the ranks of their experts. Every rank calls it; the first call of a shape waits.

        Parameters
        ----------
        x : tensor [tokens, hidden] bfloat16, or (numbers, scales)
            The latter [tokens, hidden] float8_e4m3fn and [tokens, groups] float32, which are copied into rows of bytes
            before, and out of them after.
        handle : NormalCall, optional
            Of an earlier dispatch: its tokens' rows take the same ways, and nothing of what follows is given but
            num_worst_tokens, config and streams. The host waits for nothing but a first call of a shape.
        num_tokens_per_rank, num_tokens_per_rdma_rank
            The first is not read, the second is None.
        is_token_in_rank : tensor [tokens, ranks] bool, optional
            Where tokens go, without topk_idx. With topk_idx that says it.
        num_tokens_per_expert : tensor [num_experts] int32
            Its length is the number of experts; without topk_idx the owners are told these numbers.
        topk_idx : tensor [tokens, top-k] int64 or int32, optional
            The tokens' experts; -1: none. It must not change as long as the handle is used, nor must topk_weights.
        topk_weights : tensor [tokens, top-k] float32, optional
            Given with topk_idx.
        expert_alignment : int
            The counts that are returned are rounded up to multiples of it. Not read with handle.
        num_worst_tokens : int
            Room for so many rows, and the host waits for nothing, as CUDA graphs need it. 0: the host waits for the
            counts.
        config : Config, optional
            Its num_sms is the multiprocessors of the call. None: Buffer.num_sms, with handle those of its dispatch.
        previous_event, async_finish, allocate_on_comm_stream
            As of get_dispatch_layout().

        Returns
        -------
        recv_x : tensor or (numbers, scales)
            Like x: rows by source rank and token.
        recv_topk_idx : tensor [rows, top-k] or None
            This rank's experts from 0, -1 for others and in rows beyond the last; None without topk_idx.
        recv_topk_weights : tensor [rows, top-k] float32 or None
            0 where recv_topk_idx is -1.
        num_recv_tokens_per_expert_list : list of int or None
            Empty with num_worst_tokens.
        handle : NormalCall or None
            For combine() and dispatch(). With `handle` all but recv_x and event are None.
        event : EventOverlap
            The end of the call, with async_finish.

        Raises
        ------
        InvalidArgumentError
            A tensor's shape or type, or the handle, is not allowed, or num_nvl_bytes has no room for so many tokens.
        MisuseError
            A first call of a shape is captured in a CUDA graph.
        UnavailableError
            An option is not here.
        """
        method = "dispatch"
        if num_tokens_per_rdma_rank is not None:
            raise UnavailableError(
                f"{method}: num_tokens_per_rdma_rank is given, but there is one machine; allowed: None"
            )
        rows, scales = x if isinstance(x, tuple) else (x, None)
        check_x(method, x)
        memory = self._memory or HostMemory(self._world, rows)
        if handle is None:
            call, operator, sent = self._new_call(
                method, memory, x, topk_idx, topk_weights, is_token_in_rank, num_tokens_per_expert, config
            )
        else:
            call, operator, sent = self._call_again(method, x, handle, topk_idx, topk_weights, config)
        room = num_worst_tokens if handle is None else num_worst_tokens or handle.rows
        delivered: list[Given | tuple[Given, Given]] = []

        def work(stream: TorchStream) -> None:
            with on(stream):
                given = rows if scales is None else pack(rows, scales)
            packed = memory.input(given, "bfloat16")
            if room > 0 or handle is not None:
                call.dispatch(operator, packed, room, stream)
            else:
                call.dispatch_counted(operator, packed, stream)
            given = call.recv_x.given  # type: ignore[union-attr]
            if scales is None:
                delivered.append(given)
            else:
                with on(stream):
                    parts = unpack(given, call.shape.hidden, scales.shape[1], rows.dtype)
                _used_here(parts, stream)
                delivered.append(parts)

        event = self._run(work, async_finish, (x, sent, call), previous_event)
        if handle is not None:
            return delivered[0], None, None, None, None, event
        align = max(1, expert_alignment)
        counts = [] if num_worst_tokens > 0 else [-(-count // align) * align for count in call.counts.given.tolist()]
        _, recv_topk_idx, recv_topk_weights = call.release()
        if topk_idx is None:
            return delivered[0], None, None, counts, call, event
        return delivered[0], recv_topk_idx, recv_topk_weights, counts, call, event

    def _new_call(
        self,
        method: str,
        memory: DeviceMemory | HostMemory,
        x: Given | tuple[Given, Given],
        topk_idx: Given | None,
        topk_weights: Given | None,
        in_rank: Given | None,
        per_expert: Given | None,
        config: Config | None,
    ) -> tuple[NormalCall, NormalOperator, Routing | None]:
        rows = x[0] if isinstance(x, tuple) else x
        if per_expert is None or (topk_idx is None) != (topk_weights is None) or (topk_idx is None and in_rank is None):
            raise InvalidArgumentError(
                f"{method}: num_tokens_per_expert, or one of topk_idx and topk_weights, or is_token_in_rank is None; "
                "allowed: a handle; "
                "num_tokens_per_expert with topk_idx and topk_weights; num_tokens_per_expert with is_token_in_rank"
            )
        experts = per_expert.shape[0]
        counted = None
        if topk_idx is None or topk_weights is None:  # both
            assert in_rank is not None
            if tuple(in_rank.shape) != (rows.shape[0], self.group_size) or dtypes.name_of(in_rank.dtype) != "bool":
                raise InvalidArgumentError(
                    f"{method}: is_token_in_rank is {dtypes.name_of(in_rank.dtype)} of shape {tuple(in_rank.shape)}; "
                    "allowed: bool of shape "
                    f"({rows.shape[0]}, {self.group_size})"
                )
            topk_idx, topk_weights = routing_of_ranks(in_rank, experts)
            counted = memory.input(per_expert, "int32")
        check_routing(method, rows, topk_idx, topk_weights)
        shape = self._shape(x, experts, topk_idx, config)
        operator = self._normal_operator(method, shape, rows.shape[0])
        routing = Routing(memory.input(topk_idx, shape.index_type), memory.input(topk_weights, "float32"), counted)
        return NormalCall(operator, memory, rows.shape[0], routing, in_rank), operator, routing

    def _call_again(
        self,
        method: str,
        x: Given | tuple[Given, Given],
        handle: NormalCall,
        topk_idx: Given | None,
        topk_weights: Given | None,
        config: Config | None,
    ) -> tuple[NormalCall, NormalOperator, Routing | None]:
        self._check_handle(method, handle)
        if topk_idx is not None or topk_weights is not None:
            raise InvalidArgumentError(
                f"{method}: handle and topk_idx or topk_weights are given; allowed: the handle alone"
            )
        rows = x[0] if isinstance(x, tuple) else x
        if rows.shape[0] != handle.tokens:
            raise InvalidArgumentError(
                f"{method}: x has {rows.shape[0]} rows; allowed: {handle.tokens}, as the handle's dispatch had"
            )
        shape = self._with_rows_of(handle.shape, x)
        if config is not None:
            shape = shape._replace(num_sms=config.num_sms)
        operator = self._normal_operator(method, shape, handle.tokens)
        return handle.again(operator), operator, None

    def combine(
        self,
        x: Given,
        handle: NormalCall,
        topk_weights: Given | None = None,
        bias: None = None,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Given, Given | None, EventOverlap]:
        """The sum over ranks of what each has made of a token's row. Every rank calls it.

        Parameters
        ----------
        x : tensor [rows of recv_x, hidden] bfloat16
            For each row the sum of its experts' outputs, the weights applied.
        handle : NormalCall
            Of a dispatch. One that is not the last dispatch, or that has been combined, costs one launch more, two if
            the last dispatch is not combined.
        topk_weights : tensor [rows of recv_x, top-k] float32, optional
            Numbers that return to the rows' sources beside the rows, gradients of weights for one.
        bias : None
            Not here.
        config : Config, optional
            Not read; the multiprocessors are those of the dispatch.
        previous_event, async_finish, allocate_on_comm_stream
            As of get_dispatch_layout().

        Returns
        -------
        combined_x : tensor [tokens, hidden] bfloat16
            Rows are added in the order of ranks in fp32, and rounded once.
        combined_topk_weights : tensor [tokens, top-k] float32 or None
            They are not rounded.
        event : EventOverlap
            The end of the call, with async_finish.

        Raises
        ------
        InvalidArgumentError
            A tensor's shape or type, or the handle, is not allowed.
        UnavailableError
            There is a bias.
        """
        method = "combine"
        if bias is not None:
            raise UnavailableError(f"{method}: bias is given, which farwarp.deep_ep has not; allowed: None")
        self._check_handle(method, handle)
        shape, memory = handle.shape, handle.memory
        if tuple(x.shape) != (handle.rows, shape.hidden):
            raise InvalidArgumentError(
                f"{method}: x has shape {tuple(x.shape)}; "
                f"allowed: {(handle.rows, shape.hidden)}, the rows that dispatch delivered"
            )
        operator = self._normal_operator(method, shape._replace(max_tokens=0), handle.tokens)
        result = memory.new((handle.tokens, shape.hidden), "bfloat16")
        sent = memory.input(x, "bfloat16")
        weights = None
        if topk_weights is not None:
            weights = memory.input(topk_weights, "float32"), memory.new((handle.tokens, shape.top_k), "float32")
        event = self._run(
            lambda stream: handle.combine(operator, sent, result, weights, stream),
            async_finish,
            (sent, result, weights, handle),
            previous_event,
        )
        return result.given, None if weights is None else weights[1].given, event

    def _check_handle(self, method: str, handle: object) -> None:
        if not isinstance(handle, NormalCall) or handle.world is not self._world:
            raise InvalidArgumentError(
                f"{method}: handle is {handle!r}; allowed: what dispatch() of this Buffer returned"
            )

    def _with_rows_of(self, shape: NormalShape, x: Given | tuple[Given, Given]) -> NormalShape:
        """The shape for rows of x, without max_tokens."""
        rows, scales = x if isinstance(x, tuple) else (x, None)
        hidden = rows.shape[1]
        return shape._replace(
            max_tokens=0,
            hidden=hidden,
            dispatch_hidden=0 if scales is None else packed_elements(hidden, scales.shape[1]),
            # Bytes of all ones are not a NaN in the FNUZ kind: see dispatch_hidden in moe_a2a's plan.h.
            mode="bulk" if scales is not None and fp8_type(self._world) == "float8_e4m3fnuz" else "auto",
        )

    def _shape(
        self,
        x: Given | tuple[Given, Given],
        num_experts: int,
        topk_idx: Given,
        config: Config | None,
    ) -> NormalShape:
        """Without max_tokens."""
        shape = NormalShape(
            max_tokens=0,
            hidden=0,
            dispatch_hidden=0,
            num_experts=num_experts,
            top_k=topk_idx.shape[1],
            index_type=dtypes.name_of(topk_idx.dtype),
            num_sms=self.num_sms if config is None else config.num_sms,
            mode="auto",
        )
        return self._with_rows_of(shape, x)

    def _normal_operator(self, method: str, shape: NormalShape, tokens: int) -> NormalOperator:
        """Collective if there is none for the shape.

        All ranks create, and close, the same ones, as they make the same calls.
        """
        operator = self._operators.get(shape, lambda: [self._create_normal(method, shape)], shape)[0]
        most = operator.shape.max_tokens
        if tokens > most:
            raise InvalidArgumentError(
                f"{method}: x has {tokens} rows; "
                f"allowed: up to {most} on each rank, for which num_nvl_bytes, {self.num_nvl_bytes}, has room"
            )
        return operator

    def _create_normal(self, method: str, shape: NormalShape) -> NormalOperator:
        """Collective."""
        if shape.num_experts % self.group_size != 0:
            raise InvalidArgumentError(
                f"{method}: num_tokens_per_expert has {shape.num_experts} elements; "
                f"allowed: a multiple of the ranks, {self.group_size}"
            )
        world, room = self._world, self.num_nvl_bytes // SHAPES
        most = most_tokens(shape, self.group_size, world.target, world.device, room)
        if most == 0:
            raise InvalidArgumentError(
                f"{method}: num_nvl_bytes is {self.num_nvl_bytes}; "
                "allowed: Config.get_nvl_buffer_size_hint(), or room for at least 32 tokens"
            )
        return NormalOperator(world, shape._replace(max_tokens=most))


def _used_here(tensors: Iterable[Given], stream: TorchStream) -> None:
    """Tensors that were made on `stream` are used by the current stream."""
    if stream is not None:
        for tensor in filter(is_torch, tensors):
            tensor.record_stream(sys.modules["torch"].cuda.current_stream())
