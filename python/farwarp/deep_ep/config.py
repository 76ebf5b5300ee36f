"""Config: how normal mode is tuned."""

from __future__ import annotations

from typing import NoReturn

from ..errors import UnavailableError


def no_normal_mode(name: str) -> NoReturn:
    raise UnavailableError(f"{name} belongs to normal mode, which farwarp.deep_ep has not; allowed: the low_latency_... methods")


class Config:
    """DeepEP's tuning of normal mode. It can be made, as programs do at import; there is nothing that it tunes here."""

    def __init__(
        self,
        num_sms: int = 20,
        num_max_nvl_chunked_send_tokens: int = 6,
        num_max_nvl_chunked_recv_tokens: int = 256,
        num_max_rdma_chunked_send_tokens: int = 6,
        num_max_rdma_chunked_recv_tokens: int = 256,
    ) -> None:
        self.num_sms = num_sms

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        no_normal_mode("Config.get_nvl_buffer_size_hint()")

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        no_normal_mode("Config.get_rdma_buffer_size_hint()")
