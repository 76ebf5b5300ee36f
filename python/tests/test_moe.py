"""The MoE all-to-all, with numbers so small that every sum is exact."""

import threading

import ml_dtypes  # noqa: F401  NumPy then knows its types
import numpy as np
import pytest

import farwarp

RANKS, EXPERTS, TOP_K, HIDDEN, MOST = 4, 8, 2, 128, 8
FP8 = {"emu_sm90": "float8_e4m3fn", "emu_gfx942": "float8_e4m3fnuz"}
TOKENS = (8, 0, 5, 1)  # of each rank


def routing(rank, index_type="int32"):
    rng = np.random.default_rng(rank)
    tokens = TOKENS[rank]
    x = rng.integers(-2, 3, (tokens, HIDDEN)).astype(np.float32)
    indices = np.array([rng.choice(EXPERTS, TOP_K, replace=False) for _ in range(tokens)], index_type).reshape(
        tokens, TOP_K
    )
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
    "options",
    ({}, {"layout": "masked"}, {"row_alignment": 8}, {"scales": "rows"}),
    ids=str,
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
            if moe.scales == "rows":
                rows = (
                    rows.view(FP8[target]).astype(np.float32)
                    * np.repeat(received.scales.numpy(), 128, axis=1)[:, :HIDDEN]
                )
            assert rows.shape == (moe.recv_rows, HIDDEN)
            y = np.zeros(rows.shape)
            for local, (number, wanted) in enumerate(received_by(world.rank).items()):
                assert counts[local] == len(wanted)
                first = offsets[local]
                if options.get("row_alignment"):
                    assert first % 8 == 0
                for i, (origin, row) in enumerate(wanted):
                    assert origins[first + i] == origin
                    np.testing.assert_allclose(rows[first + i].astype(np.float64), row, atol=0.07 if moe.scales else 0)
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
        return str(failure.value) if failure.type is farwarp.CapacityError else ""

    sent = routing(0)[1]
    first = sum((sent // 2 == 0) & (sent >= 0)).sum() * RANKS  # of rank 0, from all
    messages = farwarp.run(layer, ranks=RANKS)
    assert any(messages)
    assert not messages[0] or f"'recv_rows': there is room for 2, needed are {first}" in messages[0]


@pytest.mark.parametrize("target", ("emu_sm90", "emu_gfx942"))
@pytest.mark.parametrize(
    "options", ({}, {"layout": "masked"}, {"layout": "masked", "scales": "rows"}, {"row_alignment": 8}), ids=str
)
def test_one_expert_in_several_slots(target, options):
    """All entries of all ranks are one expert: the default room is that of the worst case."""
    top_k, most = 3, 5

    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, top_k, HIDDEN, most, **options)
        tokens = np.arange(most) + most * world.rank
        x = world.asarray(np.repeat(tokens[:, None] % 8, HIDDEN, axis=1).astype(np.float32), "bfloat16")
        indices, weights = np.full((most, top_k), 5, np.int32), np.tile(np.array([[0.5, 1, 2]], np.float32), (most, 1))
        received = moe.dispatch(x, indices, weights)
        rows = most * RANKS * (1 if moe.layout == "masked" else top_k)
        assert received.counts.numpy().tolist() == ([0, rows] if world.rank == 2 else [0, 0])
        if world.rank == 2:
            first = received.offsets.numpy()[1]
            origins = received.origins.numpy()[first : first + rows]
            slots = range(1 if moe.layout == "masked" else top_k)
            assert origins.tolist() == [
                s << 48 | t << 16 | slot for s in range(RANKS) for t in range(most) for slot in slots
            ]
        y = np.zeros((moe.recv_rows, HIDDEN), np.float32)
        for row, origin in enumerate(received.origins.numpy()[: received.offsets.numpy()[-1]]):
            if origin >= 0:
                y[row] = 2 * (((origin >> 16 & 0xFFFF) + most * (origin >> 48)) % 8)
        out = moe.combine(world.asarray(y, "bfloat16")).numpy().astype(np.float64)
        np.testing.assert_array_equal(out, np.repeat(7.0 * (tokens[:, None] % 8), HIDDEN, axis=1))
        fused = moe.fused(x, indices, weights).numpy().astype(np.float64)
        np.testing.assert_allclose(fused, out / 2 * 3, atol=0.5 if moe.scales else 0)
        return True

    assert farwarp.run(layer, ranks=RANKS, target=target) == [True] * RANKS


@pytest.mark.parametrize(
    "index_type, wrong", (("int32", EXPERTS), ("int64", EXPERTS), ("int64", 2**32 + 1), ("int64", -(2**32) - 1))
)
def test_expert_that_does_not_exist(index_type, wrong):
    """Also one whose lower 32 bits are an expert, or -1."""

    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, index_type=index_type)
        x, indices, weights = routing(0, index_type)
        indices[1, 1] = wrong
        moe.dispatch(world.asarray(x, "bfloat16"), indices, weights)
        with pytest.raises((farwarp.BadInputError, farwarp.AbortedError)) as failure:
            world.synchronize()
        world.recover()
        return failure.type

    assert farwarp.BadInputError in farwarp.run(layer, ranks=RANKS)


