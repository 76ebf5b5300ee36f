"""Attention: prefill."""

from __future__ import annotations

import ctypes

from . import _c, dtypes
from .arguments import flag
from .call import Call
from .descriptor import new_desc, set_fields
from .device_streams import StreamLike
from .errors import InvalidArgumentError
from .operator import Operator
from .tensors import Result, Results, Tensor, TensorSpec
from .world import World

# The tensors of farwarp_attention_tensors in the order of this package's calls.
_INPUTS = "q k v sinks query_starts key_starts key_counts block_table"
OUTPUTS = "out lse"


class _ByStruct:
    """farwarp_attention_call_tensors() in the form of the functions that take tensors one by one."""

    def __init__(self) -> None:
        self._function = _c.lib.unchecked("attention_call_tensors")
        self._tensors = new_desc(_c.AttentionTensors)
        self._reference = ctypes.byref(self._tensors)
        self._last: list[_c.Reference | None] = []

    def __call__(self, handle: ctypes.c_void_p, *arguments: _c.Reference | None) -> int:
        *references, stream = arguments
        if references != self._last:
            for name, reference in zip(f"{_INPUTS} {OUTPUTS}".split(), references):
                setattr(self._tensors, name, None if reference is None else ctypes.addressof(reference._obj))
            self._last = references
        return self._function(handle, self._reference, stream)


class WithLse(Operator):
    """Whose results are out and, if asked for, lse: the logarithms of the denominators."""

    dtype: str
    has_lse: bool
    _shape: tuple[int, ...]
    _lse_shape: tuple[int, ...]

    def result_specs(self) -> tuple[TensorSpec, ...]:
        """Shape and type of each result of a call."""
        lse = (TensorSpec(self._lse_shape, "float32"),) if self.has_lse else ()
        return (TensorSpec(self._shape, self.dtype), *lse)


