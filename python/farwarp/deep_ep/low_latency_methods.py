"""Buffer's methods of the low-latency mode."""

from __future__ import annotations

import functools
from collections.abc import Callable

from .. import dtypes
from ..errors import InvalidArgumentError, MisuseError
from ..tensors import is_torch
from .base import BufferBase, refuse
from .event import EventOverlap
from .low_latency_call import SCALED, LowLatencyCall, LowLatencyOperator, LowLatencyShape
from .memory import Given, HostMemory


class LowLatencyMethods(BufferBase):
    """What a Buffer has for few tokens: each expert's rows lie in the same room, and nothing waits for the host."""

    def low_latency_dispatch(
        self,
        x: Given,
        topk_idx: Given,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        cumulative_local_expert_recv_stats: Given | None = None,
        dispatch_wait_recv_cost_stats: object = None,
        use_fp8: bool = True,
        round_scale: bool = False,
        use_ue8m0: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        use_per_tensor_quantization: bool = False,
        static_scale: object = None,
    ) -> tuple[Given | tuple[Given, Given], Given, LowLatencyCall, EventOverlap, Callable[[], None] | None]:
        """Send this rank's tokens to the ranks of their experts. Every rank calls it; the first call of a shape waits.

        At most two calls have outstanding hooks. A third dispatch runs the hook of the older one.

        Parameters
        ----------
        x : tensor [tokens, hidden] bfloat16
            tokens from 0 to num_max_dispatch_tokens_per_rank.
        topk_idx : tensor [tokens, top-k] int64 or int32
            The tokens' experts; -1: none. It must not change until the combine of this call has run.
        num_max_dispatch_tokens_per_rank, num_experts : int
            The same on all ranks.
        cumulative_local_expert_recv_stats : tensor [local experts] int32, optional
            The counts are added to it.
        use_fp8 : bool
            Rows arrive as e4m3, with a factor for each 128 numbers: the largest magnitude among them / 448.
        round_scale : bool
            With use_fp8: factors are rounded up to a power of two.
        use_ue8m0 : bool
            With round_scale and a hidden size that 512 divides: factors are their biased exponents, four in an int32.
        async_finish : bool
            The call runs on the communication stream.
        return_recv_hook : bool
            The call only sends; the hook receives. Not with async_finish.
        dispatch_wait_recv_cost_stats, use_per_tensor_quantization, static_scale
            Not here: their defaults only.

        Returns
        -------
        recv_x : tensor [local experts, num_max_dispatch_tokens_per_rank * ranks, hidden] bfloat16
            Or with use_fp8 (float8_e4m3fn, scales) with scales [local experts, num_max_dispatch_tokens_per_rank *
            ranks, ceil(hidden / 128)] float32 (use_ue8m0: hidden / 512, int32), whose last two dimensions are
            column-major. Of an expert the first recv_count rows are valid, ordered by source rank and token.
        recv_count : tensor [local experts] int32
            Rows of each expert.
        handle : LowLatencyCall
            A sequence: src_info int32 [local experts, num_max_dispatch_tokens_per_rank * ranks], each valid row's token
            at its source; layout_range int64 [local experts, ranks], of each source its first row << 32 | its rows;
            num_max_dispatch_tokens_per_rank; hidden; num_experts. It may be combined any number of times, also after
            other dispatches.
        event : EventOverlap
            The end of the call, with async_finish.
        hook : callable or None
            With return_recv_hook, receives: nothing has arrived before it was called. It runs on the stream that is
            current then.

        Raises
        ------
        InvalidArgumentError
            A tensor's shape or type, or an option, is not allowed.
        MisuseError
            The Buffer has not low_latency_mode, or a first call of a shape is captured in a CUDA graph.
        OutOfMemoryError
            num_rdma_bytes has no room for the shape.
        UnavailableError
            An option is not here.
        """
        method = "low_latency_dispatch"
        if dispatch_wait_recv_cost_stats is not None or use_per_tensor_quantization or static_scale is not None:
            refuse(
                method,
                dispatch_wait_recv_cost_stats=dispatch_wait_recv_cost_stats,
                use_per_tensor_quantization=use_per_tensor_quantization,
                static_scale=static_scale,
            )
        self._check_mode(method, async_finish, return_recv_hook)
        _check_rows(method, "x", x, "bfloat16", topk_idx)
        if (round_scale or use_ue8m0) and not (use_fp8 and round_scale):
            found = f"round_scale is {round_scale}, use_ue8m0 {use_ue8m0}, use_fp8 {use_fp8}"
            raise InvalidArgumentError(f"{method}: {found}; allowed: round_scale with use_fp8, use_ue8m0 with both")
        if use_ue8m0 and x.shape[1] % (4 * SCALED) != 0:
            raise InvalidArgumentError(
                f"{method}: x has {x.shape[1]} columns; allowed: with use_ue8m0 a multiple of {4 * SCALED}"
            )
        index_type = _name_of(topk_idx.dtype)
        shape = LowLatencyShape(
            num_max_dispatch_tokens_per_rank,
            x.shape[1],
            num_experts,
            topk_idx.shape[1],
            bool(use_fp8),
            index_type,
            bool(round_scale),
            bool(use_ue8m0),
        )
        memory = self._memory or HostMemory(self._world, x)
        rows, experts = memory.input(x, "bfloat16"), memory.input(topk_idx, index_type)
        stats = cumulative_local_expert_recv_stats
        sums = None if stats is None else memory.changed(stats, "int32")
        pair = self._pair(shape, method)
        turn = self._turns.get(shape, 0)
        if pair[turn].pending is not None and pair[1 - turn].pending is None:
            turn = 1 - turn
        operator = self._ready(pair[turn])
        call = LowLatencyCall(operator, memory, rows.shape[0], sums)
        if return_recv_hook:
            self._enqueue(lambda stream: call.send(rows, experts, stream))
            event = EventOverlap()
        else:
            event = self._run(
                lambda stream: call.dispatch(rows, experts, stream), async_finish, (rows, experts, call, sums)
            )
        self._turns[shape] = 1 - turn  # a call that was refused takes no turn
        scales = call.scales
        recv_x = call.recv_x.given if scales is None else (call.recv_x.given, scales.given)
        hook = self._hook_of(call, "the hook of low_latency_dispatch") if return_recv_hook else None
        return recv_x, call.recv_count.given, call, event, hook

    def low_latency_combine(
        self,
        x: Given,
        topk_idx: Given,
        topk_weights: Given,
        handle: LowLatencyCall,
        use_logfmt: bool = False,
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: Given | None = None,
        combine_wait_recv_cost_stats: object = None,
    ) -> tuple[Given, EventOverlap, Callable[[], None] | None]:
        """Bring the experts' outputs back and add them, each times its weight. Every rank calls it.

        Parameters
        ----------
        x : tensor [local experts, num_max_dispatch_tokens_per_rank * ranks, hidden] bfloat16
            The outputs, in the rows of recv_x.
        topk_idx : tensor [tokens, top-k]
            What the dispatch was given.
        topk_weights : tensor [tokens, top-k] float32
            Factors of the outputs.
        handle : LowLatencyCall
            Of a dispatch that has been received. One that is not its operator's last dispatch, or that has been
            combined, costs one launch more, two if the last dispatch is not combined.
        use_logfmt : bool
            Allowed, and changes nothing: it would round numbers to 10 bits to save bytes on the link. One row returns
            here for all of a rank's experts, as bf16.
        zero_copy : bool
            x is what get_next_low_latency_combine_buffer(handle) gave. x is never copied, so nothing is gained.
        async_finish, return_recv_hook : bool
            As of low_latency_dispatch().
        out : tensor [tokens, hidden] bfloat16, optional
            For the result.
        combine_wait_recv_cost_stats
            Not here: its default only.

        Returns
        -------
        combined_x : tensor [tokens, hidden] bfloat16
            `out`, or a new tensor. An owner's sum is made in fp32 and rounded to bf16; the owners' sums are added in
            fp32 and rounded again.
        event : EventOverlap
            The end of the call, with async_finish.
        hook : callable or None
            With return_recv_hook, receives the sums; the call waits for the other ranks' weights.

        Raises
        ------
        InvalidArgumentError
            A tensor's shape or type, or the handle, is not allowed.
        MisuseError
            The dispatch has not been received.
        UnavailableError
            An option is not here.
        """
        method = "low_latency_combine"
        refuse(method, combine_wait_recv_cost_stats=combine_wait_recv_cost_stats)
        self._check_mode(method, async_finish, return_recv_hook)
        call = self._call_of(method, handle)
        memory, shape = call.memory, call.shape
        call.check_received(method)
        if tuple(topk_idx.shape) != (call.tokens, shape.top_k):
            raise InvalidArgumentError(
                f"{method}: topk_idx has shape {tuple(topk_idx.shape)}; "
                f"allowed: {(call.tokens, shape.top_k)}, that of the dispatch"
            )
        pair = self._pair(shape, method)
        if zero_copy:
            buffers = [operator.combine_buffer for operator in pair if operator.combine_buffer is not None]
            if not buffers:
                raise MisuseError(
                    f"{method}: zero_copy is True; allowed: after get_next_low_latency_combine_buffer(handle)"
                )
            x = buffers[0].given
        size = (call.tokens, shape.hidden)
        result = memory.new(size, "bfloat16") if out is None else memory.output("out", out, size, "bfloat16")
        rows, weights = memory.input(x, "bfloat16"), memory.input(topk_weights, "float32")
        experts = memory.input(topk_idx, shape.index_type)
        # That of the dispatch if it is still its last one, else one between calls: all ranks choose alike.
        free = [operator for operator in pair if operator.pending is None] or pair
        operator = self._ready(next((operator for operator in free if operator.last is call), free[0]))
        if return_recv_hook:
            self._enqueue(lambda stream: call.combine_send(operator, rows, experts, weights, result, stream))
            return result.given, EventOverlap(), self._hook_of(call, "the hook of low_latency_combine")
        event = self._run(
            lambda stream: call.combine(operator, rows, experts, weights, result, stream),
            async_finish,
            (rows, experts, weights, result),
        )
        return result.given, event, None

    def get_next_low_latency_combine_buffer(self, handle: LowLatencyCall) -> Given:
        """A tensor for the experts' outputs of that call, to be combined with zero_copy=True.

        Parameters
        ----------
        handle : LowLatencyCall
            Of a dispatch.

        Returns
        -------
        tensor [local experts, num_max_dispatch_tokens_per_rank * ranks, hidden] bfloat16
            Later calls give it again.
        """
        call = self._call_of("get_next_low_latency_combine_buffer", handle)
        operator = self._pair(call.shape, "get_next_low_latency_combine_buffer")[0]
        if operator.combine_buffer is None:
            operator.combine_buffer = call.memory.new(operator.batched, "bfloat16")
        given: Given = operator.combine_buffer.given
        return given

    def _call_of(self, method: str, handle: object) -> LowLatencyCall:
        if not isinstance(handle, LowLatencyCall) or handle.world is not self._world:
            raise InvalidArgumentError(
                f"{method}: handle is {handle!r}; allowed: what low_latency_dispatch() of this Buffer returned"
            )
        return handle

    def _check_mode(self, method: str, async_finish: bool, return_recv_hook: bool) -> None:
        if not self.low_latency_mode:
            raise MisuseError(
                f"{method}: low_latency_mode of this Buffer is False; allowed: Buffer(..., low_latency_mode=True)"
            )
        if async_finish and return_recv_hook:
            raise InvalidArgumentError(f"{method}: async_finish and return_recv_hook are True; allowed: one of them")

    def _pair(self, shape: LowLatencyShape, method: str) -> list[LowLatencyOperator]:
        """Collective if there are none for the shape. All ranks have the same ones, as they make the same calls."""

        def create() -> list[LowLatencyOperator]:
            if shape.num_experts % self.group_size != 0:
                raise InvalidArgumentError(
                    f"{method}: num_experts is {shape.num_experts}; allowed: a multiple of the ranks, {self.group_size}"
                )
            first = LowLatencyOperator(self._world, shape)
            try:
                return [first, LowLatencyOperator(self._world, shape)]
            except BaseException:
                first.close()
                raise

        return self._operators.get(shape, create, shape)

    def _ready(self, operator: LowLatencyOperator) -> LowLatencyOperator:
        """Runs the hook that its call still needs."""
        if operator.pending is not None:
            self._enqueue(operator.pending.finish)
        return operator

    def _hook_of(self, call: LowLatencyCall, name: str) -> Callable[[], None]:
        called = False

        def hook() -> None:
            nonlocal called
            if called:
                raise MisuseError(f"{name}: it has been called; allowed: once")
            called = True
            self._enqueue(call.finish)  # nothing is left to do if a later call has done it

        return hook


_name_of = functools.lru_cache(maxsize=64)(dtypes.name_of)  # of a tensor's dtype, for every call


def _check_rows(method: str, name: str, rows: Given, dtype: str, topk_idx: Given) -> None:
    if len(rows.shape) != 2 or (_name_of(rows.dtype) != dtype and is_torch(rows)):
        raise InvalidArgumentError(
            f"{method}: {name} is {dtypes.name_of(rows.dtype)} of shape {tuple(rows.shape)}; "
            f"allowed: {dtype} of shape (tokens, hidden)"
        )
    if (
        len(topk_idx.shape) != 2
        or topk_idx.shape[0] != rows.shape[0]
        or _name_of(topk_idx.dtype) not in ("int32", "int64")
    ):
        raise InvalidArgumentError(
            f"{method}: topk_idx is {dtypes.name_of(topk_idx.dtype)} of shape {tuple(topk_idx.shape)}; "
            "allowed: int64 or int32 of shape "
            f"({rows.shape[0]}, top-k)"
        )