def experts_of(moe, world, received):
    """The experts' outputs for the rows of a dispatch."""
    rows, counts, offsets = (tensor.numpy() for tensor in received[:3])
    y = np.zeros(rows.shape)
    for local in range(moe.local_experts):
        mine = slice(offsets[local], offsets[local] + counts[local])
        y[mine] = expert(world.rank * EXPERTS // RANKS + local, rows[mine].astype(np.float64))
    return world.asarray(y, "bfloat16")


def padded(array):
    """With rows up to MOST, which a call with a count must not read: their indices are not allowed."""
    rows = np.full((MOST, *array.shape[1:]), EXPERTS + 100, array.dtype)
    rows[: len(array)] = array
    return rows


@pytest.mark.parametrize("target", ("emu_sm90", "emu_gfx942"))
@pytest.mark.parametrize("counted", (False, True))
@pytest.mark.parametrize(
    "options", ({}, {"mode": "words"}, {"mode": "bulk", "segments": 1, "send_only_blocks": -1}), ids=str
)
def test_halves_and_counts(target, counted, options):
    """All orders that are allowed: halves, whole calls, and one of each."""

    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, **options)
        x, indices, weights = routing(world.rank)
        tokens, extra = len(x), {}
        if counted:
            x, indices, weights = padded(x), padded(indices), padded(weights)
            extra = {"count": np.array([tokens], np.int32)}
        x = world.asarray(x, "bfloat16")
        for whole in ("", "dispatch", "combine", "dispatch combine"):
            if "dispatch" in whole:
                received = moe.dispatch(x, indices, weights, **extra)
            else:
                assert moe.dispatch_send(x, indices, weights, **extra) is None
                received = moe.dispatch_recv()
            y = experts_of(moe, world, received)
            if "combine" in whole:
                out = moe.combine(y)
            else:
                assert moe.combine_send(y) is None
                out = moe.combine_recv()
            assert out.shape == (MOST if counted else tokens, HIDDEN)
            np.testing.assert_array_equal(out.numpy()[:tokens].astype(np.float64), expected(world.rank))
        room, kept = moe.new_received(x), world.zeros(out.shape, "bfloat16")
        moe.dispatch_send(x, indices, weights, **extra)
        assert moe.dispatch_recv(out=room) is room
        moe.combine_send(experts_of(moe, world, room))
        assert moe.combine_recv(out=kept) is kept
        np.testing.assert_array_equal(kept.numpy()[tokens:], 0)  # not written
        return True

    assert farwarp.run(layer, ranks=RANKS, target=target) == [True] * RANKS


@pytest.mark.parametrize("target", ("emu_sm90", "emu_gfx942"))
@pytest.mark.parametrize("counted", (False, True))
def test_fused(target, counted):
    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST)
        x, indices, weights = routing(world.rank)
        owners, valid = indices * RANKS // EXPERTS, weights * (indices >= 0)
        by_rank = (valid * (1 + owners)).sum(1, keepdims=True) * x
        tables = np.array([[number % 3 + 1, number] for number in range(EXPERTS)], np.float32)
        by_table = (
            valid[:, :, None] * (tables[indices, 0][:, :, None] * x[:, None] + tables[indices, 1][:, :, None])
        ).sum(1)
        tokens, extra = len(x), {}
        if counted:
            x, indices, weights = padded(x), padded(indices), padded(weights)
            extra = {"count": np.array([tokens], np.int32)}
        x = world.asarray(x, "bfloat16")
        out = moe.fused(x, indices, weights, **extra)
        np.testing.assert_array_equal(out.numpy()[:tokens].astype(np.float64), by_rank)
        mine = tables[world.rank * EXPERTS // RANKS :][: moe.local_experts]
        assert moe.fused(x, indices, weights, expert_table=mine, out=out, **extra) is out
        np.testing.assert_array_equal(out.numpy()[:tokens].astype(np.float64), by_table)
        return True

    assert farwarp.run(layer, ranks=RANKS, target=target) == [True] * RANKS


def test_count_that_is_not_allowed():
    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST)
        x, indices, weights = (padded(array) for array in routing(0))
        moe.fused(world.asarray(x, "bfloat16"), indices, weights, count=np.array([MOST + 1], np.int32))
        with pytest.raises((farwarp.BadInputError, farwarp.AbortedError)) as failure:
            world.synchronize()
        world.recover()
        return failure.type

    assert farwarp.BadInputError in farwarp.run(layer, ranks=RANKS)


