"""Attention: prefill and decode."""

from __future__ import annotations

from typing import Any

from . import _c, dtypes
from .descriptor import given, new_desc
from .operator import Operator, Parameter, Tensor
from .world import World


class Attention(Operator):
    """Prefill: out = softmax(scale * q @ k.T + mask) @ v. Collective to create; a world of one rank is enough.

    heads: of q, a multiple of kv_heads.
    head_dim: a multiple of 8 up to 128.
    causal: query i attends to keys up to i + keys - queries.
    window_left: keys before a query's own that it attends to; -1: all.
    scale: 0: 1 / sqrt(head_dim).
    lse: calls return the logarithms of the denominators, too.
    dtype: "bfloat16" or "float16".
    max_sms: multiprocessors of a call; 0: all.
    """

    _name = "attention"

    def __init__(
        self,
        world: World,
        batch: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        queries: int,
        keys: int,
        *,
        causal: bool = False,
        window_left: int = -1,
        scale: float = 0.0,
        lse: bool = False,
        dtype: Any = "bfloat16",
        max_sms: int = 0,
    ) -> None:
        desc = new_desc(_c.AttentionDesc, _c.lib.attention_desc_init)
        self._open(
            world,
            given(
                desc,
                batch=batch,
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                queries=queries,
                keys=keys,
                causal=bool(causal),
                window_left=window_left,
                scale=scale,
                has_lse=bool(lse),
                dtype=dtype,
                max_sms=max_sms,
            ),
        )
        self.batch, self.heads, self.kv_heads, self.head_dim, self.queries, self.keys = (batch, heads, kv_heads, head_dim, queries, keys)
        self.dtype, self.has_lse = dtypes.name_of(dtype), bool(lse)
        self._q, self._k, self._v, self._out, self._lse = (Parameter(name, world) for name in ("q", "k", "v", "out", "lse"))

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, out: Tensor | None = None, lse: Tensor | None = None, stream: Any = None) -> Any:
        """q [batch, queries, heads, head_dim], k and v [batch, keys, kv_heads, head_dim] -> out like q; with lse (out,
        lse), lse [batch, heads, queries] float32 being a result like `out`."""
        handle, on = self._begin(stream)
        if out is None:
            out = self._new(q, (self.batch, self.queries, self.heads, self.head_dim), self.dtype)
        if lse is None and self.has_lse:
            lse = self._new(q, (self.batch, self.heads, self.queries), "float32")
        q_at, keep_q = self._q.input(q, on)
        k_at, keep_k = self._k.input(k, on)
        v_at, keep_v = self._v.input(v, on)
        lse_at = None if lse is None else self._lse.output(lse)
        self._called(_c.lib.attention_call(handle, q_at, k_at, v_at, self._out.output(out), lse_at, on), on, (out, lse))
        return (out, lse) if self.has_lse else out


class FlashDecode(Operator):
    """Decode: a few query tokens of each sequence over a paged cache of keys and values, which ranks may share.
    Collective to create; with kv_shards of more than 1 every rank makes every call.

    query_heads: a multiple of kv_heads.
    pages, max_pages: of the cache, and of a sequence.
    query_tokens: of a sequence, 1 to 8.
    page_size: keys of a page: 1, 16, 64 or 128.
    fp8_cache: keys and values are e4m3 with a scale for each KV head.
    heads_first: the cache is [pages, kv_heads, page_size, head_dim], not [pages, page_size, kv_heads, head_dim].
    window: keys that a token sees; 0: all.
    scale: 0: 1 / sqrt(head_dim).
    kv_shards: 1: each rank has sequences of its own; the world's size: ranks share all keys.
    lse: calls return the logarithms of the denominators, too.
    dtype: of q and out, "bfloat16" or "float16".
    max_sms: multiprocessors of a call; 0: all.
    """

    _name = "decode"

    def __init__(
        self,
        world: World,
        batch: int,
        query_heads: int,
        kv_heads: int,
        head_dim: int,
        *,
        pages: int,
        max_pages: int,
        query_tokens: int = 1,
        page_size: int = 16,
        fp8_cache: bool = False,
        heads_first: bool = False,
        window: int = 0,
        scale: float = 0.0,
        kv_shards: int = 1,
        lse: bool = False,
        dtype: Any = "bfloat16",
        max_sms: int = 0,
    ) -> None:
        desc = new_desc(_c.DecodeDesc, _c.lib.decode_desc_init)
        self._open(
            world,
            given(
                desc,
                batch=batch,
                query_tokens=query_tokens,
                query_heads=query_heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                page_size=page_size,
                pages=pages,
                max_pages=max_pages,
                dtype=dtype,
                fp8_cache=bool(fp8_cache),
                heads_first=bool(heads_first),
                window=window,
                scale=scale,
                kv_shards=kv_shards,
                max_sms=max_sms,
            ),
        )
        self.dtype, self.has_lse = dtypes.name_of(dtype), bool(lse)
        self._shape = (batch, query_tokens, query_heads, head_dim)
        names = ("q", "k", "v", "block_table", "lengths", "k_scale", "v_scale")
        self._inputs = tuple(Parameter(name, world) for name in names)
        self._out, self._lse = Parameter("out", world), Parameter("lse", world)

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        block_table: Tensor,
        lengths: Tensor,
        *,
        k_scale: Tensor | None = None,
        v_scale: Tensor | None = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        stream: Any = None,
    ) -> Any:
        """Attends to the keys in the cache, those of the query tokens included.

        q: [batch, query_tokens, query_heads, head_dim]
        k, v: the cache, of uint8 with fp8_cache
        block_table: [batch, max_pages] int32
        lengths: [batch] int32: keys, the query tokens' own included; with kv_shards those of this rank
        k_scale, v_scale: [kv_heads] float32 with fp8_cache, else None

        Returns out, like q; with lse (out, lse), lse [batch, query_tokens, query_heads] float32 being a result like
        `out`.
        """
        handle, on = self._begin(stream)
        if out is None:
            out = self._new(q, self._shape, self.dtype)
        if lse is None and self.has_lse:
            lse = self._new(q, self._shape[:3], "float32")
        inputs, keep = [], []
        for parameter, tensor in zip(self._inputs, (q, k, v, block_table, lengths, k_scale, v_scale)):
            address, copy = (None, None) if tensor is None else parameter.input(tensor, on)
            inputs.append(address)
            keep.append(copy)
        lse_at = None if lse is None else self._lse.output(lse)
        self._called(_c.lib.decode_call(handle, *inputs, self._out.output(out), lse_at, on), on, (out, lse))
        return (out, lse) if self.has_lse else out
