"""Options of the MoE all-to-all: rows by tokens, weights at combine, scales by column. Every sum is exact."""

import weakref

import ml_dtypes  # noqa: F401  NumPy then knows its types
import numpy as np
import pytest

import farwarp
from test_moe import EXPERTS, FP8, HIDDEN, MOST, RANKS, TOP_K, expected, expert, received_by, routing

TARGETS = ("emu_sm90", "emu_gfx942")
LOCAL = EXPERTS // RANKS


def rows_of(rank):
    """What comes to a rank once, by source rank and token: (row, local experts, weights)."""
    rows = []
    for source in range(RANKS):
        x, indices, weights = routing(source)
        owned = indices // LOCAL == rank
        for token in np.flatnonzero(owned.any(1)):
            local = np.where(owned[token], indices[token] - rank * LOCAL, -1)
            rows.append((source, x[token], local, np.where(owned[token], weights[token], 0)))
    return rows


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("index_type", ("int32", "int64"))
@pytest.mark.parametrize("way", ("dispatch", "halves", "halves of the worst case"))
def test_the_layout_of_rows(target, index_type, way):
    def layer(world):
        moe = farwarp.MoeRowsAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, index_type=index_type)
        x, indices, weights = routing(world.rank, index_type)
        x = world.asarray(x, "bfloat16")
        wanted = rows_of(world.rank)
        for _ in range(2):
            if way == "dispatch":
                received = moe.dispatch(x, indices, weights)
            else:
                counts, offsets = moe.dispatch_send(x, indices, weights)
                rows = int(offsets.numpy()[-1])
                received = moe.dispatch_recv(rows if way == "halves" else None)
                assert received.counts is counts and received.offsets is offsets
                assert received.recv_x.shape[0] == (rows if way == "halves" else moe.recv_rows)
            sources = np.array([source for source, *_ in wanted], int)
            assert received.offsets.numpy().tolist() == [int((sources < rank).sum()) for rank in range(RANKS + 1)]
            experts = [local for _, _, locals_, _ in wanted for local in locals_]
            assert received.counts.numpy().tolist() == [experts.count(local) for local in range(LOCAL)]
            assert received.recv_indices.dtype == index_type
            rows, found, factors = (tensor.numpy() for tensor in received[:3])
            y = np.zeros(rows.shape, np.float32)
            for i, (_, row, locals_, row_weights) in enumerate(wanted):
                np.testing.assert_array_equal(rows[i].astype(np.float32), row)
                np.testing.assert_array_equal(found[i], locals_)
                np.testing.assert_array_equal(factors[i][locals_ >= 0], row_weights[locals_ >= 0])
                for local, weight in zip(locals_, row_weights):
                    if local >= 0:
                        y[i] += weight * expert(world.rank * LOCAL + local, row)
            assert (found[len(wanted) :] == -1).all()
            out = moe.combine(world.asarray(y, "bfloat16")).numpy()
            np.testing.assert_array_equal(out.astype(np.float64), expected(world.rank))
        return True

    assert farwarp.run(layer, ranks=RANKS, target=target) == [True] * RANKS


def outputs(world, moe, received):
    """The experts' outputs in the rows of a dispatch."""
    y = np.zeros((moe.recv_rows, HIDDEN), np.float32)
    offsets = received.offsets.numpy()
    for local, (number, wanted) in enumerate(received_by(world.rank).items()):
        for i, (_, row) in enumerate(wanted):
            y[offsets[local] + i] = expert(number, row)
    return world.asarray(y, "bfloat16")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layout", ("expert_major", "masked"))
@pytest.mark.parametrize("halves", (False, True))
def test_weights_at_combine(target, layout, halves):
    def layer(world):
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, layout=layout, weights_at_combine=True)
        x, indices, weights = routing(world.rank)
        x = world.asarray(x, "bfloat16")
        for _ in range(2):
            if halves:
                moe.dispatch_send(x, indices)
                y = outputs(world, moe, moe.dispatch_recv())
                moe.combine_send(y, weights)
                out = moe.combine_recv()
            else:
                y = outputs(world, moe, moe.dispatch(x, indices))
                with pytest.raises(
                    farwarp.InvalidArgumentError, match="^weights is None; allowed: a tensor, with weights_at_combine$"
                ):
                    moe.combine(y)
                out = moe.combine(y, weights)
            np.testing.assert_array_equal(out.numpy().astype(np.float64), expected(world.rank))
        return True

    assert farwarp.run(layer, ranks=RANKS, target=target) == [True] * RANKS


