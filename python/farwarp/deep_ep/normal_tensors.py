"""Tensors of normal mode's calls: which are allowed, and where tokens go."""

from __future__ import annotations

import numpy as np

from .. import dtypes
from ..errors import InvalidArgumentError
from ..tensors import is_torch
from .memory import Given

# ---- what is allowed


def check_x(method: str, x: Given | tuple[Given, Given]) -> None:
    """Raise InvalidArgumentError unless it is what dispatch() takes."""
    if isinstance(x, tuple):
        numbers, scales = x
        fp8 = dtypes.name_of(numbers.dtype).startswith("float8_e4m3") and dtypes.name_of(scales.dtype) == "float32"
        if not fp8 or len(numbers.shape) != 2 or len(scales.shape) != 2 or scales.shape[0] != numbers.shape[0]:
            raise InvalidArgumentError(
                f"{method}: x is ({dtypes.name_of(numbers.dtype)} {tuple(numbers.shape)}, "
                f"{dtypes.name_of(scales.dtype)} {tuple(scales.shape)}); "
                "allowed: (float8_e4m3fn (tokens, hidden), float32 (tokens, groups))"
            )
    elif len(x.shape) != 2 or (is_torch(x) and dtypes.name_of(x.dtype) != "bfloat16"):
        raise InvalidArgumentError(
            f"{method}: x is {dtypes.name_of(x.dtype)} of shape {tuple(x.shape)}; "
            "allowed: bfloat16 of shape (tokens, hidden), or a tuple"
        )


def check_routing(method: str, rows: Given, topk_idx: Given, topk_weights: Given) -> None:
    """Raise InvalidArgumentError unless they say where the tokens of `rows` go."""
    wanted = (rows.shape[0], topk_idx.shape[1]) if len(topk_idx.shape) == 2 else None
    if wanted is None or tuple(topk_idx.shape) != wanted or dtypes.name_of(topk_idx.dtype) not in ("int32", "int64"):
        raise InvalidArgumentError(
            f"{method}: topk_idx is {dtypes.name_of(topk_idx.dtype)} of shape {tuple(topk_idx.shape)}; "
            "allowed: int64 or int32 of shape "
            f"({rows.shape[0]}, top-k)"
        )
    if tuple(topk_weights.shape) != wanted or dtypes.name_of(topk_weights.dtype) != "float32":
        raise InvalidArgumentError(
            f"{method}: topk_weights is {dtypes.name_of(topk_weights.dtype)} of shape {tuple(topk_weights.shape)}; "
            "allowed: float32 of shape "
            f"{wanted}"
        )


# ---- what get_dispatch_layout() tells


def layout(topk_idx: Given, num_experts: int, ranks: int) -> tuple[Given, Given, Given]:
    """num_tokens_per_rank, num_tokens_per_expert, is_token_in_rank, without waiting for the device."""
    local = num_experts // ranks
    if is_torch(topk_idx):
        import torch

        owners = topk_idx // local  # of -1: -1
        in_rank = (owners[:, :, None] == torch.arange(ranks, device=topk_idx.device)).any(1)
        of_expert = torch.zeros(num_experts, dtype=torch.int32, device=topk_idx.device)
        of_expert.scatter_add_(0, topk_idx.flatten().clamp(min=0).long(), (topk_idx.flatten() >= 0).int())
        return in_rank.sum(0, dtype=torch.int32), of_expert, in_rank
    experts = np.asarray(topk_idx)
    in_ranks = np.equal((experts // local)[:, :, None], np.arange(ranks)).any(1)
    counts = np.bincount(experts[experts >= 0], minlength=num_experts)
    return in_ranks.sum(0).astype(np.int32), counts.astype(np.int32), in_ranks


def routing_of_ranks(is_token_in_rank: Given, num_experts: int) -> tuple[Given, Given]:
    """topk_idx int32 [tokens, ranks] and weights of tokens of which the ranks are known: the first expert of each."""
    tokens, ranks = is_token_in_rank.shape
    if is_torch(is_token_in_rank):
        import torch

        device = is_token_in_rank.device
        first = torch.arange(ranks, dtype=torch.int32, device=device) * (num_experts // ranks)
        indices = torch.where(is_token_in_rank, first, torch.full_like(first, -1))
        return indices, torch.ones((tokens, ranks), dtype=torch.float32, device=device)
    experts = np.arange(ranks, dtype=np.int32) * np.int32(num_experts // ranks)
    return np.where(is_token_in_rank, experts, np.int32(-1)), np.ones((tokens, ranks), np.float32)
