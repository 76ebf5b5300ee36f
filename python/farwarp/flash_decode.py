"""Attention: decode."""

from __future__ import annotations

from . import _c, dtypes
from .arguments import flag
from .attention import OUTPUTS, WithLse
from .call import Call
from .descriptor import choice, new_desc, set_fields
from .device_streams import StreamLike
from .tensors import Result, Results, Tensor
from .world import World

_EXCHANGES = ("best", "one_shot", "two_shot")  # in the order of farwarp_decode_exchange
_WORKS = ("best", "split", "group", "all")  # in the order of farwarp_decode_work


class FlashDecode(WithLse):
    """Decode: a few query tokens of each sequence over a paged cache of keys and values, which ranks may share.

    Collective to create; with kv_shards of more than 1 every rank makes every call.

    Parameters
    ----------
    world : World
        Whose device has the tensors.
    batch : int
        Sequences of a call.
    query_heads, kv_heads : int
        Of q, and of the cache, of which the first is a multiple.
    head_dim : int
        Numbers of a head.
    pages, max_pages : int
        Of the cache, and of a sequence.
    query_tokens : int
        Of a sequence, 1 to 8.
    page_size : int
        Keys of a page: 1, 16, 64 or 128.
    fp8_cache : bool
        Keys and values are e4m3 with a scale for each KV head.
    heads_first : bool
        The cache is [pages, kv_heads, page_size, head_dim], not [pages, page_size, kv_heads, head_dim].
    window : int
        Keys that a token sees; 0: all.
    scale : float
        Up to 2e38; 0: 1 / sqrt(head_dim).
    kv_shards : int
        1: each rank has sequences of its own; the world's size: ranks share all keys.
    sinks : bool
        Calls have a logit of each query head that only the denominator has.
    exchange : str
        Of partial outputs, if kv_shards is more than 1: "one_shot" (to all ranks), "two_shot" (to owners, whose results
        go to all) or "best", the plan's choice.
    split_keys : int
        Keys of a split, a multiple of 64; 0: by the sequence's length.
    work : str
        Of a block: "split" (one split of an item), "group" (up to four), "all", or "best", by its share of the keys;
        "group" and "all" are Hopper's, for at most 16 rows of an item.
    lse : bool
        Calls return the logarithms of the denominators, too.
    dtype : str, numpy.dtype or torch.dtype
        Of q and out, "bfloat16" or "float16".
    max_sms : int
        Multiprocessors of a call; 0: all.

    Raises
    ------
    InvalidArgumentError
        A parameter is outside what is allowed.
    OutOfMemoryError
        The symmetric heap has no room.
    MismatchError
        The ranks gave different parameters.
    MisuseError
        The world is closed.
    """

    _c_prefix = "decode"

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
        dtype: dtypes.DTypeLike = "bfloat16",
        max_sms: int = 0,
    ) -> None:
        lse = bool(flag("lse", lse))
        desc = new_desc(_c.DecodeDesc)
        self._open(
            world,
            set_fields(
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
                fp8_cache=fp8_cache,
                heads_first=heads_first,
                window=window,
                scale=scale,
                kv_shards=kv_shards,
                has_sinks=flag("sinks", sinks),
                exchange=choice("exchange", exchange, _EXCHANGES),
                split_keys=split_keys,
                work=choice("work", work, _WORKS),
                max_sms=max_sms,
            ),
        )
        self.dtype, self.has_lse = dtypes.name_of(dtype), lse
        self._shape = (batch, query_tokens, query_heads, head_dim)
        self._lse_shape = self._shape[:3]
        inputs = "q k v block_table lengths k_scale v_scale sinks"
        optional = f"{'' if fp8_cache else 'k_scale v_scale'} {'' if sinks else 'sinks'}"
        self._call = Call(world, "decode_call_sinks", inputs, OUTPUTS, optional=optional)

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
        out: Result | None = None,
        lse: Result | None = None,
        stream: StreamLike = None,
    ) -> Results:
        """Attend to the keys in the cache, those of the query tokens included.

        Parameters
        ----------
        q : tensor [batch, query_tokens, query_heads, head_dim]
            Of the operator's dtype.
        k, v : tensor [pages, page_size, kv_heads, head_dim]
            The cache, of the operator's dtype or with fp8_cache of uint8. With heads_first [pages, kv_heads, page_size,
            head_dim].
        block_table : tensor [batch, max_pages] int32
            Page numbers; entries of pages that no token sees are not used.
        lengths : tensor [batch] int32
            Keys, the query tokens' own included; with kv_shards those of this rank.
        k_scale, v_scale : tensor [kv_heads] float32, optional
            With fp8_cache; k_scale not below 0.
        sinks : tensor [query_heads] float32, optional
            If the operator has them.
        out : tensor, optional
            For the result, like q. None: a new tensor.
        lse : tensor [batch, query_tokens, query_heads] float32, optional
            For the logarithms, if the operator has them. None: a new tensor.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current stream.

        Returns
        -------
        Array or torch.Tensor, or a tuple
            `out` or a new tensor; with lse (out, lse).

        Raises
        ------
        InvalidArgumentError
            A tensor's shape, type, strides or device is not allowed.
        MisuseError
            The operator is closed.
        """
        if out is None:
            out = self._new(q, self._shape, self.dtype)
        if lse is None and self.has_lse:
            lse = self._new(q, self._lse_shape, "float32")
        self._call.enqueue(self, (q, k, v, block_table, lengths, k_scale, v_scale, sinks, out, lse), stream)
        return out if lse is None or not self.has_lse else (out, lse)
