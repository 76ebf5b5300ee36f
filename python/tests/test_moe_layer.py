"""moe_layer against NumPy in float64, with the roundings of moe_layer.h."""

import numpy as np
import pytest

import farwarp
from oracle import HALF_ULP, f64, numpy_type, random

EXPERTS, TOP_K, HIDDEN, INTER, MOST = 5, 3, 136, 72, 20
TOKENS = (20, 0, 7)  # of each rank


def owner(expert, ranks):
    return expert * ranks // EXPERTS


def matrices(dtype, bias):
    """w1, w2, and with bias bias1 and bias2, of all experts."""
    shapes = (EXPERTS, 2 * INTER, HIDDEN), (EXPERTS, HIDDEN, INTER), (EXPERTS, 2 * INTER), (EXPERTS, HIDDEN)
    return [(f64(random(i, shape)) / 4).astype(numpy_type(dtype)) for i, shape in enumerate(shapes[: 4 if bias else 2])]


def tokens_of(rank, dtype="bfloat16", index_type="int32", tokens=None):
    generator, tokens = np.random.default_rng(rank), TOKENS[rank] if tokens is None else tokens
    indices = np.array([generator.choice(EXPERTS, TOP_K, replace=False) for _ in range(tokens)], index_type)
    indices = indices.reshape(tokens, TOP_K)
    indices[generator.random(indices.shape) < 0.2] = -1
    indices[1:2] = -1  # a token without experts
    indices[2:3] = 3  # one expert in all slots
    return random(10 + rank, (tokens, HIDDEN), dtype), indices, generator.random((tokens, TOP_K), np.float32)


def of_rank(rank, ranks, arrays):
    return [np.ascontiguousarray(array[[owner(e, ranks) == rank for e in range(EXPERTS)]]) for array in arrays]


def activated(name, gate, up):
    if name == "swiglu":
        return gate / (1 + np.exp(-gate)) * up
    gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
    return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)


def exact(x, indices, weights, arrays, activation):
    """The result, and the sum of the magnitudes of its terms."""
    w1, w2, *biases = map(f64, arrays)
    result, magnitude = np.zeros((2, len(x), HIDDEN))
    for token, slot in np.argwhere(indices >= 0):
        expert = indices[token, slot]
        sums = w1[expert] @ f64(x[token]) + (biases[0][expert] if biases else 0)
        h = f64(activated(activation, *np.split(sums, 2)).astype(x.dtype))
        y = w2[expert] @ h + (biases[1][expert] if biases else 0)
        result[token] += weights[token, slot] * y
        magnitude[token] += weights[token, slot] * (np.abs(w2[expert]) @ np.abs(h) + np.abs(y))
    return result, magnitude


def new_layer(world, **options):
    return farwarp.MoeLayer(world, EXPERTS, TOP_K, HIDDEN, INTER, MOST, **options)


@pytest.mark.parametrize("ranks", (1, 2, 3))
@pytest.mark.parametrize("activation, bias", (("swiglu", False), ("swiglu", True), ("clamped_swiglu", True)))
@pytest.mark.parametrize("dtype, index_type", (("bfloat16", "int32"), ("float16", "int64")))
def test_sums_of_experts(ranks, activation, bias, dtype, index_type):
    arrays = matrices(dtype, bias)

    def body(world):
        layer = new_layer(world, dtype=dtype, index_type=index_type, activation=activation, bias=bias)
        mine, given = of_rank(world.rank, ranks, arrays), tokens_of(world.rank, dtype, index_type)
        assert layer.local_experts == len(mine[0])
        first = layer(*given, *mine).numpy()
        out = world.zeros(first.shape, dtype)
        assert layer(*given, *mine, out=out) is out
        assert np.array_equal(out.numpy(), first), "a call has the bits of the call before"
        return first

    for rank, got in enumerate(farwarp.run(body, ranks=ranks)):
        x, indices, weights = tokens_of(rank, dtype, index_type)
        wanted, magnitude = exact(x, indices, weights, arrays, activation)
        assert got.shape == wanted.shape and got.dtype == x.dtype
        error = np.abs(f64(got) - wanted)
        assert (error <= 2 * HALF_ULP[dtype] * (np.abs(wanted) + magnitude)).all(), error.max()
        assert (got[1:2] == 0).all()


