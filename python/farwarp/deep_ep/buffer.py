"""Buffer: DeepEP's class of that name."""

from __future__ import annotations

from typing import NoReturn

from ..errors import InvalidArgumentError, UnavailableError
from ..targets import choose_target
from .base import WORLD_BYTES, current_device
from .config import Config
from .event import EventHandle, EventOverlap
from .low_latency_call import MOST_TOP_K, LowLatencyShape, low_latency_heap_bytes
from .low_latency_methods import LowLatencyMethods
from .normal_methods import NormalMethods


class Buffer(LowLatencyMethods, NormalMethods):
    """The memory that ranks share, and the calls on it.

    Collective: all ranks create it, make the same calls in the same order, and destroy it.

    The operators of a shape (num_max_dispatch_tokens_per_rank, hidden, num_experts, top-k, fp8 or not, form of scales,
    type of indices; in normal mode also num_sms) are created by its first dispatch, which is collective and waits for
    all ranks; later calls create nothing. A dispatch in a CUDA graph therefore follows one of its shape outside of
    graphs. When there is no room for another shape, operators of the one used longest ago are given back, unless a
    graph has captured them; that waits for the streams.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup or World
        Its ranks are processes of this machine with a GPU each; or a farwarp.World, as farwarp.run() gives one, whose
        heap has room for num_nvl_bytes and num_rdma_bytes.
    num_nvl_bytes : int
        Of normal mode. The tokens that a call may have follow from it: Config.get_nvl_buffer_size_hint().
    num_rdma_bytes : int
        What get_low_latency_rdma_size_hint() says, or more. Every rank takes so much of its GPU's memory.
    low_latency_mode : bool
        Needed by the low-latency methods.
    num_qps_per_rank, allow_nvlink_for_low_latency_mode, allow_mnnvl, use_fabric
        How DeepEP reaches other GPUs. Here that is NVLink alone, so allow_nvlink_for_low_latency_mode is True.
    explicitly_destroy : bool
        destroy() is called; without it keep the Buffer as long as any rank uses its own: one that is dropped leaves,
        and the others' waits end with an error.
    enable_shrink, comm
        Not here: their defaults only.

    Attributes
    ----------
    num_sms : int
        Multiprocessors of normal mode's calls: set_num_sms().
    deadline : float
        The longest wait for another rank, in seconds; read when a Buffer is created.
    rank, group_size : int
        This rank's number, and how many there are.

    Raises
    ------
    InvalidArgumentError
        There is no group.
    UnavailableError
        An option is not here.
    OutOfMemoryError
        The GPU has no room.
    """

    num_sms = 20
    deadline = 100.0

    @staticmethod
    def is_sm90_compiled() -> bool:
        """Always, as DeepEP's programs for Hopper want it."""
        return True

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """Multiprocessors of normal mode's calls from now on; an even number, else InvalidArgumentError."""
        if new_num_sms % 2 != 0 or new_num_sms <= 0:
            raise InvalidArgumentError(f"new_num_sms is {new_num_sms}; allowed: an even number of at least 2")
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        """The end of what the current stream has been given until now."""
        return EventOverlap(EventHandle())

    @staticmethod
    def get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int
    ) -> int:
        """num_rdma_bytes for calls of that size: both bf16 and fp8, two calls in flight of each.

        Parameters
        ----------
        num_max_dispatch_tokens_per_rank, hidden, num_ranks, num_experts : int
            As of the calls.

        Returns
        -------
        int
            Bytes.
        """
        target, device = choose_target("auto"), current_device()
        total = WORLD_BYTES
        for fp8 in (False, True):
            shape = LowLatencyShape(num_max_dispatch_tokens_per_rank, hidden, num_experts, MOST_TOP_K, fp8, "int64")
            total += low_latency_heap_bytes(shape, num_ranks, target, device)
        return total

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """What dispatch() takes without a config."""
        return Config(Buffer.num_sms)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        """What combine() takes without a config."""
        return Config(Buffer.num_sms)

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Nothing: the buffers are always clean."""
        self._world.check_open()

    def get_local_buffer_tensor(self, *args: object, **options: object) -> NoReturn:
        """Not here: UnavailableError."""
        raise UnavailableError(
            "Buffer.get_local_buffer_tensor(): a buffer of farwarp.deep_ep has no such tensor; allowed: other methods"
        )
