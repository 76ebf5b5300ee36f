"""The MoE all-to-all, with numbers so small that every sum is exact."""

import farwarp
import ml_dtypes  # noqa: F401  NumPy then knows its types
import numpy as np
import pytest

RANKS, EXPERTS, TOP_K, HIDDEN, MOST = 4, 8, 2, 128, 8
FP8 = {"emu_sm90": "float8_e4m3fn", "emu_gfx942": "float8_e4m3fnuz"}
TOKENS = (8, 0, 5, 1)  # of each rank


def routing(rank, index_type="int32"):
    rng = np.random.default_rng(rank)
    tokens = TOKENS[rank]
    x = rng.integers(-2, 3, (tokens, HIDDEN)).astype(np.float32)
    indices = np.array([rng.choice(EXPERTS, TOP_K, replace=False) for _ in range(tokens)], index_type).reshape(tokens, TOP_K)
    if tokens:
        indices[0, 0] = -1
    weights = rng.choice([0.5, 1, 2], (tokens, TOP_K)).astype(np.float32)
    return x, indices, weights


def expert(number, rows):
    return rows * (number % 3 + 1)


def expected(rank):
    x, indices, weights = routing(rank)
    out = np.zeros(x.shape)
    for token, slot in np.ndindex(indices.shape):
        if indices[token, slot] >= 0:
            out[token] += weights[token, slot] * expert(indices[token, slot], x[token])
    return out


def received_by(rank):
    """Of each local expert the rows it gets, in the order of source rank, token and k-slot: (origin, row)."""
    experts = range(rank * EXPERTS // RANKS, (rank + 1) * EXPERTS // RANKS)
    rows = {number: [] for number in experts}
    for source in range(RANKS):
        x, indices, _ = routing(source)
        for token, slot in np.ndindex(indices.shape):
            if indices[token, slot] in rows:
                rows[indices[token, slot]].append((source << 48 | token << 16 | slot, x[token]))
    return rows


@pytest.mark.parametrize("target", ("emu_sm90", "emu_gfx942"))
@pytest.mark.parametrize("index_type", ("int32", "int64"))
@pytest.mark.parametrize(
    "options", ({}, {"masked": True}, {"row_alignment": 8}, {"fp8_dispatch": True}), ids=lambda options: "_".join(options) or "plain"
)
def test_moe(target, index_type, options):
    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, index_type=index_type, **options)
        assert moe.local_experts == EXPERTS // RANKS
        x, indices, weights = routing(world.rank, index_type)
        x = world.asarray(x, "bfloat16")
        for _ in range(2):
            received = moe.dispatch(x, indices, weights)
            rows, counts, offsets, origins = (tensor.numpy() for tensor in received[:4])
            if moe.fp8_dispatch:
                rows = rows.view(FP8[target]).astype(np.float32) * np.repeat(received.scales.numpy(), 128, axis=1)[:, :HIDDEN]
            assert rows.shape == (moe.recv_rows, HIDDEN)
            y = np.zeros(rows.shape)
            for local, (number, wanted) in enumerate(received_by(world.rank).items()):
                assert counts[local] == len(wanted)
                first = offsets[local]
                if options.get("row_alignment"):
                    assert first % 8 == 0
                for i, (origin, row) in enumerate(wanted):
                    assert origins[first + i] == origin
                    np.testing.assert_allclose(rows[first + i].astype(np.float64), row, atol=0.07 if moe.fp8_dispatch else 0)
                    y[first + i] = expert(number, row)
            out = moe.combine(world.asarray(y, "bfloat16"))
            np.testing.assert_array_equal(out.numpy().astype(np.float64), expected(world.rank))
        return True

    assert farwarp.run(layer, ranks=RANKS, target=target) == [True] * RANKS


def test_results_can_be_used_again():
    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST)
        x, indices, weights = routing(world.rank)
        x = world.asarray(x, "bfloat16")
        room = moe.new_received(x)
        for _ in range(3):
            assert moe.dispatch(x, indices, weights, out=room) is room
            moe.combine(room.recv_x)
        return room.counts.numpy().sum()

    sent = sum((routing(rank)[1] >= 0).sum() for rank in range(RANKS))
    assert sum(farwarp.run(layer, ranks=RANKS)) == sent


def test_too_many_rows():
    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, recv_rows=2)
        x, indices, weights = routing(0)
        moe.dispatch(world.asarray(x, "bfloat16"), indices, weights)
        with pytest.raises((farwarp.CapacityError, farwarp.AbortedError)) as failure:
            world.synchronize()
        world.recover()
        return failure.type

    assert farwarp.CapacityError in farwarp.run(layer, ranks=RANKS)


def test_expert_that_does_not_exist():
    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST)
        x, indices, weights = routing(0)
        indices[1, 1] = EXPERTS
        moe.dispatch(world.asarray(x, "bfloat16"), indices, weights)
        with pytest.raises((farwarp.BadInputError, farwarp.AbortedError)) as failure:
            world.synchronize()
        world.recover()
        return failure.type

    assert farwarp.BadInputError in farwarp.run(layer, ranks=RANKS)