@pytest.mark.parametrize("ranks", (1, 2))
def test_counts_on_the_device(ranks):
    """Rows from `count` on, whose indices are not allowed, are neither read nor written."""
    arrays, counts = matrices("bfloat16", False), (7, 0)

    def body(world):
        layer, mine = new_layer(world), of_rank(world.rank, ranks, arrays)
        x, indices, weights = tokens_of(world.rank, tokens=MOST)
        few = counts[world.rank]
        wanted = layer(x[:few], indices[:few], weights[:few], *mine).numpy()
        indices[few:] = EXPERTS + 100
        out = world.asarray(np.full(x.shape, 7, x.dtype))
        count = world.asarray(np.array([few], np.int32))
        layer(x, indices, weights, *mine, count=count, out=out)
        got = out.numpy()
        assert np.array_equal(got[:few], wanted) and (f64(got[few:]) == 7).all()
        with pytest.raises((farwarp.BadInputError, farwarp.AbortedError)) as failure:
            layer(x, indices, weights, *mine, count=np.array([MOST + 1 if world.rank == 0 else 0], np.int32)).numpy()
        world.recover()
        layer(x, indices, weights, *mine, count=count, out=out)
        assert np.array_equal(out.numpy(), got)
        return failure.type

    assert farwarp.BadInputError in farwarp.run(body, ranks=ranks)


def test_bits_depend_on_the_token_alone():
    arrays = matrices("bfloat16", True)

    def body(world):
        mine, (x, indices, weights) = of_rank(world.rank, 2, arrays), tokens_of(0)
        results = []
        for options in ({}, {"tile_rows": 64}, {"tile_rows": 128, "tile_columns": 256}, {"max_sms": 3}):
            layer = new_layer(world, bias=True, **options)
            results.append(layer(x, indices, weights, *mine).numpy())
            results.append(layer(x[::-1].copy(), indices[::-1].copy(), weights[::-1].copy(), *mine).numpy()[::-1])
            layer.close()
        assert all(np.array_equal(result, results[0]) for result in results)

    farwarp.run(body, ranks=2)


@pytest.mark.parametrize("ranks", (1, 2))
def test_what_a_kernel_finds(ranks):
    arrays = matrices("bfloat16", False)

    def body(world):
        mine, (x, indices, weights) = of_rank(world.rank, ranks, arrays), tokens_of(0)
        messages = []
        for layer, wrong in ((new_layer(world, max_rows=2), 0), (new_layer(world), EXPERTS)):
            bad = indices.copy()
            bad[0, 0] = wrong
            with pytest.raises((farwarp.CapacityError, farwarp.BadInputError, farwarp.AbortedError)) as failure:
                layer(x, bad, weights, *mine).numpy()
            messages.append(f"{failure.type.__name__}: {failure.value}")
            world.recover()
        return messages

    capacity, bad = zip(*farwarp.run(body, ranks=ranks))
    assert any(
        text.startswith("CapacityError") and "'max_rows': there is room for 2, needed are" in text for text in capacity
    )
    assert any(text.startswith("BadInputError") and "expert index" in text for text in bad)


