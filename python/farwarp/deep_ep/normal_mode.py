"""Buffer's methods of normal mode."""

from __future__ import annotations

import sys
from typing import Any, Callable

from .. import dtypes
from ..call import is_torch
from ..errors import InvalidArgumentError, OutOfMemoryError, UnavailableError
from ..world import World
from .config import Config
from .event import EventOverlap
from .low_latency import IN_FLIGHT
from .memory import DeviceMemory, HostMemory, fp8_type
from .normal import NormalCall, NormalOperator, Shape, layout, most_tokens, on, pack, packed_elements, unpack


class NormalMode:
    """What a Buffer has for many tokens: each row crosses once to each rank of its experts, and lies there once."""

    _world: World
    _memory: DeviceMemory | None
    _enqueue: Callable[..., None]
    _run: Callable[..., EventOverlap]
    group_size: int
    num_nvl_bytes: int
    num_sms: int

    def _prepare_normal_mode(self) -> None:
        self._normal: dict[Shape, list[NormalOperator]] = {}  # by shape with max_tokens 0; the one whose turn it is first
        self._no_more_room: set[Shape] = set()

    def get_dispatch_layout(
        self,
        topk_idx: Any,
        num_experts: int,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Any, None, Any, Any, EventOverlap]:
        """Where tokens go. topk_idx [tokens, top-k] int64 or int32; -1: no expert.

        Returns (num_tokens_per_rank int32 [ranks], None, num_tokens_per_expert int32 [num_experts], is_token_in_rank bool [tokens,
        ranks], event).
        """
        if num_experts <= 0 or num_experts % self.group_size != 0:
            raise InvalidArgumentError(
                f"get_dispatch_layout: num_experts is {num_experts}; allowed: a multiple of the ranks, {self.group_size}"
            )
        found: list[Any] = []

        def work(stream: Any) -> None:
            with on(stream):
                found.extend(layout(topk_idx, num_experts, self.group_size))
            _used_here(found, stream)

        event = self._run(work, async_finish, (topk_idx, found), previous_event)
        return found[0], None, found[1], found[2], event

    def dispatch(
        self,
        x: Any,
        handle: NormalCall | None = None,
        num_tokens_per_rank: Any = None,
        num_tokens_per_rdma_rank: Any = None,
        is_token_in_rank: Any = None,
        num_tokens_per_expert: Any = None,
        topk_idx: Any = None,
        topk_weights: Any = None,
        expert_alignment: int = 1,
        num_worst_tokens: int = 0,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Any, Any, Any, list[int] | None, NormalCall, EventOverlap]:
        """Sends tokens to the ranks of their experts.

        x: [tokens, hidden] bfloat16, or (numbers, scales): [tokens, hidden] float8_e4m3fn and [tokens, groups] float32, which are copied
            into rows of bytes before, and out of them after.
        handle: of an earlier dispatch, whose topk_idx and topk_weights are sent again; then neither is given.
        topk_idx [tokens, top-k] int64 or int32, -1: no expert; topk_weights [tokens, top-k] float32. Both must not change until combine.
        num_tokens_per_expert: its length is the number of experts. num_tokens_per_rank and is_token_in_rank say what topk_idx says, and are
            not read.
        expert_alignment: the counts that are returned are rounded up to multiples of it.
        num_worst_tokens: room for so many rows, and the host waits for nothing, as CUDA graphs need it. 0: the host waits for the counts.
        config: its num_sms is the multiprocessors of the call; without it Buffer.num_sms.

        Returns (recv_x, recv_topk_idx, recv_topk_weights, num_recv_tokens_per_expert_list, handle, event): rows by source rank and token.
        recv_topk_idx: this rank's experts from 0, -1 for others and in rows beyond the last; recv_topk_weights 0 there. The list is empty
        with num_worst_tokens. With `handle` the three after recv_x are None.
        """
        method = "dispatch"
        cached = handle is not None
        if cached and (topk_idx is not None or topk_weights is not None):
            raise InvalidArgumentError(f"{method}: handle and topk_idx or topk_weights are given; allowed: the handle alone")
        if num_tokens_per_rdma_rank is not None:
            raise UnavailableError(f"{method}: num_tokens_per_rdma_rank is given, but there is one machine; allowed: None")
        if not cached and any(value is None for value in (topk_idx, topk_weights, num_tokens_per_expert)):
            raise InvalidArgumentError(f"{method}: topk_idx, topk_weights or num_tokens_per_expert is None; allowed: all three, or a handle")
        fp8 = isinstance(x, tuple)
        rows = x[0] if fp8 else x
        _check_x(method, x)
        memory = self._memory or HostMemory(self._world, rows)
        if handle is not None:
            routing, experts = handle.routing, handle.operator.shape.num_experts
        else:
            routing, experts = (topk_idx, topk_weights), num_tokens_per_expert.shape[0]
        _check_routing(method, rows, *routing)
        shape = self._shape(x, experts, routing[0], config)
        operator = self._normal_operator(method, shape, rows.shape[0])
        sent = (memory.input(routing[0], shape.index_type), memory.input(routing[1], "float32"))
        call = NormalCall(operator, memory, rows.shape[0], sent)
        delivered: list[Any] = []

        def work(stream: Any) -> None:
            with on(stream):
                packed = pack(*x) if fp8 else x
            packed = memory.input(packed, "bfloat16")
            if num_worst_tokens > 0:
                call.dispatch(packed, num_worst_tokens, stream)
            else:
                call.dispatch_counted(packed, stream)
            given = call.recv_x.given  # type: ignore[union-attr]
            if fp8:
                with on(stream):
                    delivered.append(unpack(given, shape.hidden, x[1].shape[1], rows.dtype))
                _used_here(delivered[0], stream)
            else:
                delivered.append(given)

        event = self._run(work, async_finish, (x, sent, call), previous_event)
        operators = self._normal[shape]
        operators.append(operators.pop(operators.index(operator)))  # a call that was refused takes no turn
        if cached:
            return delivered[0], None, None, None, call, event
        align = max(1, expert_alignment)
        counts = [] if num_worst_tokens > 0 else [-(-count // align) * align for count in call.counts.given.tolist()]
        return delivered[0], call.recv_topk_idx.given, call.recv_topk_weights.given, counts, call, event  # type: ignore[union-attr]

    def combine(
        self,
        x: Any,
        handle: NormalCall,
        topk_weights: Any = None,
        bias: Any = None,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Any, None, EventOverlap]:
        """The sum over ranks of what each has made of a token's row.

        x [rows of recv_x, hidden] bfloat16: for each row the sum of its experts' outputs, the weights applied. handle: of the dispatch, once.

        Returns (combined_x [tokens, hidden] bfloat16, None, event). Rows are added in the order of ranks in fp32, and rounded once.
        """
        method = "combine"
        for name, value in (("topk_weights", topk_weights), ("bias", bias)):
            if value is not None:
                raise UnavailableError(f"{method}: {name} is given, which farwarp.deep_ep has not; allowed: None")
        if not isinstance(handle, NormalCall) or handle.operator.world is not self._world:
            raise InvalidArgumentError(f"{method}: handle is {handle!r}; allowed: what dispatch() of this Buffer returned")
        handle.check_received(method)
        shape, memory = handle.operator.shape, handle.memory
        if config is not None and config.num_sms != shape.num_sms:
            raise UnavailableError(f"{method}: config.num_sms is {config.num_sms}; allowed: {shape.num_sms}, that of the dispatch")
        result = memory.new((handle.tokens, shape.hidden), "bfloat16")
        x = memory.input(x, "bfloat16")
        event = self._run(lambda stream: handle.combine(x, result, stream), async_finish, (x, result, handle), previous_event)
        return result.given, None, event

    def _shape(self, x: Any, num_experts: int, topk_idx: Any, config: Config | None) -> Shape:
        """Without max_tokens."""
        fp8 = isinstance(x, tuple)
        hidden = (x[0] if fp8 else x).shape[1]
        return Shape(
            max_tokens=0,
            hidden=hidden,
            dispatch_hidden=packed_elements(hidden, x[1].shape[1]) if fp8 else 0,
            num_experts=num_experts,
            top_k=topk_idx.shape[1],
            index_type=dtypes.name_of(topk_idx.dtype),
            num_sms=self.num_sms if config is None else config.num_sms,
            # Bytes of all ones are not a NaN in the FNUZ kind: see dispatch_hidden in moe_a2a's plan.h.
            mode="bulk" if fp8 and fp8_type(self._world) == "float8_e4m3fnuz" else "auto",
        )

    def _normal_operator(self, method: str, shape: Shape, tokens: int) -> NormalOperator:
        """One that is free. If none is, another one is created, up to IN_FLIGHT; else the older call is ended. All ranks do
        the same, as they make the same calls."""
        operators = self._normal.setdefault(shape, [])
        if not operators:
            operators.append(self._create_normal(method, shape))
        most = operators[0].shape.max_tokens
        if tokens > most:
            raise InvalidArgumentError(
                f"{method}: x has {tokens} rows; allowed: up to {most} on each rank, for which num_nvl_bytes, {self.num_nvl_bytes}, has room"
            )
        free = [operator for operator in operators if operator.call is None]
        if not free and len(operators) < IN_FLIGHT and shape not in self._no_more_room:
            try:
                free = [NormalOperator(self._world, operators[0].shape)]
                operators.append(free[0])
            except OutOfMemoryError:
                self._no_more_room.add(shape)
        operator = free[0] if free else operators[0]
        if operator.call is not None:
            self._enqueue(operator.call.finish)
        return operator

    def _create_normal(self, method: str, shape: Shape) -> NormalOperator:
        """Collective."""
        if shape.num_experts % self.group_size != 0:
            raise InvalidArgumentError(
                f"{method}: num_tokens_per_expert has {shape.num_experts} elements; allowed: a multiple of the ranks, {self.group_size}"
            )
        world, room = self._world, self.num_nvl_bytes // IN_FLIGHT
        most = most_tokens(shape, self.group_size, world.target, world.device, room)
        if most == 0:
            raise InvalidArgumentError(
                f"{method}: num_nvl_bytes is {self.num_nvl_bytes}; allowed: Config.get_nvl_buffer_size_hint(), or room for at least 32 tokens"
            )
        return NormalOperator(world, shape._replace(max_tokens=most))


def _used_here(tensors: Any, stream: Any) -> None:
    """Tensors that were made on `stream` are used by the current stream."""
    if stream is not None:
        for tensor in tensors:
            tensor.record_stream(sys.modules["torch"].cuda.current_stream())


def _check_x(method: str, x: Any) -> None:
    if isinstance(x, tuple):
        numbers, scales = x
        fp8 = dtypes.name_of(numbers.dtype).startswith("float8_e4m3") and dtypes.name_of(scales.dtype) == "float32"
        if not fp8 or len(numbers.shape) != 2 or len(scales.shape) != 2 or scales.shape[0] != numbers.shape[0]:
            raise InvalidArgumentError(
                f"{method}: x is ({dtypes.name_of(numbers.dtype)} {tuple(numbers.shape)}, {dtypes.name_of(scales.dtype)} "
                f"{tuple(scales.shape)}); allowed: (float8_e4m3fn (tokens, hidden), float32 (tokens, groups))"
            )
    elif len(x.shape) != 2 or (is_torch(x) and dtypes.name_of(x.dtype) != "bfloat16"):
        raise InvalidArgumentError(
            f"{method}: x is {dtypes.name_of(x.dtype)} of shape {tuple(x.shape)}; allowed: bfloat16 of shape (tokens, hidden), or a tuple"
        )


def _check_routing(method: str, rows: Any, topk_idx: Any, topk_weights: Any) -> None:
    wanted = (rows.shape[0], topk_idx.shape[1]) if len(topk_idx.shape) == 2 else None
    if wanted is None or tuple(topk_idx.shape) != wanted or dtypes.name_of(topk_idx.dtype) not in ("int32", "int64"):
        raise InvalidArgumentError(
            f"{method}: topk_idx is {dtypes.name_of(topk_idx.dtype)} of shape {tuple(topk_idx.shape)}; allowed: int64 or int32 of shape "
            f"({rows.shape[0]}, top-k)"
        )
    if tuple(topk_weights.shape) != wanted or dtypes.name_of(topk_weights.dtype) != "float32":
        raise InvalidArgumentError(
            f"{method}: topk_weights is {dtypes.name_of(topk_weights.dtype)} of shape {tuple(topk_weights.shape)}; allowed: float32 of shape "
            f"{wanted}"
        )
