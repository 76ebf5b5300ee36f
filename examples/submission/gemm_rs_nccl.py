"""A submission with NCCL, by torch.distributed: operator gemm-rs.

farwarp submit check gemm_rs_nccl.py --op gemm-rs --ranks 2
"""

import torch
import torch.distributed as dist


def custom_kernel(data):
    x, w, bias = data
    partial = torch.nn.functional.linear(x, w, bias)
    y = torch.empty(partial.shape[0] // dist.get_world_size(), partial.shape[1], dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(y, partial)
    return y
