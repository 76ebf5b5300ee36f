"""Kernels for LLM inference that communicate from inside the kernel.

They take NumPy arrays (on the emulator) and torch tensors (on GPUs):

    def multiply(world):
        product = farwarp.GemmAllReduce(world, m=16, n=32, k=128, dtype="float16")
        x, w = (numpy.ones((rows, 128 // world.size), "float16") for rows in (16, 32))
        return product(x, w).numpy()

    results = farwarp.run(multiply, ranks=4, target="emu_sm90")

World is this rank's place among the ranks, run() starts ranks as threads, the other classes are operators. Failures of
calls are exceptions, all of them Error; Python's protocols raise Python's own. Two modules need torch and are imported
by name: farwarp.torch_ops (operators that torch.compile carries in its graphs) and farwarp.symm_mem (the interface of
PyTorch's symmetric memory). farwarp.deep_ep (DeepEP's interface) is imported by name, too.
"""

from .all_reduce import AllReduce
from .array import Array
from .attention import Attention
from .device_streams import Stream
from .errors import (
    AbortedError,
    BadInputError,
    CapacityError,
    DeadlineError,
    Error,
    InternalError,
    InvalidArgumentError,
    MismatchError,
    MisuseError,
    OutOfMemoryError,
    PeerLostError,
    UnavailableError,
)
from .flash_decode import FlashDecode
from .gemm import Fp8Gemm, Gemm
from .grouped_gemm import GroupedGemm
from .moe import MoeAllToAll, MoeReceived
from .moe_layer import MoeLayer
from .moe_rows import MoeRows, MoeRowsAllToAll
from .operator import Operator
from .products import AllGatherGemm, GemmAllReduce, GemmReduceScatter, ParallelGemm
from .qwen3 import Qwen3
from .ranks import run
from .targets import choose_target, device_count
from .world import World

__all__ = [
    "AbortedError",
    "AllGatherGemm",
    "AllReduce",
    "Array",
    "Attention",
    "BadInputError",
    "CapacityError",
    "DeadlineError",
    "Error",
    "FlashDecode",
    "Fp8Gemm",
    "Gemm",
    "GemmAllReduce",
    "GemmReduceScatter",
    "GroupedGemm",
    "InternalError",
    "InvalidArgumentError",
    "MismatchError",
    "MisuseError",
    "MoeAllToAll",
    "MoeLayer",
    "MoeReceived",
    "MoeRows",
    "MoeRowsAllToAll",
    "Operator",
    "OutOfMemoryError",
    "ParallelGemm",
    "PeerLostError",
    "Qwen3",
    "Stream",
    "UnavailableError",
    "World",
    "choose_target",
    "device_count",
    "run",
]
