"""What the ops of torch_ops.py call: operators whose calls have parameters in another order, or of other names."""

from __future__ import annotations

from typing import Callable

import torch

from .attention import Attention
from .errors import InvalidArgumentError
from .flash_decode import FlashDecode
from .moe import MoeAllToAll, MoeReceived
from .moe_layer import MoeLayer
from .tensors import TensorSpec, WithSpecs
from .torch_results import OpResults


def attention(
    operator: Attention,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *more: torch.Tensor | None,
    **to: torch.Tensor,
) -> OpResults:
    sinks, starts, key_starts, counts, table = more
    return operator(
        q, k, v, sinks=sinks, query_starts=starts, key_starts=key_starts, key_counts=counts, block_table=table, **to
    )


def decode(
    operator: FlashDecode,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    *more: torch.Tensor | None,
    **to: torch.Tensor,
) -> OpResults:
    k_scale, v_scale, sinks = more
    return operator(q, k, v, table, lengths, k_scale=k_scale, v_scale=v_scale, sinks=sinks, **to)


def dispatch(
    operator: MoeAllToAll,
    x: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor,
    count: torch.Tensor | None,
    **to: torch.Tensor,
) -> OpResults:
    out = None
    if to:
        out = MoeReceived(to["recv_x"], to["counts"], to["offsets"], to["origins"], to.get("scales"))
    recv_x, counts, offsets, origins, scales = operator.dispatch(x, indices, weights, count=count, out=out)
    received = recv_x, counts, offsets, origins
    return received if scales is None else (*received, scales)


def combine(
    operator: MoeAllToAll, y: torch.Tensor, indices: torch.Tensor, count: torch.Tensor | None, **to: torch.Tensor
) -> OpResults:
    if indices.shape[0] != operator.tokens:
        raise InvalidArgumentError(
            f"indices has {indices.shape[0]} rows; allowed: {operator.tokens}, those of the dispatch"
        )
    return operator.combine(y, **to)


def fused(
    operator: MoeAllToAll,
    x: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor,
    table: torch.Tensor | None,
    count: torch.Tensor | None,
    **to: torch.Tensor,
) -> OpResults:
    return operator.fused(x, indices, weights, expert_table=table, count=count, **to)


def moe_layer(
    operator: MoeLayer,
    x: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    *more: torch.Tensor | None,
    **to: torch.Tensor,
) -> OpResults:
    bias1, bias2, count = more
    return operator(x, indices, weights, w1, w2, bias1, bias2, count=count, **to)


def fixed(operator: WithSpecs, *_inputs: object) -> tuple[TensorSpec, ...]:
    return operator.result_specs()


def rows_of(tensor: int) -> Callable[..., tuple[TensorSpec, ...]]:
    """A result of [rows of an input, hidden]."""
    return lambda operator, *inputs: (TensorSpec((inputs[tensor].shape[0], operator.hidden), operator.dtype),)