@pytest.mark.parametrize("target", TARGETS)
def test_scales_by_column(target):
    """The same rows and scales as by row."""

    def layer(world):
        found = []
        for form in ("rows", "columns"):
            moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, layout="masked", scales=form)
            x, indices, weights = routing(world.rank)
            received = moe.dispatch(world.asarray(x, "bfloat16"), indices, weights)
            scales = received.scales.numpy()
            if form == "columns":
                assert scales.shape == (LOCAL, HIDDEN // 128, moe.recv_rows // LOCAL)
                scales = scales.transpose(0, 2, 1).reshape(moe.recv_rows, -1)
            numbers = received.recv_x.numpy().view(FP8[target]).astype(np.float32) * np.repeat(scales, 128, axis=1)
            counts, offsets = received.counts.numpy(), received.offsets.numpy()
            found.append([numbers[offsets[i] : offsets[i] + counts[i]] for i in range(LOCAL)])
            moe.combine(world.zeros((moe.recv_rows, HIDDEN), "bfloat16"))
        for by_row, by_column in zip(*found):
            np.testing.assert_array_equal(by_row, by_column)
        return sum(map(len, found[0]))

    assert sum(farwarp.run(layer, ranks=RANKS, target=target)) == sum(
        (routing(rank)[1] >= 0).sum() for rank in range(RANKS)
    )


def test_what_is_refused():
    def body(world):
        shape = EXPERTS, TOP_K, HIDDEN, MOST
        x, indices, weights = routing(0)
        x = world.asarray(x, "bfloat16")
        plain, rows = farwarp.MoeAllToAll(world, *shape), farwarp.MoeRowsAllToAll(world, *shape)
        late = farwarp.MoeAllToAll(world, *shape, weights_at_combine=True)
        for receive in (plain.dispatch_recv, rows.dispatch_recv):
            with pytest.raises(farwarp.MisuseError, match=r"^dispatch_recv\(\) has no call; allowed: after"):
                receive()
        for call in (
            lambda: plain.dispatch(x, indices),
            lambda: late.dispatch(x, indices, weights),
            lambda: plain.combine(world.zeros((plain.recv_rows, HIDDEN), "bfloat16"), weights),
        ):
            with pytest.raises(farwarp.InvalidArgumentError, match="^weights is"):
                call()

    farwarp.run(body, ranks=1)


def test_options_are_kept():
    def body(world):
        options = {"layout": "masked", "scales": "rows", "row_alignment": 8, "mode": "words", "segments": 1}
        moe = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, **options)
        assert {name: getattr(moe, name) for name in options} == options
        assert moe.masked_shape == (EXPERTS, moe.recv_rows // EXPERTS) and moe.round_scales is False
        fnuz = farwarp.MoeRowsAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, scales_per_row=1)
        assert (fnuz.mode, fnuz.scales_per_row) == ("bulk", 1)
        exponents = farwarp.MoeAllToAll(world, EXPERTS, TOP_K, 512, MOST, layout="masked", scales="ue8m0")
        assert exponents.round_scales is True

    farwarp.run(body, ranks=1, target="emu_gfx942")


@pytest.mark.parametrize("kind", (farwarp.MoeAllToAll, farwarp.MoeRowsAllToAll))
def test_what_was_received_does_not_hold_x(kind):
    def body(world):
        moe = kind(world, EXPERTS, TOP_K, HIDDEN, MOST)
        x, indices, weights = routing(0)
        x = world.asarray(x, "bfloat16")
        dropped = weakref.ref(x)
        moe.dispatch_send(x, indices, weights)
        del x
        received = moe.dispatch_recv()
        assert dropped() is None
        with pytest.raises(farwarp.MisuseError):  # as before combine_send()
            moe.combine_recv()
        moe.combine(world.zeros(received.recv_x.shape, "bfloat16"))

    farwarp.run(body, ranks=1)


def test_torch_ops_refuse_them():
    pytest.importorskip("torch")
    from farwarp import torch_ops

    def body(world):
        for operator, message in (
            (
                farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, weights_at_combine=True),
                "operator is a MoeAllToAll with weights_at_combine; allowed: one without",
            ),
            (
                farwarp.MoeRowsAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST),
                "operator is a MoeRowsAllToAll; allowed: Gemm",
            ),
        ):
            with pytest.raises(farwarp.InvalidArgumentError, match=f"^{message}"):
                torch_ops.register(operator)

    farwarp.run(body, ranks=1)
