"""Prefill and decode attention against float64."""

import ml_dtypes
import numpy as np
import pytest

import farwarp
from oracle import f64, random, softmax_attention

TARGETS = ("emu_sm90", "emu_gfx942")
FP8 = {"emu_sm90": ml_dtypes.float8_e4m3fn, "emu_gfx942": ml_dtypes.float8_e4m3fnuz}
TOLERANCE = 2.0**-7  # values are within 1: weights are rounded to 16 bits before they multiply them, then sums are


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "options",
    ({}, {"causal": True}, {"causal": True, "window_left": 5}, {"scale": 0.3, "lse": True}, {"dtype": "float16"}),
    ids=lambda options: "_".join(options) or "plain",
)
def test_prefill(target, options):
    batch, heads, kv_heads, dim, queries, keys = 2, 4, 2, 64, 20, 40
    dtype = options.get("dtype", "bfloat16")
    q, k, v = (
        random(seed, (batch, size, count, dim), dtype)
        for seed, size, count in ((1, queries, heads), (2, keys, kv_heads), (3, keys, kv_heads))
    )

    def attend(world):
        attention = farwarp.Attention(world, batch, heads, kv_heads, dim, queries, keys, **options)
        got = attention(q, k, v)
        return [tensor.numpy() for tensor in got] if options.get("lse") else [got.numpy(), None]

    out, lse = farwarp.run(attend, ranks=1, target=target)[0]
    place, key = np.arange(queries)[:, None] + keys - queries, np.arange(keys)
    visible = np.ones((queries, keys), bool)
    if options.get("causal"):
        visible &= key <= place
    if "window_left" in options:
        visible &= key >= place - options["window_left"]
    for b, head in np.ndindex(batch, heads):
        kv = head * kv_heads // heads
        exact, exact_lse = softmax_attention(q[b, :, head], k[b, :, kv], v[b, :, kv], visible, options.get("scale"))
        np.testing.assert_allclose(f64(out[b, :, head]), exact, atol=TOLERANCE)
        if lse is not None:
            np.testing.assert_allclose(lse[b, head], exact_lse, atol=1e-3)


def test_prefill_of_wide_heads_with_a_softcap():
    heads, dim, rows, softcap = 2, 256, 20, 0.5
    q, k, v = (random(seed, (1, rows, heads, dim)) for seed in (1, 2, 3))

    def attend(world):
        return farwarp.Attention(world, 1, heads, heads, dim, rows, rows, causal=True, softcap=softcap)(q, k, v).numpy()

    out = farwarp.run(attend, ranks=1, target="emu_sm90")[0]
    for head in range(heads):
        columns = (tensor[0, :, head] for tensor in (q, k, v))
        exact, _ = softmax_attention(*columns, np.tri(rows, dtype=bool), softcap=softcap)
        np.testing.assert_allclose(f64(out[0, :, head]), exact, atol=TOLERANCE)

    def refused(world):
        with pytest.raises(farwarp.InvalidArgumentError, match="softcap is -1; allowed: 0"):
            farwarp.Attention(world, 1, heads, heads, dim, rows, rows, softcap=-1)

    farwarp.run(refused, ranks=1, target="emu_sm90")
    with pytest.raises(farwarp.InvalidArgumentError, match="head_dim is 256; allowed: a multiple of 8 up to 128 here"):
        farwarp.run(attend, ranks=1, target="emu_gfx942")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "ranks, options",
    (
        (1, {}),
        (1, {"heads_first": True, "lse": True}),
        (1, {"query_tokens": 2, "window": 9}),
        (1, {"fp8_cache": True}),
        (2, {}),
        (2, {"heads_first": True, "lse": True}),
        (2, {"fp8_cache": True}),
    ),
    ids=str,
)
def test_decode(target, ranks, options):
    batch, heads, kv_heads, dim, page, pages, most = 3, 4, 2, 64, 16, 12, 3
    tokens = options.get("query_tokens", 1)
    fp8 = options.get("fp8_cache", False)
    rng = np.random.default_rng(7)
    q = random(1, (batch, tokens, heads, dim))
    caches = [[random(10 * rank + i, (pages, page, kv_heads, dim)) for i in range(2)] for rank in range(ranks)]
    if fp8:
        caches = [[cache.astype(np.float32).astype(FP8[target]) for cache in pair] for pair in caches]
    scales = np.array([0.5, 2], np.float32)
    tables = [rng.permutation(pages)[: batch * most].reshape(batch, most).astype(np.int32) for _ in range(ranks)]
    lengths = np.array([[17, 40, tokens], [5, 33, 0]][:ranks], np.int32)  # of each rank

    def attend(world):
        decode = farwarp.FlashDecode(
            world, batch, heads, kv_heads, dim, pages=pages, max_pages=most, kv_shards=world.size, **options
        )
        k, v = (cache.view(np.uint8) if fp8 else cache for cache in caches[world.rank])
        if options.get("heads_first"):
            k, v = (np.ascontiguousarray(cache.transpose(0, 2, 1, 3)) for cache in (k, v))
        extra = {"k_scale": scales, "v_scale": scales} if fp8 else {}
        got = decode(q, k, v, tables[world.rank], lengths[world.rank], **extra)
        return [tensor.numpy() for tensor in got] if options.get("lse") else [got.numpy(), None]

    results = farwarp.run(attend, ranks=ranks, target=target)
    for b, head in np.ndindex(batch, heads):
        kv = head * kv_heads // heads
        k, v = (
            np.concatenate(
                [
                    f64(caches[rank][i][tables[rank][b]]).reshape(-1, kv_heads, dim)[: lengths[rank, b], kv]
                    for rank in range(ranks)
                ]
            )
            * (scales[kv] if fp8 else 1)
            for i in range(2)
        )
        for token in range(tokens):
            last = len(k) - tokens + token
            key = np.arange(len(k))
            visible = (key <= last) & (key > last - options.get("window", len(k)))
            exact, exact_lse = softmax_attention(q[b, token, head][None], k, v, visible[None])
            for out, lse in results:
                np.testing.assert_allclose(f64(out[b, token, head]), exact[0], atol=TOLERANCE * (8 if fp8 else 1))
                if lse is not None:
                    np.testing.assert_allclose(lse[b, token, head], exact_lse[0], atol=1e-3)
