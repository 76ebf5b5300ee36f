"""Rows in e4m3 of the MoE all-to-all, against NumPy: scales that are powers of two, and rows that the caller has."""

import ml_dtypes
import numpy as np
import pytest

import farwarp
from farwarp import dtypes
from farwarp.fp8_rows import pack
from test_moe import EXPERTS, FP8, HIDDEN, MOST, RANKS, TOP_K, expert, routing

TARGETS = ("emu_sm90", "emu_gfx942")
LARGEST = {"emu_sm90": 448, "emu_gfx942": 240}  # e4m3 number
LOCAL = EXPERTS // RANKS
WIDE = 512  # of exponents, four lie together
GROUPS, SCALES = 4, 2  # of a row of WIDE numbers, of one of HIDDEN


def e4m3(target):
    return np.dtype(getattr(ml_dtypes, FP8[target]))


def wide_rows(rank):
    """Rows of magnitudes that lie far apart, a group of zeros, and one whose scale is 1 in the FNUZ kind."""
    rng = np.random.default_rng((3, rank))
    x = rng.standard_normal((len(routing(rank)[1]), WIDE)) * np.exp2(rng.integers(-30, 30, (1, WIDE)))
    x[:1, :128], x[:1, 128:256] = 0, 240
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def quantised(x, target):
    """Numbers, and the least powers of two that are not below a group's largest magnitude / the largest number."""
    groups = x.reshape(len(x), GROUPS, 128)
    largest = np.maximum(np.abs(groups).max(2), np.float32(2.0**-100)).astype(np.float64)
    scales = np.exp2(np.ceil(np.log2(largest / LARGEST[target])))
    return (groups / scales[:, :, None]).astype(np.float32).astype(e4m3(target)).reshape(x.shape), scales