class Attention(WithLse):
    """Prefill: out = softmax(scale * q @ k.T + mask) @ v. Collective to create; a world of one rank is enough.

    Parameters
    ----------
    world : World
        Whose device has the tensors.
    batch : int
        Sequences of a call.
    heads, kv_heads : int
        Of q, and of k and v, of which the first is a multiple.
    head_dim : int
        A multiple of 8 up to 256; on CDNA up to 128.
    queries, keys : int
        Of a sequence; the most, where sequences have different numbers.
    causal : bool
        Query i attends to keys up to i + keys - queries.
    window_left, window_right : int
        Keys before and after a query's own that it attends to; -1: all. With causal, window_right is -1 or 0.
    scale : float
        Up to 2e38; 0: 1 / sqrt(head_dim).
    softcap : float
        Logits become softcap * tanh(logit / softcap), before masks: 0.001 to 1e6; 0: none. Not on CDNA.
    lse : bool
        Calls return the logarithms of the denominators, too.
    sinks : bool
        Calls have a logit of each query head that only the denominator has.
    total_queries : int, optional
        Sequences follow each other in q and out, which have so many rows, and calls have query_starts. None: each
        sequence has `queries` rows.
    total_keys : int, optional
        The same of k and v, and key_starts.
    key_counts : bool
        Calls say how many keys each sequence has. Paged ones always do.
    page_size : int
        Keys of a page: 16, 32, 64 or a multiple of 128; 0: not paged.
    pages : int
        Of the cache.
    dtype : str, numpy.dtype or torch.dtype
        "bfloat16" or "float16".
    max_sms : int
        Multiprocessors of a call; 0: all.

    Raises
    ------
    InvalidArgumentError
        A parameter is outside what is allowed.
    OutOfMemoryError
        The symmetric heap has no room.
    MisuseError
        The world is closed.
    """

    _c_prefix = "attention"

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
        softcap: float = 0.0,
        lse: bool = False,
        sinks: bool = False,
        total_queries: int | None = None,
        total_keys: int | None = None,
        key_counts: bool = False,
        page_size: int = 0,
        pages: int = 0,
        dtype: dtypes.DTypeLike = "bfloat16",
        max_sms: int = 0,
    ) -> None:
        if page_size and total_keys is not None:
            raise InvalidArgumentError(
                f"total_keys is {total_keys}; allowed: None with page_size, which is {page_size}"
            )
        desc = new_desc(_c.AttentionDesc)
        self._open(
            world,
            set_fields(
                desc,
                batch=batch,
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                queries=queries,
                keys=keys,
                causal=causal,
                window_left=window_left,
                window_right=window_right,
                scale=scale,
                softcap=softcap,
                has_lse=flag("lse", lse),
                has_sinks=flag("sinks", sinks),
                ragged_queries=total_queries is not None,
                total_queries=total_queries or 0,
                ragged_keys=total_keys is not None,
                total_keys=total_keys or 0,
                has_key_counts=flag("key_counts", key_counts),
                page_size=page_size,
                pages=pages,
                dtype=dtype,
                max_sms=max_sms,
            ),
        )
        self.batch, self.heads, self.kv_heads, self.head_dim, self.queries, self.keys = (
            batch,
            heads,
            kv_heads,
            head_dim,
            queries,
            keys,
        )
        self.dtype, self.has_lse = dtypes.name_of(dtype), bool(flag("lse", lse))
        if total_queries is None:
            self._shape, self._lse_shape = (batch, queries, heads, head_dim), (batch, heads, queries)
        else:
            self._shape, self._lse_shape = (total_queries, heads, head_dim), (heads, total_queries)
        more = (sinks, total_queries is not None, total_keys is not None, key_counts or page_size, page_size)
        self._dense = not any(more)
        if self._dense:
            self._call = Call(world, "attention_call", "q k v", OUTPUTS)
        else:
            optional = " ".join(name for name, asked in zip(_INPUTS.split()[3:], more) if not asked)
            self._call = Call(world, _ByStruct(), _INPUTS, OUTPUTS, optional=optional)

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
        out: Result | None = None,
        lse: Result | None = None,
        stream: StreamLike = None,
    ) -> Results:
        """Enqueue a call. Q stands for total_queries, K for total_keys.

        Parameters
        ----------
        q : tensor [batch, queries, heads, head_dim], or [Q, heads, head_dim]
            The second if there are total_queries.
        k, v : tensor [batch, keys, kv_heads, head_dim]
            [K, kv_heads, head_dim] if there are total_keys; [pages, page_size, kv_heads, head_dim] if they are paged.
        sinks : tensor [heads] float32, optional
            Logits.
        query_starts : tensor [batch + 1] int32, optional
            First row of each sequence in q, the last is Q (cu_seqlens_q elsewhere).
        key_starts : tensor [batch + 1] int32, optional
            Likewise rows of k (cu_seqlens_k).
        key_counts : tensor [batch] int32, optional
            0 to keys (seqused_k).
        block_table : tensor [batch, ceil(keys / page_size)] int32, optional
            Page numbers; those that no query sees are not read.
        out : tensor, optional
            For the result, like q. None: a new tensor.
        lse : tensor [batch, heads, queries] or [heads, Q] float32, optional
            For the logarithms, if the operator has them. None: a new tensor.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current stream.

        Returns
        -------
        Array or torch.Tensor, or a tuple
            `out` or a new tensor; with lse (out, lse). A query without a key gets zeros.

        Raises
        ------
        InvalidArgumentError
            A tensor's shape, type, strides or device is not allowed, or the operator was created without it. Those that
            the operator does not ask for are None.
        MisuseError
            The operator is closed.

        Notes
        -----
        Integers are read when the call runs: those that are not allowed are a BadInputError of World.check().
        """
        if out is None:
            out = self._new(q, self._shape, self.dtype)
        if lse is None and self.has_lse:
            lse = self._new(q, self._lse_shape, "float32")
        more: tuple[Tensor | None, ...] = (sinks, query_starts, key_starts, key_counts, block_table)
        if self._dense:
            for name, tensor in zip(_INPUTS.split()[3:], more):
                if tensor is not None:
                    raise InvalidArgumentError(
                        f"{name} is given; allowed: None, as the operator was created without it"
                    )
            more = ()
        self._call.enqueue(self, (q, k, v, *more, out, lse), stream)
        return out if lse is None or not self.has_lse else (out, lse)