@pytest.mark.parametrize(
    "options, message",
    (
        ({"activation": "none"}, "activation is 'none'; allowed: swiglu, clamped_swiglu"),
        ({"bias": 2}, "bias is 2; allowed: True, False"),
        ({"dtype": "float32"}, "dtype is float32; allowed: bfloat16, float16"),
        ({"index_type": "int8"}, "index_type is int8; allowed"),
        ({"hidden": 12}, "hidden is 12; allowed: a multiple of 8 up to 1048576"),
        ({"intermediate": 0}, "intermediate is 0; allowed: a multiple of 8 up to 1048576"),
        ({"num_experts": 385}, "num_experts is 385; allowed: 1 (ranks) to 384"),
        ({"experts_per_token": 33}, "experts_per_token is 33; allowed: 1 to 32"),
        ({"max_tokens": 65536}, "max_tokens is 65536; allowed: 1 to 65535"),
        ({"max_rows": MOST * TOP_K + 1}, "max_rows is 61; allowed: 0 (the worst case) to 60"),
        ({"max_sms": 2.5}, "max_sms is 2.5; allowed: a whole number"),
        ({"tile_rows": 256}, "tile_rows is 256; allowed: 0 (the plan's choice), 64, 128"),
        ({"tile_rows": 64, "tile_columns": 256}, "tile_columns is 256; allowed: 0 (the plan's choice), 128, and 256"),
    ),
)
def test_descriptors(options, message):
    sizes = {
        "num_experts": EXPERTS,
        "experts_per_token": TOP_K,
        "hidden": HIDDEN,
        "intermediate": INTER,
        "max_tokens": MOST,
    }

    def create(world):
        with pytest.raises(farwarp.InvalidArgumentError) as refused:
            farwarp.MoeLayer(world, **{**sizes, **options})
        assert message in str(refused.value)

    farwarp.run(create, ranks=1)


def test_tensors_that_are_refused():
    arrays = matrices("bfloat16", True)

    def body(world):
        layer, biased = new_layer(world), new_layer(world, bias=True)
        x, indices, weights = tokens_of(0)
        w1, w2, bias1, bias2 = (world.asarray(array) for array in arrays)
        for call, message in (
            (lambda: layer(x.astype(np.float32), indices, weights, w1, w2), "x is of float32; allowed: bfloat16"),
            (lambda: layer(x[:, :128].copy(), indices, weights, w1, w2), "x has shape [20, 128]; allowed: [20, 136]"),
            (lambda: layer(np.ones((21, HIDDEN), x.dtype), indices, weights, w1, w2), "allowed: 0 to 20 rows"),
            (lambda: layer(x, indices[:3], weights, w1, w2), "indices has shape [3, 3]; allowed: [20, 3]"),
            (lambda: layer(x, indices.astype(np.int64), weights, w1, w2), "indices is of int64; allowed: int32"),
            (lambda: layer(x, indices, weights.astype(x.dtype), w1, w2), "weights is of bfloat16; allowed: float32"),
            (lambda: layer(x, indices, weights, w2, w2), "w1 has shape [5, 136, 72]; allowed: [5, 144, 136]"),
            (lambda: layer(x, indices, weights, w1, w1), "w2 has shape [5, 144, 136]; allowed: [5, 136, 72]"),
            (lambda: layer(x, indices, weights, w1, w2, bias1), "bias1 is given; allowed: NULL"),
            (lambda: biased(x, indices, weights, w1, w2, bias1), "bias2 is a NoneType; allowed: a farwarp.Array"),
            (lambda: biased(x, indices, weights, w1, w2, bias2, bias2), "bias1 has shape [5, 136]; allowed: [5, 144]"),
            (
                lambda: layer(x[:3], indices[:3], weights[:3], w1, w2, count=np.array([3], np.int32)),
                "x has shape [3, 136]; allowed: [20, 136]",
            ),
            (lambda: layer(x, indices, weights, w1, w2, count=np.array([3])), "count is of int64; allowed: int32"),
            (lambda: layer(x, indices, weights, w1, w2, out=x), "out is a ndarray; allowed: a farwarp.Array"),
        ):
            with pytest.raises(farwarp.InvalidArgumentError) as refused:
                call()
            assert message in str(refused.value)
        there = world.asarray(x)
        with pytest.raises(farwarp.InvalidArgumentError, match="out overlaps x|x overlaps out"):
            layer(there, indices, weights, w1, w2, out=there)
        layer.close()
        with pytest.raises(farwarp.MisuseError, match="MoeLayer is closed; allowed: calls before close"):
            layer(x, indices, weights, w1, w2)

    farwarp.run(body, ranks=1)


def test_there_is_none_on_cdna():
    with pytest.raises(farwarp.UnavailableError, match="moe_layer has kernels for Hopper"):
        farwarp.run(new_layer, ranks=1, target="emu_gfx942")