def received_of(rank, of_source):
    """Of each local expert: what `of_source` gives for the tokens it gets, by source rank and token."""
    found = [[] for _ in range(LOCAL)]
    for source in range(RANKS):
        values, indices = of_source(source), routing(source)[1]
        for local in range(LOCAL):
            found[local].extend(values[token] for token in np.flatnonzero((indices == rank * LOCAL + local).any(1)))
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", ("rows", "columns", "ue8m0"))
@pytest.mark.parametrize("halves", (False, True))
def test_scales_that_are_powers_of_two(target, form, halves):
    def layer(world):
        moe = farwarp.MoeAllToAll(
            world, EXPERTS, TOP_K, WIDE, MOST, layout="masked", scales=form, round_scales=form != "ue8m0"
        )
        _, indices, weights = routing(world.rank)
        x, room = world.asarray(wide_rows(world.rank), "bfloat16"), moe.recv_rows // LOCAL
        if halves:
            moe.dispatch_send(x, indices, weights)
            received = moe.dispatch_recv()
        else:
            received = moe.dispatch(x, indices, weights)
        numbers = received.recv_x.numpy().view(e4m3(target)).reshape(LOCAL, room, WIDE)
        scales = received.scales.numpy()
        if form == "ue8m0":
            assert scales.dtype == np.uint8 and scales.shape == (LOCAL, WIDE // 512, room, 4)
            scales = np.exp2(scales.astype(np.float64) - 127).transpose(0, 2, 1, 3)
        elif form == "columns":
            assert scales.shape == (LOCAL, GROUPS, room)
            scales = scales.transpose(0, 2, 1)
        scales = scales.reshape(LOCAL, room, GROUPS)
        wanted = received_of(world.rank, lambda source: list(zip(*quantised(wide_rows(source), target))))
        assert received.counts.numpy().tolist() == [len(rows) for rows in wanted]
        y = np.zeros((LOCAL, room, WIDE))
        for local, rows in enumerate(wanted):
            for i, (row, row_scales) in enumerate(rows):
                np.testing.assert_array_equal(numbers[local, i].view(np.uint8), row.view(np.uint8))
                np.testing.assert_array_equal(scales[local, i], row_scales)
                y[local, i] = numbers[local, i].astype(np.float64) * np.repeat(scales[local, i], 128)
        out = moe.combine(world.asarray(y, "bfloat16")).numpy().astype(np.float64)
        mine, mine_scales = quantised(wide_rows(world.rank), target)
        decoded = mine.astype(np.float64) * np.repeat(mine_scales, 128, axis=1)
        sums = (weights * (indices >= 0)).sum(1, keepdims=True) * decoded
        np.testing.assert_allclose(out, sums, rtol=2.0**-7)
        return len(out)

    assert farwarp.run(layer, ranks=RANKS, target=target) == [len(routing(rank)[1]) for rank in range(RANKS)]


@pytest.mark.parametrize("form", ("rows", "columns", "ue8m0"))
def test_ranks_with_fewer_experts_than_others(form):
    """Scales have room for the most experts of a rank."""
    experts = 9

    def layer(world):
        moe = farwarp.MoeAllToAll(world, experts, 1, WIDE, 2, layout="masked", scales=form)
        x = world.asarray(np.full((2, WIDE), 1.0), "bfloat16")
        received = moe.dispatch(x, np.array([[0], [8]], np.int32), np.ones((2, 1), np.float32))
        most, room = 3, 2 * RANKS
        shapes = {"rows": (most * room, 4), "columns": (most, 4, room), "ue8m0": (most, 1, room, 4)}
        assert moe.masked_shape == (most, room) and received.scales.shape == shapes[form]
        return moe.local_experts, received.counts.numpy().tolist()

    found = farwarp.run(layer, ranks=RANKS)
    assert found == [(3, [RANKS, 0, 0]), (2, [0, 0]), (2, [0, 0]), (2, [0, RANKS])]


def fp8_rows(rank, target):
    """Small whole numbers, and scales of 1 and 2, so that every sum is exact."""
    x = routing(rank)[0]
    scales = np.exp2(np.arange(len(x) * SCALES).reshape(-1, SCALES) % 2).astype(np.float32)
    return x.astype(e4m3(target)), scales


def decoded(numbers, scales):
    return numbers.astype(np.float64) * np.repeat(scales, HIDDEN // SCALES, axis=1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", ("dispatch", "halves", "bulk"))
@pytest.mark.parametrize("dtype", ("bfloat16", "float16"))
def test_rows_that_the_caller_has_in_e4m3(target, way, dtype):
    def layer(world):
        mode = "bulk" if way == "bulk" else "auto"
        moe = farwarp.MoeRowsAllToAll(
            world, EXPERTS, TOP_K, HIDDEN, MOST, dtype=dtype, scales_per_row=SCALES, mode=mode
        )
        assert moe.row_elements == (HIDDEN + 4 * SCALES + 15) // 16 * 8
        _, indices, weights = routing(world.rank)
        packed = moe.pack_fp8(*fp8_rows(world.rank, target))
        assert packed.shape == (len(indices), moe.row_elements) and packed.dtype == dtype
        for _ in range(2):
            if way == "halves":
                _, offsets = moe.dispatch_send(packed, indices, weights)
                received = moe.dispatch_recv(int(offsets.numpy()[-1]))
            else:
                received = moe.dispatch(packed, indices, weights)
            numbers, scales = moe.unpack_fp8(received.recv_x)
            assert numbers.dtype == e4m3(target) and scales.dtype == np.float32
            y, row = np.zeros((len(numbers), HIDDEN)), 0
            for source in range(RANKS):
                sent, sent_scales = fp8_rows(source, target)
                _, sent_indices, sent_weights = routing(source)
                for token in np.flatnonzero((sent_indices // LOCAL == world.rank).any(1)):
                    np.testing.assert_array_equal(numbers[row].view(np.uint8), sent[token].view(np.uint8))
                    np.testing.assert_array_equal(scales[row], sent_scales[token])
                    for index, weight in zip(sent_indices[token], sent_weights[token]):
                        if index // LOCAL == world.rank:
                            y[row] += weight * expert(index, decoded(numbers[row : row + 1], scales[row : row + 1])[0])
                    row += 1
            assert received.offsets.numpy()[-1] == row
            out = moe.combine(world.asarray(y, dtype)).numpy().astype(np.float64)
            factors = np.where(indices >= 0, weights * expert(indices, np.ones(indices.shape)), 0)
            exact = factors.sum(1, keepdims=True) * decoded(*fp8_rows(world.rank, target))
            np.testing.assert_array_equal(out, exact)
        return True

    assert farwarp.run(layer, ranks=RANKS, target=target) == [True] * RANKS


@pytest.mark.parametrize("target", TARGETS)
def test_any_number_arrives_as_it_was(target):
    """All bytes, and rows of the lowest number: all ones in the FNUZ kind. A NaN stays one."""

    def layer(world):
        moe = farwarp.MoeRowsAllToAll(world, RANKS, 1, 256, 3, scales_per_row=1)
        bits = np.stack([np.arange(256), np.full(256, 0xFF), np.full(256, 0x80)]).astype(np.uint8)
        scales = np.array([[np.inf], [-(2.0**-149)], [0]], np.float32)
        packed = moe.pack_fp8(bits.view(e4m3(target)), scales)
        to = np.full((3, 1), (world.rank + 1) % RANKS, np.int32)
        received = moe.dispatch(packed, to, np.ones((3, 1), np.float32))
        numbers, found = moe.unpack_fp8(received.recv_x)
        np.testing.assert_array_equal(numbers[:3].astype(np.float32), bits.view(e4m3(target)).astype(np.float32))
        np.testing.assert_array_equal(found[:3].view(np.uint32), scales.view(np.uint32))
        moe.combine(world.zeros((moe.recv_rows, 256), "bfloat16"))
        return True

    assert farwarp.run(layer, ranks=RANKS, target=target) == [True] * RANKS


def test_torch_rows():
    torch = pytest.importorskip("torch")

    def body(world):
        moe = farwarp.MoeRowsAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, scales_per_row=SCALES)
        numbers, scales = fp8_rows(0, "emu_sm90")
        as_torch = torch.from_numpy(numbers.view(np.uint8)).view(torch.float8_e4m3fn), torch.from_numpy(scales)
        packed = moe.pack_fp8(*as_torch)
        assert packed.dtype == torch.bfloat16
        np.testing.assert_array_equal(
            packed.view(torch.uint8).numpy(), moe.pack_fp8(numbers, scales).view(np.uint8).reshape(len(packed), -1)
        )
        _, indices, weights = routing(0)
        received = moe.dispatch(packed, torch.from_numpy(indices), torch.from_numpy(weights))
        found, found_scales = moe.unpack_fp8(
            torch.from_numpy(received.recv_x.numpy().view(np.int16)).view(torch.bfloat16)
        )
        assert found.dtype == torch.float8_e4m3fn and torch.equal(found_scales[: len(scales)], as_torch[1])
        assert torch.equal(found[: len(numbers)].view(torch.uint8), as_torch[0].view(torch.uint8))

    farwarp.run(body, ranks=1)


@pytest.mark.parametrize(
    "options, message",
    (
        ({"layout": "rows"}, "layout is 'rows'; allowed: expert_major, masked"),
        ({"layout": True}, "layout is True; allowed: expert_major, masked"),
        ({"scales": "float32"}, "scales is 'float32'; allowed: None, rows, columns, ue8m0"),
        ({"scales": True}, "scales is True; allowed: None, rows, columns, ue8m0"),
        ({"scales": "rows", "dtype": "float16"}, "dtype is float16; allowed: with scales bfloat16"),
        ({"scales": "columns"}, "scales is 'columns'; allowed: None, rows, or with layout masked the others"),
        ({"scales": "ue8m0"}, "scales is 'ue8m0'; allowed: None, rows, or with layout masked the others"),
        (
            {"scales": "ue8m0", "layout": "masked"},
            "hidden is 128; allowed: with scales ue8m0 a multiple of 512",
        ),
        ({"round_scales": True}, "round_scales is True; allowed: False, or with scales"),
        ({"round_scales": 2, "scales": "rows"}, "round_scales is 2; allowed: True, False"),
    ),
)
def test_options_that_are_refused(options, message):
    def body(world):
        with pytest.raises(farwarp.InvalidArgumentError, match=f"^{message}$"):
            farwarp.MoeAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, **options)
        assert not world.operators

    farwarp.run(body, ranks=1)


@pytest.mark.parametrize("scales, allowed", ((129, "0 to 128"), (-1, "0 to 128"), (1.5, "a whole number")))
def test_scales_per_row_that_are_refused(scales, allowed):
    def body(world):
        with pytest.raises(farwarp.InvalidArgumentError, match=f"^scales_per_row is {scales}; allowed: {allowed}$"):
            farwarp.MoeRowsAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, scales_per_row=scales)
        assert not world.operators

    farwarp.run(body, ranks=1)


def test_packing_needs_ml_dtypes(monkeypatch):
    monkeypatch.setattr(dtypes, "ml_dtypes", None)
    with pytest.raises(farwarp.InvalidArgumentError, match="^numbers are NumPy arrays; allowed: with ml_dtypes"):
        pack(np.zeros((1, 128), np.uint8), np.zeros((1, 1), np.float32))


def test_words_are_refused_where_all_ones_is_a_number():
    def body(world):
        message = "^mode is 'words'; allowed: auto, bulk, with scales_per_row on emu_gfx942"
        with pytest.raises(farwarp.InvalidArgumentError, match=message):
            farwarp.MoeRowsAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, scales_per_row=1, mode="words")

    farwarp.run(body, ranks=1, target="emu_gfx942")


