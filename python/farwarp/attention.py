"""Attention: prefill and decode."""

from __future__ import annotations

import ctypes
from typing import Any

from . import _c, dtypes
from .call import Call, Tensor
from .descriptor import choice, given, new_desc
from .errors import InvalidArgumentError
from .operator import Operator
from .world import World

_EXCHANGES = ("best", "one_shot", "two_shot")  # in the order of farwarp_decode_exchange
_WORKS = ("best", "split", "group", "all")  # in the order of farwarp_decode_work
# The tensors of farwarp_attention_tensors in the order of this package's calls.
_INPUTS = "q k v sinks query_starts key_starts key_counts block_table"
_OUTPUTS = "out lse"


class _ByStruct:
    """farwarp_attention_call_tensors() in the form of the functions that take tensors one by one."""

    def __init__(self) -> None:
        self._function = _c.lib.unchecked("attention_call_tensors")
        self._tensors = new_desc(_c.AttentionTensors)
        self._reference = ctypes.byref(self._tensors)
        self._last: list[Any] = []

    def __call__(self, handle: ctypes.c_void_p, *arguments: Any) -> int:
        *references, stream = arguments
        if references != self._last:
            for name, reference in zip(f"{_INPUTS} {_OUTPUTS}".split(), references):
                setattr(self._tensors, name, None if reference is None else ctypes.addressof(reference._obj))
            self._last = references
        return self._function(handle, self._reference, stream)


class _WithLse(Operator):
    """Whose results are out and, if asked for, lse: the logarithms of the denominators."""

    dtype: str
    has_lse: bool
    _shape: tuple
    _lse_shape: tuple

    def _results(self) -> tuple:
        """Shape and type of each result of a call."""
        lse = ((self._lse_shape, "float32"),) if self.has_lse else ()
        return ((self._shape, self.dtype), *lse)


