"""Ragged, paged and windowed prefill attention, sinks, and the forms of decode, against float64."""

import numpy as np
import pytest

import farwarp
from oracle import f64, random, softmax_attention

TARGETS = ("emu_sm90", "emu_gfx942")
TOLERANCE = 2.0**-7
BATCH, HEADS, KV_HEADS, DIM, PAGE, PAGES = 3, 4, 2, 64, 16, 12
QUERIES, KEYS = (20, 1, 7), (40, 33, 5)  # of each sequence
SINKS = np.array([0.5, -1, 2, 0], np.float32)


def starts(sizes):
    return np.cumsum((0, *sizes)).astype(np.int32)


def attend(q, k, v, head, visible, sinks):
    """One head of a sequence: (out, logarithms of the denominators)."""
    kv = head * KV_HEADS // HEADS
    out, lse = softmax_attention(q[:, head], k[:, kv], v[:, kv], visible)
    if not sinks:
        return out, lse
    with_sink = np.logaddexp(lse, SINKS[head])
    return out * np.exp(lse - with_sink)[:, None], with_sink


def visible_keys(queries, keys, causal, left, right):
    place, key = np.arange(queries)[:, None] + keys - queries, np.arange(keys)
    seen = (key <= place) if causal else np.ones((queries, keys), bool)
    seen &= key >= place - left if left >= 0 else True
    return seen & (key <= place + right if right >= 0 else True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("keys", ("ragged", "paged", "counted"))
@pytest.mark.parametrize("options", ({"causal": True}, {"window_left": 6, "window_right": 3, "sinks": True}), ids=str)
def test_sequences_of_different_lengths(target, keys, options):
    q = [random(10 + i, (size, HEADS, DIM)) for i, size in enumerate(QUERIES)]
    k, v = ([random(seed + i, (size, KV_HEADS, DIM)) for i, size in enumerate(KEYS)] for seed in (20, 30))
    table = np.random.default_rng(7).permutation(PAGES)[: BATCH * 3].reshape(BATCH, 3).astype(np.int32)
    counts = np.array(KEYS, np.int32)

    def cache(sequences):
        pages = np.full((PAGES * PAGE, KV_HEADS, DIM), np.nan, sequences[0].dtype)
        for i, sequence in enumerate(sequences):
            rows = (table[i][:, None] * PAGE + np.arange(PAGE)).reshape(-1)
            pages[rows] = 0  # memory after the last key must be a number
            pages[rows[: len(sequence)]] = sequence
        return pages.reshape(PAGES, PAGE, KV_HEADS, DIM)

    def rows(sequences):
        dense = np.zeros((BATCH, max(KEYS), KV_HEADS, DIM), sequences[0].dtype)
        for i, sequence in enumerate(sequences):
            dense[i, : len(sequence)] = sequence
        return dense

    def prefill(world):
        kind, tensors = {
            "ragged": (
                {"total_keys": sum(KEYS)},
                {"k": np.concatenate(k), "v": np.concatenate(v), "key_starts": starts(KEYS)},
            ),
            "paged": (
                {"page_size": PAGE, "pages": PAGES},
                {"k": cache(k), "v": cache(v), "key_counts": counts, "block_table": table},
            ),
            "counted": ({"key_counts": True}, {"k": rows(k), "v": rows(v), "key_counts": counts}),
        }[keys]
        attention = farwarp.Attention(
            world,
            BATCH,
            HEADS,
            KV_HEADS,
            DIM,
            max(QUERIES),
            max(KEYS),
            total_queries=sum(QUERIES),
            lse=True,
            **kind,
            **options,
        )
        if options.get("sinks"):
            tensors["sinks"] = SINKS
        first = attention(np.concatenate(q), query_starts=starts(QUERIES), **tensors)
        out, lse = world.zeros(first[0].shape, "bfloat16"), world.zeros(first[1].shape, "float32")
        again = attention(np.concatenate(q), query_starts=starts(QUERIES), out=out, lse=lse, **tensors)
        assert again == (out, lse)
        np.testing.assert_array_equal(out.numpy(), first[0].numpy())
        return out.numpy(), lse.numpy()

    out, lse = farwarp.run(prefill, ranks=1, target=target)[0]
    for i, head in np.ndindex(BATCH, HEADS):
        mine = slice(starts(QUERIES)[i], starts(QUERIES)[i + 1])
        seen = visible_keys(
            QUERIES[i],
            KEYS[i],
            options.get("causal", False),
            options.get("window_left", -1),
            options.get("window_right", -1),
        )
        some = seen.any(axis=1)  # a query without a key gets zeros
        exact, exact_lse = attend(q[i][some], k[i], v[i], head, seen[some], options.get("sinks"))
        np.testing.assert_allclose(f64(out[mine, head])[some], exact, atol=TOLERANCE)
        np.testing.assert_allclose(lse[head, mine][some], exact_lse, atol=1e-3)
        np.testing.assert_array_equal(out[mine, head][~some].astype(np.float64), 0)


@pytest.mark.parametrize("target", TARGETS)
def test_pages_that_nobody_sees_are_not_read(target):
    """A window has freed the first page: the entry is -1, and its memory and the unseen rows of the second are NaN."""
    q, k, v = random(1, (1, 1, HEADS, DIM)), random(2, (32, KV_HEADS, DIM)), random(3, (32, KV_HEADS, DIM))
    seen = np.arange(32)[None] >= 28
    caches = []
    for rows in (k, v):
        cache = np.full((2, PAGE, KV_HEADS, DIM), np.nan, rows.dtype)
        cache[1, 12:] = rows[28:]
        caches.append(cache)
    count = np.array([32], np.int32)

    def attend_twice(world):
        prefill = farwarp.Attention(
            world, 1, HEADS, KV_HEADS, DIM, 1, 40, window_left=3, causal=True, page_size=PAGE, pages=2
        )
        decode = farwarp.FlashDecode(world, 1, HEADS, KV_HEADS, DIM, pages=2, max_pages=3, window=4)
        outs = []
        for unseen in (-1, 2, 2**31 - 1):
            table = np.array([[unseen, 1, unseen]], np.int32)
            outs.append(prefill(q, *caches, key_counts=count, block_table=table).numpy())
            outs.append(decode(q, *caches, table, count).numpy())
        world.synchronize()
        prefill(q, *caches, key_counts=count, block_table=np.array([[0, -1, 0]], np.int32))
        with pytest.raises(farwarp.BadInputError, match="found -1"):
            world.synchronize()
        return outs

    for out in farwarp.run(attend_twice, ranks=1, target=target)[0]:
        for head in range(HEADS):
            exact, _ = attend(q[0], k, v, head, seen, False)
            np.testing.assert_allclose(f64(out[0, 0, head]), exact[0], atol=TOLERANCE)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("number, keys", ((21888, 1), (133120, 40)))
def test_logits_of_any_size(target, number, keys):
    """The exponent of the largest logit is 0, and not what a rounding of the logit has left of it."""
    dtype = random(0, (1,)).dtype
    q, cache = np.full((1, 1, HEADS, DIM), number, dtype), np.full((3, PAGE, KV_HEADS, DIM), number, dtype)
    table, count = np.array([[2, 0, 1]], np.int32), np.array([keys], np.int32)

    def attend_twice(world):
        prefill = farwarp.Attention(world, 1, HEADS, KV_HEADS, DIM, 1, 48, page_size=PAGE, pages=3, lse=True)
        decode = farwarp.FlashDecode(world, 1, HEADS, KV_HEADS, DIM, pages=3, max_pages=3, lse=True)
        results = prefill(q, cache, cache, key_counts=count, block_table=table), decode(q, cache, cache, table, count)
        return [tensor.numpy() for pair in results for tensor in pair]

    for i, result in enumerate(farwarp.run(attend_twice, ranks=1, target=target)[0]):
        right = number**2 * DIM / np.sqrt(DIM) + np.log(keys) if i % 2 else number
        np.testing.assert_allclose(f64(result), right, rtol=1e-6)


def test_tensors_that_are_not_asked_for():
    def prefill(world):
        q, k = random(1, (1, 8, HEADS, DIM)), random(2, (1, 8, KV_HEADS, DIM))
        attention = farwarp.Attention(world, 1, HEADS, KV_HEADS, DIM, 8, 8)
        with pytest.raises(
            farwarp.InvalidArgumentError, match="sinks is given; allowed: None, as the operator was created without it"
        ):
            attention(q, k, k, sinks=SINKS)
        counted = farwarp.Attention(world, 1, HEADS, KV_HEADS, DIM, 8, 8, key_counts=True)
        counts = np.array([8], np.int32)
        with pytest.raises(farwarp.InvalidArgumentError, match="sinks is given; allowed: NULL, as the descriptor says"):
            counted(q, k, k, key_counts=counts, sinks=SINKS)
        with pytest.raises(farwarp.InvalidArgumentError, match="key_counts is a NoneType; allowed: a farwarp.Array"):
            counted(q, k, k)
        np.testing.assert_array_equal(counted(q, k, k, key_counts=counts).numpy(), attention(q, k, k).numpy())
        counted(q, k, k, key_counts=np.array([9], np.int32))
        with pytest.raises(farwarp.BadInputError):
            world.synchronize()
        world.recover()
        for wrong, message in (
            ({"page_size": 24}, "page_size is 24; allowed"),
            ({"causal": True, "window_right": 1}, "window_right is 1"),
            ({"total_queries": -1}, "total_queries is -1; allowed"),
        ):
            with pytest.raises(farwarp.InvalidArgumentError, match=message):
                farwarp.Attention(world, 1, HEADS, KV_HEADS, DIM, 8, 8, **wrong)

    farwarp.run(prefill, ranks=1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ("query_starts", "key_starts"))
@pytest.mark.parametrize(
    "wrong, found",
    (
        ((-4, 12, 24), "-4, which is too small"),
        ((0, 20, 24), "20, allowed is at most 16"),
        ((0, 14, 12), "12, which is too small"),
        ((0, 12, 25), "25, allowed is at most 24"),
        ((12, 12, 2**31 - 1), "2147483647, allowed is at most 24"),
        ((-(2**31), -(2**31), 12), "-2147483648, which is too small"),
    ),
)
def test_starts_that_are_not_allowed(target, name, wrong, found):
    """The message has a number that the caller gave."""

    def prefill(world):
        q, k = random(1, (24, HEADS, DIM)), random(2, (24, KV_HEADS, DIM))
        attention = farwarp.Attention(world, 2, HEADS, KV_HEADS, DIM, 16, 16, total_queries=24, total_keys=24)
        right = np.array((0, 12, 24), np.int32)
        given = {"query_starts": right, "key_starts": right}
        attention(q, k, k, **{**given, name: np.array(wrong, np.int32)})
        with pytest.raises(farwarp.BadInputError, match=f"'{name}': found {found}"):
            world.synchronize()
        world.recover()
        attention(q, k, k, **given)
        world.synchronize()

    farwarp.run(prefill, ranks=1, target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "ranks, options",
    (
        (1, {"sinks": True}),
        (1, {"split_keys": 64, "work": "split"}),
        (2, {"exchange": "one_shot", "sinks": True}),
        (2, {"exchange": "two_shot"}),
    ),
    ids=str,
)
def test_forms_of_decode(target, ranks, options):
    q = random(1, (BATCH, 1, HEADS, DIM))
    caches = [[random(10 * rank + i, (PAGES, PAGE, KV_HEADS, DIM)) for i in range(2)] for rank in range(ranks)]
    table = np.arange(9, dtype=np.int32).reshape(BATCH, 3)
    lengths = np.array([[17, 40, 1], [5, 33, 0]], np.int32)[:ranks]

    def step(world):
        decode = farwarp.FlashDecode(
            world, BATCH, HEADS, KV_HEADS, DIM, pages=PAGES, max_pages=3, kv_shards=world.size, lse=True, **options
        )
        extra = {"sinks": SINKS} if options.get("sinks") else {}
        return [tensor.numpy() for tensor in decode(q, *caches[world.rank], table, lengths[world.rank], **extra)]

    for out, lse in farwarp.run(step, ranks=ranks, target=target):
        for b, head in np.ndindex(BATCH, HEADS):
            k, v = (
                np.concatenate(
                    [caches[rank][i][table[b]].reshape(-1, KV_HEADS, DIM)[: lengths[rank, b]] for rank in range(ranks)]
                )
                for i in range(2)
            )
            exact, exact_lse = attend(q[b], k, v, head, np.ones((1, len(k)), bool), options.get("sinks"))
            np.testing.assert_allclose(f64(out[b, 0, head]), exact[0], atol=TOLERANCE)
            np.testing.assert_allclose(lse[b, 0, head], exact_lse[0], atol=1e-3)


def test_choices_of_decode_that_are_not_allowed():
    def create(world):
        for wrong, message in (
            ({"exchange": "ring"}, "exchange is 'ring'; allowed: best, one_shot, two_shot"),
            ({"work": "some"}, "work is 'some'; allowed: best, split, group, all"),
            ({"split_keys": 65}, "split_keys is 65; allowed"),
        ):
            with pytest.raises(farwarp.InvalidArgumentError, match=message):
                farwarp.FlashDecode(world, BATCH, HEADS, KV_HEADS, DIM, pages=PAGES, max_pages=3, **wrong)

    farwarp.run(create, ranks=1)