def test_tensors_that_are_refused():
    def body(world):
        moe = farwarp.MoeRowsAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST, scales_per_row=SCALES)
        numbers, scales = fp8_rows(0, "emu_sm90")
        for tensors, message in (
            (
                (numbers.astype(np.float32), scales),
                r"numbers is float32 of shape \(8, 128\); allowed: float8_e4m3fn of",
            ),
            ((numbers.view("V1").view(ml_dtypes.float8_e4m3fnuz), scales), "numbers is float8_e4m3fnuz of shape"),
            ((numbers[:, :64], scales), r"numbers is .*\(8, 64\); allowed: .* of shape \(any number, 128\)"),
            ((numbers, scales[:, :1]), r"scales is float32 of shape \(8, 1\); allowed: float32 of shape \(8, 2\)"),
            ((numbers, scales[:3]), r"scales is float32 of shape \(3, 2\); allowed: float32 of shape \(8, 2\)"),
            ((numbers, scales.astype(np.float64)), "scales is float64 of shape"),
            ((numbers, world.asarray(scales)), "numbers is a ndarray, scales a Array; allowed: numpy.ndarray or torch"),
        ):
            with pytest.raises(farwarp.InvalidArgumentError, match=f"^{message}"):
                moe.pack_fp8(*tensors)
        with pytest.raises(
            farwarp.InvalidArgumentError, match=r"^rows is bfloat16 of shape \(8, 128\); allowed: bfloat16"
        ):
            moe.unpack_fp8(world.zeros((8, HIDDEN), "bfloat16"))
        _, indices, weights = routing(0)
        with pytest.raises(farwarp.InvalidArgumentError, match=r"^x has shape \[8, 128\]; allowed: \[8, 72\]"):
            moe.dispatch(world.zeros((8, HIDDEN), "bfloat16"), indices, weights)
        plain = farwarp.MoeRowsAllToAll(world, EXPERTS, TOP_K, HIDDEN, MOST)
        with pytest.raises(
            farwarp.MisuseError, match=r"^pack_fp8\(\) of a MoeRowsAllToAll with scales_per_row 0; allowed"
        ):
            plain.pack_fp8(numbers, scales)
        with pytest.raises(
            farwarp.MisuseError, match=r"^unpack_fp8\(\) of a MoeRowsAllToAll with scales_per_row 0; allowed"
        ):
            plain.unpack_fp8(scales)

    farwarp.run(body, ranks=1)
