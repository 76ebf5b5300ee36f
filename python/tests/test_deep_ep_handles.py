"""farwarp.deep_ep on the emulator: low-latency handles, forms of scales, and operators that are given back."""

import ml_dtypes
import numpy as np
import pytest

import farwarp
from deep_ep_inputs import EXPERTS, HIDDEN, LOCAL, MOST, RANKS, TARGETS, inputs
from deep_ep_low_latency import ROOM, check_received, expected, experts, on_ranks, values
from farwarp import deep_ep


@pytest.mark.parametrize("target", TARGETS)
def test_handles_are_combined_in_any_order_and_again(target):
    """DeepEP's own tests dispatch twice and combine once, then combine a handle twice."""

    def layers(buffer, rank):
        calls = []
        for call in range(5):
            x, indices, weights = inputs(rank, call)
            recv_x, count, handle, _, hook = buffer.low_latency_dispatch(
                x, indices, MOST, EXPERTS, use_fp8=False, return_recv_hook=call % 2 == 1
            )
            if call == 3:
                with pytest.raises(farwarp.MisuseError, match="its hook has not been called"):
                    buffer.low_latency_combine(x, indices, weights, handle)
                with pytest.raises(farwarp.MisuseError, match="the call has not been received"):
                    handle[0]
            if hook is not None:
                hook()
                with pytest.raises(farwarp.MisuseError, match="it has been called; allowed: once"):
                    hook()
            calls.append((call, indices, weights, handle, experts(rank, recv_x, count)))
        for turn, hooks in ((4, False), (0, False), (0, True), (3, True), (1, False), (4, True), (4, False)):
            call, indices, weights, handle, y = calls[turn]
            out, _, hook = buffer.low_latency_combine(y, indices, weights, handle, return_recv_hook=hooks)
            if hook is not None:
                hook()
            np.testing.assert_array_equal(out.astype(np.float32), expected(rank, call))
        return True

    assert on_ranks(layers, target) == [True] * RANKS


def test_the_third_dispatch_runs_the_oldest_hook():
    def layers(buffer, rank):
        calls = []
        for call in range(3):
            x, indices, weights = inputs(rank, call)
            calls.append(
                (
                    indices,
                    weights,
                    *buffer.low_latency_dispatch(x, indices, MOST, EXPERTS, use_fp8=False, return_recv_hook=True),
                )
            )
        for call, (indices, weights, recv_x, count, handle, _, hook) in enumerate(calls):
            hook()
            check_received(rank, recv_x, count, call)
            out, _, _ = buffer.low_latency_combine(experts(rank, recv_x, count), indices, weights, handle)
            np.testing.assert_array_equal(out.astype(np.float32), expected(rank, call))
        return True

    assert on_ranks(layers) == [True] * RANKS


@pytest.mark.parametrize("target", TARGETS)
def test_the_handle_says_where_rows_come_from(target):
    def layer(buffer, rank):
        x, indices, _ = inputs(rank)
        _, count, handle, _, _ = buffer.low_latency_dispatch(x, indices, MOST, EXPERTS, use_fp8=False)
        src_info, layout_range, most, hidden, experts = handle
        assert (most, hidden, experts, len(handle), handle[-1]) == (MOST, HIDDEN, EXPERTS, 5, EXPERTS)
        assert src_info.shape == (LOCAL, ROOM) and src_info.dtype == np.int32
        assert layout_range.shape == (LOCAL, RANKS) and layout_range.dtype == np.int64
        for local in range(LOCAL):
            begin = 0
            for source in range(RANKS):
                tokens = np.nonzero((inputs(source)[1] == rank * LOCAL + local).any(1))[0]
                assert layout_range[local, source] == begin << 32 | len(tokens)
                np.testing.assert_array_equal(src_info[local, begin : begin + len(tokens)], tokens)
                begin += len(tokens)
            assert begin == count[local]
        return True

    assert on_ranks(layer, target) == [True] * RANKS


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("exponents", [False, True])
def test_scales_that_are_powers_of_two(target, exponents):
    """The smallest power of two that is not less than the largest magnitude / the largest e4m3 number."""
    hidden, most = 512, 448 if target == "emu_sm90" else 240
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((RANKS, 3, hidden)) * np.exp2(rng.integers(-30, 30, (RANKS, 3, 1)))).astype(
        ml_dtypes.bfloat16
    )
    x[0, 0], x[1, 1, :128] = 0, most  # least scale, and one that is exactly 1

    def layer(buffer, rank):
        indices = np.array([[0, 7, -1]] * 3)
        sums = np.arange(LOCAL, dtype=np.int32)
        (numbers, scales), count, _, _, _ = buffer.low_latency_dispatch(
            x[rank], indices, MOST, EXPERTS, sums, round_scale=True, use_ue8m0=exponents
        )
        np.testing.assert_array_equal(sums, np.arange(LOCAL) + count)
        if rank not in (0, RANKS - 1):
            return True
        local = 0 if rank == 0 else LOCAL - 1
        assert scales.shape == (LOCAL, ROOM, hidden // (512 if exponents else 128)) and scales.dtype == (
            np.int32 if exponents else np.float32
        )
        found = scales[local, : 3 * RANKS]
        if exponents:
            found = (np.ascontiguousarray(found).view(np.uint8).astype(np.uint32) << 23).view(np.float32)
        largest = np.maximum(np.abs(x.astype(np.float32)).reshape(3 * RANKS, 4, 128).max(2), np.float32(2.0**-100))
        np.testing.assert_array_equal(found, np.exp2(np.ceil(np.log2(largest / np.float64(most)))))
        decoded = numbers[local, : 3 * RANKS].astype(np.float32) * np.repeat(found, 128, axis=1)
        np.testing.assert_allclose(
            decoded, x.astype(np.float32).reshape(3 * RANKS, hidden), rtol=2.0**-4, atol=2.0**-90
        )
        return True

    assert on_ranks(layer, target) == [True] * RANKS


def test_shapes_are_given_back_when_the_heap_is_full():
    """A Buffer of the hinted size serves any sequence of calls that the hint covers."""
    room = deep_ep.Buffer.get_low_latency_rdma_size_hint(MOST, HIDDEN, RANKS, EXPERTS)

    def layers(world):
        buffer = deep_ep.Buffer(world, 0, room, low_latency_mode=True, explicitly_destroy=True)
        handles = []
        for call in range(24):
            x, indices, weights = inputs(world.rank, call)
            x, indices, weights = x[:3], indices[:3], weights[:3]
            most = MOST - call % 5
            recv_x, _, handle, _, _ = buffer.low_latency_dispatch(x, indices, most, EXPERTS, use_fp8=call % 3 == 0)
            handles.append((values(recv_x), indices, weights, handle, x))
            for recv_x, indices, weights, handle, x in handles[-7:]:
                y = np.rint(recv_x).astype(ml_dtypes.bfloat16)
                out, _, _ = buffer.low_latency_combine(y, indices, weights, handle)
                sums = np.where(indices >= 0, weights, 0).sum(1, keepdims=True)
                np.testing.assert_array_equal(
                    out.astype(np.float32), (sums * x.astype(np.float32)).astype(ml_dtypes.bfloat16).astype(np.float32)
                )
        buffer.destroy()
        return True

    assert farwarp.run(layers, ranks=RANKS, target="emu_sm90", heap_bytes=room) == [True] * RANKS