class Attention(_WithLse):
    """Prefill: out = softmax(scale * q @ k.T + mask) @ v. Collective to create; a world of one rank is enough.

    heads: of q, a multiple of kv_heads.
    head_dim: a multiple of 8 up to 128.
    queries, keys: of a sequence; the most, where sequences have different numbers.
    causal: query i attends to keys up to i + keys - queries.
    window_left, window_right: keys before and after a query's own that it attends to; -1: all. With causal,
        window_right is -1 or 0.
    scale: up to 2e38; 0: 1 / sqrt(head_dim).
    lse: calls return the logarithms of the denominators, too.
    sinks: calls have a logit of each query head that only the denominator has.
    total_queries: sequences follow each other in q and out, which have so many rows, and calls have query_starts; None:
        each sequence has `queries` rows.
    total_keys: the same of k and v, and key_starts.
    key_counts: calls say how many keys each sequence has. Paged ones always do.
    page_size: keys of a page: 16, 32, 64 or a multiple of 128; 0: not paged.
    pages: of the cache.
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
        window_right: int = -1,
        scale: float = 0.0,
        lse: bool = False,
        sinks: bool = False,
        total_queries: int | None = None,
        total_keys: int | None = None,
        key_counts: bool = False,
        page_size: int = 0,
        pages: int = 0,
        dtype: Any = "bfloat16",
        max_sms: int = 0,
    ) -> None:
        desc = new_desc(_c.AttentionDesc)
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
                window_right=window_right,
                scale=scale,
                has_lse=bool(lse),
                has_sinks=bool(sinks),
                ragged_queries=total_queries is not None,
                total_queries=total_queries or 0,
                ragged_keys=total_keys is not None,
                total_keys=total_keys or 0,
                has_key_counts=bool(key_counts),
                page_size=page_size,
                pages=pages,
                dtype=dtype,
                max_sms=max_sms,
            ),
        )
        self.batch, self.heads, self.kv_heads, self.head_dim, self.queries, self.keys = (batch, heads, kv_heads, head_dim, queries, keys)
        self.dtype, self.has_lse = dtypes.name_of(dtype), bool(lse)
        ragged = total_queries is not None
        self._shape = (total_queries, heads, head_dim) if ragged else (batch, queries, heads, head_dim)
        self._lse_shape = (heads, total_queries) if ragged else (batch, heads, queries)
        dense = not (sinks or ragged or total_keys is not None or key_counts or page_size)
        self._call = Call(world, "attention_call", "q k v", _OUTPUTS) if dense else Call(world, _ByStruct(), _INPUTS, _OUTPUTS)
        self._dense = dense

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        sinks: Tensor | None = None,
        query_starts: Tensor | None = None,
        key_starts: Tensor | None = None,
        key_counts: Tensor | None = None,
        block_table: Tensor | None = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        stream: Any = None,
    ) -> Any:
        """q [batch, queries, heads, head_dim], k and v [batch, keys, kv_heads, head_dim] -> out like q; with lse (out,
        lse), lse [batch, heads, queries] float32 being a result like `out`. R are total_queries, K total_keys.

        q, out: [R, heads, head_dim], lse: [heads, R], if there are total_queries
        k, v: [K, kv_heads, head_dim], if there are total_keys; [pages, page_size, kv_heads, head_dim], if they are paged
        sinks: [heads] float32
        query_starts: [batch + 1] int32: first row of each sequence in q, the last is R (cu_seqlens_q elsewhere)
        key_starts: [batch + 1] int32: likewise rows of k (cu_seqlens_k)
        key_counts: [batch] int32, 0 to keys (seqused_k)
        block_table: [batch, ceil(keys / page_size)] int32: page numbers; those that no query sees are not read

        Tensors that the operator does not ask for are None. Integers are read when the call runs: those that are not
        allowed are a BadInputError of World.check(). A query without a key gets zeros.
        """
        if out is None:
            out = self._new(q, self._shape, self.dtype)
        if lse is None and self.has_lse:
            lse = self._new(q, self._lse_shape, "float32")
        more: tuple = (sinks, query_starts, key_starts, key_counts, block_table)
        if self._dense:
            for name, tensor in zip(_INPUTS.split()[3:], more):
                if tensor is not None:
                    raise InvalidArgumentError(f"{name} is given; allowed: None, as the operator was created without it")
            more = ()
        self._call.enqueue(self, (q, k, v, *more, out, lse), stream)
        return (out, lse) if self.has_lse else out


class FlashDecode(_WithLse):
    """Decode: a few query tokens of each sequence over a paged cache of keys and values, which ranks may share.
    Collective to create; with kv_shards of more than 1 every rank makes every call.

    query_heads: a multiple of kv_heads.
    pages, max_pages: of the cache, and of a sequence.
    query_tokens: of a sequence, 1 to 8.
    page_size: keys of a page: 1, 16, 64 or 128.
    fp8_cache: keys and values are e4m3 with a scale for each KV head.
    heads_first: the cache is [pages, kv_heads, page_size, head_dim], not [pages, page_size, kv_heads, head_dim].
    window: keys that a token sees; 0: all.
    scale: up to 2e38; 0: 1 / sqrt(head_dim).
    kv_shards: 1: each rank has sequences of its own; the world's size: ranks share all keys.
    sinks: calls have a logit of each query head that only the denominator has.
    exchange: of partial outputs, if kv_shards is more than 1: "one_shot" (to all ranks), "two_shot" (to owners, whose
        results go to all) or "best", the plan's choice.
    split_keys: keys of a split, a multiple of 64; 0: by the sequence's length.
    work: of a block: "split" (one split of an item), "group" (up to four), "all", or "best", by its share of the keys;
        "group" and "all" are Hopper's, for at most 16 rows of an item.
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
        sinks: bool = False,
        exchange: str = "best",
        split_keys: int = 0,
        work: str = "best",
        lse: bool = False,
        dtype: Any = "bfloat16",
        max_sms: int = 0,
    ) -> None:
        desc = new_desc(_c.DecodeDesc)
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
                has_sinks=bool(sinks),
                exchange=choice("exchange", exchange, _EXCHANGES),
                split_keys=split_keys,
                work=choice("work", work, _WORKS),
                max_sms=max_sms,
            ),
        )
        self.dtype, self.has_lse = dtypes.name_of(dtype), bool(lse)
        self._shape = (batch, query_tokens, query_heads, head_dim)
        self._lse_shape = self._shape[:3]
        self._call = Call(world, "decode_call_sinks", "q k v block_table lengths k_scale v_scale sinks", _OUTPUTS)

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
        sinks: Tensor | None = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        stream: Any = None,
    ) -> Any:
        """Attends to the keys in the cache, those of the query tokens included.

        q: [batch, query_tokens, query_heads, head_dim]
        k, v: the cache, of uint8 with fp8_cache
        block_table: [batch, max_pages] int32; entries of pages that no token sees are not used
        lengths: [batch] int32: keys, the query tokens' own included; with kv_shards those of this rank
        k_scale, v_scale: [kv_heads] float32 with fp8_cache, else None; k_scale not below 0
        sinks: [query_heads] float32 if the operator has them, else None

        Returns out, like q; with lse (out, lse), lse [batch, query_tokens, query_heads] float32 being a result like
        `out`.
        """
        if out is None:
            out = self._new(q, self._shape, self.dtype)
        if lse is None and self.has_lse:
            lse = self._new(q, self._lse_shape, "float32")
        self._call.enqueue(self, (q, k, v, block_table, lengths, k_scale, v_scale, sinks, out, lse), stream)
        return (out, lse) if self.has_lse else out
