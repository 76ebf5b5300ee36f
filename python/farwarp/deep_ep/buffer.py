"""Buffer: DeepEP's class of that name."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable

from .. import dtypes
from ..arguments import Handle
from ..call import is_torch
from ..errors import InvalidArgumentError, MisuseError, UnavailableError
from ..operator_cache import OperatorCache
from ..world import World, choose_target
from .config import Config
from .event import EventHandle, EventOverlap
from .low_latency import MOST_TOP_K, SCALED, LowLatencyCall, LowLatencyOperator, Shape, heap_bytes
from .memory import DeviceMemory, HostMemory
from .normal_mode import NormalMode
from .order import Order

_WORLD_BYTES = 2 << 20  # of the heap, for the world itself
_LEAST_HEAP = 64 << 20


def _refuse(method: str, **options: Any) -> None:
    """DeepEP's options that are not here: each must be None or False."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise UnavailableError(f"{method}: {name} is {value!r}, which farwarp.deep_ep has not; allowed: the default")


class Buffer(Handle, NormalMode):
    """The memory that ranks share, and the calls on it. Collective: all ranks create it, make the same calls in the same
    order, and destroy it.

    group: a torch.distributed.ProcessGroup, whose ranks are processes of this machine with a GPU each; or a
        farwarp.World, as farwarp.run() gives one, whose heap has room for num_nvl_bytes and num_rdma_bytes.
    num_nvl_bytes: of normal mode. The tokens that a call may have follow from it: Config.get_nvl_buffer_size_hint().
    num_rdma_bytes: what get_low_latency_rdma_size_hint() says, or more. Every rank takes so much of its GPU's memory.
    low_latency_mode: needed by the low-latency methods.
    num_qps_per_rank, allow_nvlink_for_low_latency_mode, allow_mnnvl, use_fabric: how DeepEP reaches other GPUs. Here
        that is NVLink alone, so allow_nvlink_for_low_latency_mode is True.
    explicitly_destroy: destroy() is called; without it the Buffer lives as long as the process.

    The operators of a shape (num_max_dispatch_tokens_per_rank, hidden, num_experts, top-k, fp8 or not, form of scales, type of indices; in
    normal mode also num_sms) are created by its first dispatch, which is collective and waits for all ranks; later calls create nothing. A dispatch in a CUDA
    graph therefore follows one of its shape outside of graphs. When there is no room for another shape, operators of the one used longest ago are
    given back, unless a graph has captured them; that waits for the streams.
    """

    num_sms: int = 20
    deadline: float = 100.0
    """the longest wait for another rank, in seconds; read when a Buffer is created"""

    def __init__(
        self,
        group: Any = None,
        num_nvl_bytes: int = 0,
        num_rdma_bytes: int = 0,
        low_latency_mode: bool = False,
        num_qps_per_rank: int = 24,
        allow_nvlink_for_low_latency_mode: bool = True,
        allow_mnnvl: bool = False,
        use_fabric: bool = False,
        explicitly_destroy: bool = False,
        enable_shrink: bool = False,
        comm: Any = None,
    ) -> None:
        _refuse("Buffer", enable_shrink=enable_shrink, comm=comm)
        if not allow_nvlink_for_low_latency_mode:
            raise UnavailableError("Buffer: allow_nvlink_for_low_latency_mode is False; allowed: True, as nothing but NVLink is used")
        if group is None:
            raise InvalidArgumentError("group is None; allowed: a torch.distributed.ProcessGroup, a farwarp.World")
        self.group = group
        self._owns_world = not isinstance(group, World)
        self._world = _world_of(group, num_nvl_bytes + num_rdma_bytes, self.deadline) if self._owns_world else group
        self.rank, self.group_size = self._world.rank, self._world.size
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self.low_latency_mode, self.explicitly_destroy = low_latency_mode, explicitly_destroy
        self._operators = OperatorCache(self._world)
        self._turns: dict[Shape, int] = {}
        self._comm_stream: Any = None
        self._order = Order(self._world)
        self._memory = None if self._world.emulated else DeviceMemory(self._world)

    def destroy(self) -> None:
        """Collective. Waits for the calls under way."""
        if not self.explicitly_destroy:
            raise MisuseError("destroy(): explicitly_destroy is False; allowed: with explicitly_destroy=True")
        if self._owns_world:
            self._world.close()
            self._operators.forget()
        else:
            self._operators.close()

    # ---- what programs ask

    @staticmethod
    def is_sm90_compiled() -> bool:
        return True

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """Multiprocessors of normal mode's calls from now on; an even number."""
        if new_num_sms % 2 != 0 or new_num_sms <= 0:
            raise InvalidArgumentError(f"new_num_sms is {new_num_sms}; allowed: an even number of at least 2")
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        """The end of what the current stream has been given until now."""
        return EventOverlap(EventHandle())

    @staticmethod
    def get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int) -> int:
        """num_rdma_bytes for calls of that size: both bf16 and fp8, two calls in flight of each."""
        target, device = choose_target("auto"), _current_device()
        total = _WORLD_BYTES
        for fp8 in (False, True):
            shape = Shape(num_max_dispatch_tokens_per_rank, hidden, num_experts, MOST_TOP_K, fp8, "int64")
            total += heap_bytes(shape, num_ranks, target, device)
        return total

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        return Config(Buffer.num_sms)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        return Config(Buffer.num_sms)

    def get_comm_stream(self) -> Any:
        """The stream on which calls with async_finish=True run."""
        if self._comm_stream is None:
            if self._world.emulated:
                raise UnavailableError("get_comm_stream(): the emulator has no torch streams; allowed: on a GPU")
            self._comm_stream = sys.modules["torch"].cuda.Stream(self._world.device)
        return self._comm_stream

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Nothing: the buffers are always clean."""
        self._world._usable()

    # ---- low latency

    def low_latency_dispatch(
        self,
        x: Any,
        topk_idx: Any,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        cumulative_local_expert_recv_stats: Any = None,
        dispatch_wait_recv_cost_stats: Any = None,
        use_fp8: bool = True,
        round_scale: bool = False,
        use_ue8m0: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        use_per_tensor_quantization: bool = False,
        static_scale: Any = None,
    ) -> tuple[Any, Any, LowLatencyCall, EventOverlap, Callable[[], None] | None]:
        """Sends this rank's tokens to the ranks of their experts.

        x [tokens, hidden] bfloat16, tokens from 0 to num_max_dispatch_tokens_per_rank. topk_idx [tokens, top-k] int64 or int32; -1: no
            expert. It must not change until the combine of this call has run.
        cumulative_local_expert_recv_stats: int32 [local experts]; the counts are added to it.
        use_fp8: rows arrive as e4m3, with a factor for each 128 numbers: the largest magnitude among them / 448; with round_scale rounded up to a
            power of two. use_ue8m0, with round_scale and a hidden size that 512 divides: factors are their biased exponents, four in an int32.

        Returns (recv_x, recv_count, handle, event, hook):
            recv_x [local experts, num_max_dispatch_tokens_per_rank * ranks, hidden] bfloat16, or with use_fp8 (float8_e4m3fn, scales)
                with scales [local experts, num_max_dispatch_tokens_per_rank * ranks, ceil(hidden / 128)] float32 (use_ue8m0: hidden / 512,
                int32), whose last two dimensions are column-major. Of an expert the first recv_count rows are valid, ordered by source rank and
                token.
            recv_count [local experts] int32.
            handle: a sequence: src_info int32 [local experts, num_max_dispatch_tokens_per_rank * ranks], each valid row's token at its source;
                layout_range int64 [local experts, ranks], of each source its first row << 32 | its rows; num_max_dispatch_tokens_per_rank; hidden;
                num_experts. It may be combined any number of times, also after other dispatches.
            hook: with return_recv_hook, receives: nothing has arrived before it was called. It runs on the stream that is current then.

        At most two calls have outstanding hooks. A third dispatch runs the hook of the older one.
        """
        method = "low_latency_dispatch"
        if dispatch_wait_recv_cost_stats is not None or use_per_tensor_quantization or static_scale is not None:
            _refuse(
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
            raise InvalidArgumentError(f"{method}: x has {x.shape[1]} columns; allowed: with use_ue8m0 a multiple of {4 * SCALED}")
        index_type = _name_of(topk_idx.dtype)
        shape = Shape(
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
        x, topk_idx = memory.input(x, "bfloat16"), memory.input(topk_idx, index_type)
        stats = cumulative_local_expert_recv_stats
        sums = None if stats is None else memory.changed(stats, "int32")
        pair = self._pair(shape, method)
        turn = self._turns.get(shape, 0)
        if pair[turn].pending is not None and pair[1 - turn].pending is None:
            turn = 1 - turn
        operator = self._ready(pair[turn])
        call = LowLatencyCall(operator, memory, x.shape[0], sums)
        if return_recv_hook:
            self._enqueue(lambda stream: call.send(x, topk_idx, stream))
            event = EventOverlap()
        else:
            event = self._run(lambda stream: call.dispatch(x, topk_idx, stream), async_finish, (x, topk_idx, call, sums))
        self._turns[shape] = 1 - turn  # a call that was refused takes no turn
        scales = call.scales
        recv_x = call.recv_x.given if scales is None else (call.recv_x.given, scales.given)
        hook = self._hook_of(call, "the hook of low_latency_dispatch") if return_recv_hook else None
        return recv_x, call.recv_count.given, call, event, hook

    def low_latency_combine(
        self,
        x: Any,
        topk_idx: Any,
        topk_weights: Any,
        handle: LowLatencyCall,
        use_logfmt: bool = False,
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: Any = None,
        combine_wait_recv_cost_stats: Any = None,
    ) -> tuple[Any, EventOverlap, Callable[[], None] | None]:
        """Brings the experts' outputs back and adds them, each times its weight.

        x [local experts, num_max_dispatch_tokens_per_rank * ranks, hidden] bfloat16, in the rows of recv_x. topk_idx: what the dispatch was
            given. topk_weights [tokens, top-k] float32. out [tokens, hidden] bfloat16. handle: of a dispatch that has been received. One that is not
            its operator's last dispatch, or that has been combined, costs a launch more.
        use_logfmt: allowed, and changes nothing: it would round numbers to 10 bits to save bytes on the link. One row returns here for all of a
            rank's experts, as bf16.
        zero_copy: x is what get_next_low_latency_combine_buffer(handle) gave. x is never copied, so nothing is gained.

        Returns (combined_x, event, hook): combined_x is `out`, or a new tensor. An owner's sum is made in fp32 and rounded to bf16; the
        owners' sums are added in fp32 and rounded again. With return_recv_hook the call waits for the other ranks' weights; the hook
        receives the sums.
        """
        method = "low_latency_combine"
        _refuse(method, combine_wait_recv_cost_stats=combine_wait_recv_cost_stats)
        self._check_mode(method, async_finish, return_recv_hook)
        call = self._call_of(method, handle)
        memory, shape = call.memory, call.shape
        call.check_received(method)
        if tuple(topk_idx.shape) != (call.tokens, shape.top_k):
            raise InvalidArgumentError(
                f"{method}: topk_idx has shape {tuple(topk_idx.shape)}; allowed: {(call.tokens, shape.top_k)}, that of the dispatch"
            )
        pair = self._pair(shape, method)
        if zero_copy:
            buffers = [operator.combine_buffer for operator in pair if operator.combine_buffer is not None]
            if not buffers:
                raise MisuseError(f"{method}: zero_copy is True; allowed: after get_next_low_latency_combine_buffer(handle)")
            x = buffers[0].given
        rows = (call.tokens, shape.hidden)
        result = memory.new(rows, "bfloat16") if out is None else memory.output("out", out, rows, "bfloat16")
        x, topk_weights = memory.input(x, "bfloat16"), memory.input(topk_weights, "float32")
        topk_idx = memory.input(topk_idx, shape.index_type)
        # That of the dispatch if it is still its last one, else one between calls: all ranks choose alike.
        free = [operator for operator in pair if operator.pending is None] or pair
        operator = self._ready(next((operator for operator in free if operator.last is call), free[0]))
        if return_recv_hook:
            self._enqueue(lambda stream: call.combine_send(operator, x, topk_idx, topk_weights, result, stream))
            return result.given, EventOverlap(), self._hook_of(call, "the hook of low_latency_combine")
        event = self._run(
            lambda stream: call.combine(operator, x, topk_idx, topk_weights, result, stream),
            async_finish,
            (x, topk_idx, topk_weights, result),
        )
        return result.given, event, None

    def get_next_low_latency_combine_buffer(self, handle: LowLatencyCall) -> Any:
        """A tensor [local experts, num_max_dispatch_tokens_per_rank * ranks, hidden] bfloat16 for the experts' outputs of that call, to be
        combined with zero_copy=True. It is used again by later calls."""
        call = self._call_of("get_next_low_latency_combine_buffer", handle)
        operator = self._pair(call.shape, "get_next_low_latency_combine_buffer")[0]
        if operator.combine_buffer is None:
            operator.combine_buffer = call.memory.new(operator.batched, "bfloat16")
        return operator.combine_buffer.given

    def _call_of(self, method: str, handle: Any) -> LowLatencyCall:
        if not isinstance(handle, LowLatencyCall) or handle.world is not self._world:
            raise InvalidArgumentError(f"{method}: handle is {handle!r}; allowed: what low_latency_dispatch() of this Buffer returned")
        return handle

    def _check_mode(self, method: str, async_finish: bool, return_recv_hook: bool) -> None:
        if not self.low_latency_mode:
            raise MisuseError(f"{method}: low_latency_mode of this Buffer is False; allowed: Buffer(..., low_latency_mode=True)")
        if async_finish and return_recv_hook:
            raise InvalidArgumentError(f"{method}: async_finish and return_recv_hook are True; allowed: one of them")

    def _pair(self, shape: Shape, method: str) -> list[LowLatencyOperator]:
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

    def _enqueue(self, work: Callable[[Any], None], stream: Any = None) -> None:
        """work(stream), in the order of this Buffer's calls; None: the current stream."""
        self._order.before(stream)
        work(stream)
        self._order.after()

    def _run(
        self, work: Callable[[Any], None], async_finish: bool, tensors: tuple, previous_event: EventOverlap | None = None
    ) -> EventOverlap:
        """Enqueues on the current stream, or with async_finish on the communication stream, after what the current stream has
        been given, or after previous_event."""
        after = None if previous_event is None else previous_event.event
        if not async_finish or self._world.emulated:
            if after is not None:
                after.current_stream_wait()
            self._enqueue(work)
            return EventOverlap(EventHandle() if async_finish else None)
        stream = self.get_comm_stream()
        if after is None:
            stream.wait_stream(sys.modules["torch"].cuda.current_stream())
        else:
            after.wait_on(stream)
        self._enqueue(work, stream)
        return EventOverlap(EventHandle(stream), tensors)

    def get_local_buffer_tensor(self, *args: Any, **options: Any) -> Any:
        raise UnavailableError("Buffer.get_local_buffer_tensor(): a buffer of farwarp.deep_ep has no such tensor; allowed: other methods")


_name_of = functools.lru_cache(maxsize=64)(dtypes.name_of)  # of a tensor's dtype, for every call


def _current_device() -> int:
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else 0


def _world_of(group: Any, room: int, deadline: float) -> World:
    return World(group, device=_current_device(), deadline=deadline, heap_bytes=max(room + _WORLD_BYTES, _LEAST_HEAP))


def _check_rows(method: str, name: str, rows: Any, dtype: str, topk_idx: Any) -> None:
    if len(rows.shape) != 2 or (_name_of(rows.dtype) != dtype and is_torch(rows)):
        raise InvalidArgumentError(
            f"{method}: {name} is {dtypes.name_of(rows.dtype)} of shape {tuple(rows.shape)}; allowed: {dtype} of shape (tokens, hidden)"
        )
    if len(topk_idx.shape) != 2 or topk_idx.shape[0] != rows.shape[0] or _name_of(topk_idx.dtype) not in ("int32", "int64"):
        raise InvalidArgumentError(
            f"{method}: topk_idx is {dtypes.name_of(topk_idx.dtype)} of shape {tuple(topk_idx.shape)}; allowed: int64 or int32 of shape "
            f"({rows.shape[0]}, top-k)"
        )

