"""Config: how normal mode is tuned."""

from __future__ import annotations

from ..targets import choose_target
from .normal_call import SHAPES, NormalShape, normal_heap_bytes


class Config:
    """DeepEP's tuning of normal mode.

    Parameters
    ----------
    num_sms : int
        Multiprocessors of a call. The other parameters say how DeepEP's rings are used; here are none.

    Attributes
    ----------
    tokens : int
        Those of a rank and call for which get_nvl_buffer_size_hint() says the size.
    """

    tokens: int = 4096

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
        """num_nvl_bytes for rows of two shapes, bf16 and fp8 for one.

        Parameters
        ----------
        hidden_bytes : int
            Of a row.
        num_ranks : int
            Of the Buffer.

        Returns
        -------
        int
            A buffer here has room for the rows of whole calls, so it is larger than DeepEP's.
        """
        shape = NormalShape(
            max_tokens=self.tokens,
            hidden=(hidden_bytes + 15) // 16 * 8,
            dispatch_hidden=0,
            num_experts=128 * num_ranks,
            top_k=16,
            index_type="int64",
            num_sms=self.num_sms,
            mode="auto",
        )
        return SHAPES * normal_heap_bytes(shape, num_ranks, choose_target("auto"), 0)

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """0: there is one machine."""
        return 0