def test_order_of_halves():
    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST)
        x, indices, weights = routing(world.rank)
        x = world.asarray(x, "bfloat16")
        y = world.zeros((moe.recv_rows, HIDDEN), "bfloat16")
        room, out = moe.new_received(x), world.zeros(x.shape, "bfloat16")
        for call in (
            lambda: moe.combine(y),
            lambda: moe.dispatch_recv(),
            lambda: moe.dispatch_recv(out=room),
            lambda: moe.combine_send(y),
            lambda: moe.combine_recv(),
            lambda: moe.combine_recv(out=out),
        ):
            with pytest.raises(farwarp.MisuseError):
                call()
        moe.dispatch_send(x, indices, weights)
        for call in (
            lambda: moe.dispatch(x, indices, weights),
            lambda: moe.combine(y),
            lambda: moe.fused(x, indices, weights),
        ):
            with pytest.raises(farwarp.MisuseError):
                call()
        moe.combine(moe.dispatch_recv().recv_x)
        return True

    assert farwarp.run(layer, ranks=RANKS) == [True] * RANKS


def test_results_of_another_number():
    """torch.ops.farwarp.moe_dispatch returns no scales."""

    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST)
        x, indices, weights = routing(world.rank)
        room = moe.new_received(world.asarray(x, "bfloat16"))
        with pytest.raises(
            farwarp.InvalidArgumentError, match="out has 4 tensors; allowed: 5, recv_x counts offsets origins scales"
        ):
            moe.dispatch(x, indices, weights, out=room[:4])
        return True

    assert farwarp.run(layer, ranks=1) == [True]


def test_state_between_halves_is_of_the_last_call():
    """It is set before another thread can make a call."""

    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST)
        begun, ended, others = moe._call_begun, moe._call_ended, []

        def watched(change):
            def changed(*arguments):
                other = threading.Thread(target=lambda: others.append(world.exclusive().acquire(blocking=False)))
                other.start()
                other.join()
                return change(*arguments)

            return changed

        moe._call_begun, moe._call_ended = watched(begun), watched(ended)
        x, indices, weights = routing(world.rank)
        x = world.asarray(x, "bfloat16")
        moe.combine(moe.dispatch(x, indices, weights).recv_x)
        moe.dispatch_send(x, indices, weights)
        moe.combine_send(moe.dispatch_recv().recv_x)
        moe.combine_recv()
        assert others == [False] * 4
        return True

    assert farwarp.run(layer, ranks=1) == [True]


def test_recover_ends_a_call():
    """A failure between the halves: after recover() the next call is a dispatch."""

    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST)
        x, indices, weights = routing(world.rank)
        wrong = indices.copy()
        if world.rank == 0:
            wrong[1, 1] = EXPERTS
        x = world.asarray(x, "bfloat16")
        moe.dispatch_send(x, wrong, weights)
        moe.dispatch_recv()
        with pytest.raises((farwarp.BadInputError, farwarp.AbortedError)):
            world.synchronize()
        world.recover()
        received = moe.dispatch(x, indices, weights)
        out = moe.combine(experts_of(moe, world, received))
        np.testing.assert_array_equal(out.numpy().astype(np.float64), expected(world.rank))
        return True

    assert farwarp.run(layer, ranks=RANKS) == [True] * RANKS


def test_modes_that_are_not_allowed():
    def create(world):
        for options, message in (
            ({"mode": "fast"}, "mode is 'fast'; allowed: auto, words, bulk"),
            ({"segments": -1}, "segments is -1; allowed"),
            ({"send_only_blocks": -2}, "send_only_blocks is -2; allowed"),
        ):
            with pytest.raises(farwarp.InvalidArgumentError, match=message):
                farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, **options)

    farwarp.run(create, ranks=1)
