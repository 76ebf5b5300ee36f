"""farwarp.deep_ep on the emulator: low-latency calls against NumPy, and what is refused.

On GPUs: tools/deep_ep_gpus.py.
"""

import copy
import os
import pathlib
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import farwarp
from deep_ep_inputs import EXPERTS, HIDDEN, LOCAL, MOST, RANKS, TARGETS, TOP_K, inputs
from deep_ep_low_latency import ROOM, check_received, expected, experts, factor, on_ranks
from farwarp import deep_ep


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("fp8", (False, True), ids=("bf16", "fp8"))
@pytest.mark.parametrize("hooks", (False, True), ids=("whole", "hooks"))
def test_low_latency(target, fp8, hooks):
    def layer(buffer, rank):
        for call, index_type in enumerate(("int64", "int32", "int64")):
            x, indices, weights = inputs(rank, call, index_type)
            stats = np.ones(LOCAL, np.int32)
            recv_x, count, handle, event, hook = buffer.low_latency_dispatch(
                x,
                indices,
                MOST,
                EXPERTS,
                cumulative_local_expert_recv_stats=stats,
                use_fp8=fp8,
                return_recv_hook=hooks,
                async_finish=not hooks,
            )
            assert (hook is not None) == hooks
            hook() if hooks else event.current_stream_wait()
            check_received(rank, recv_x, count, call)
            np.testing.assert_array_equal(stats, count + 1)
            if fp8:  # column-major: the scales of consecutive rows are neighbours
                assert recv_x[1].strides == (ROOM * 2 * 4, 4, ROOM * 4)
                assert recv_x[0].dtype.name == ("float8_e4m3fn" if target == "emu_sm90" else "float8_e4m3fnuz")
            given = np.full(x.shape, 99, ml_dtypes.bfloat16) if call == 1 else None
            out, event, hook = buffer.low_latency_combine(
                experts(rank, recv_x, count), indices, weights, handle, return_recv_hook=hooks, out=given
            )
            if hooks:
                hook()
            assert given is None or out is given
            np.testing.assert_array_equal(out.astype(np.float32), expected(rank, call))
        return True

    assert on_ranks(layer, target) == [True] * RANKS


@pytest.mark.parametrize("target", TARGETS)
def test_two_calls_in_flight(target):
    """Their hooks and combines in any order, as long as all ranks have the same."""

    def layers(buffer, rank):
        for first in (0, 2):
            sent = []
            for call in (first, first + 1):
                x, indices, weights = inputs(rank, call)
                got = buffer.low_latency_dispatch(x, indices, MOST, EXPERTS, use_fp8=False, return_recv_hook=True)
                sent.append((call, indices, weights, *got))
            summed = []
            for call, indices, weights, recv_x, count, handle, _, hook in sent if first else reversed(sent):
                hook()
                check_received(rank, recv_x, count, call)
                y = experts(rank, recv_x, count)
                summed.append((call, *buffer.low_latency_combine(y, indices, weights, handle, return_recv_hook=True)))
            for call, out, _, hook in summed:
                hook()
                np.testing.assert_array_equal(out.astype(np.float32), expected(rank, call))
        return True

    assert on_ranks(layers, target) == [True] * RANKS


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("fp8", (False, True), ids=("bf16", "fp8"))
def test_one_expert_in_several_slots(target, fp8):
    """It gets a row once, so the room is that of the worst case, and its output counts for each slot."""

    def layer(buffer, rank):
        x = np.full((MOST, HIDDEN), rank + 1, ml_dtypes.bfloat16)
        indices, weights = np.full((MOST, TOP_K), 5), np.tile(np.array([[0.5, 1, 2]], np.float32), (MOST, 1))
        recv_x, count, handle, _, _ = buffer.low_latency_dispatch(x, indices, MOST, EXPERTS, use_fp8=fp8)
        assert count.tolist() == [ROOM if rank * LOCAL + local == 5 else 0 for local in range(LOCAL)]
        out, _, _ = buffer.low_latency_combine(experts(rank, recv_x, count), indices, weights, handle)
        np.testing.assert_array_equal(out.astype(np.float32), x.astype(np.float32) * 3.5 * factor(5))
        return True

    assert on_ranks(layer, target) == [True] * RANKS


def test_zero_copy():
    def layer(buffer, rank):
        for call in range(3):
            x, indices, weights = inputs(rank, call)
            recv_x, count, handle, _, _ = buffer.low_latency_dispatch(x, indices, MOST, EXPERTS, use_fp8=False)
            y = experts(rank, recv_x, count)
            if call == 0:
                with pytest.raises(farwarp.MisuseError, match="zero_copy is True; allowed: after get_next_low_latency"):
                    buffer.low_latency_combine(y, indices, weights, handle, zero_copy=True)
            buffer.get_next_low_latency_combine_buffer(handle)[:, :, :] = y
            out, _, _ = buffer.low_latency_combine(np.full_like(y, 7), indices, weights, handle, zero_copy=True)
            np.testing.assert_array_equal(out.astype(np.float32), expected(rank, call))
        return True

    assert on_ranks(layer) == [True] * RANKS


def test_the_size_hint_is_enough():
    hint = deep_ep.Buffer.get_low_latency_rdma_size_hint(MOST, HIDDEN, RANKS, EXPERTS)
    assert deep_ep.Buffer.get_low_latency_rdma_size_hint(2 * MOST, HIDDEN, RANKS, EXPERTS) > hint

    def layer(buffer, rank):
        x, indices, weights = inputs(rank)
        for fp8 in (False, True, False):
            recv_x, count, handle, _, _ = buffer.low_latency_dispatch(x, indices, MOST, EXPERTS, use_fp8=fp8)
            buffer.clean_low_latency_buffer(MOST, HIDDEN, EXPERTS)
            out, _, _ = buffer.low_latency_combine(experts(rank, recv_x, count), indices, weights, handle)
            np.testing.assert_array_equal(out.astype(np.float32), expected(rank))
        buffer.destroy()
        return True

    assert on_ranks(layer, heap_bytes=hint) == [True] * RANKS


def test_refused_by_name():
    def refused(buffer, rank):
        x, indices, weights = inputs(0)
        rows = (x, indices, MOST, EXPERTS)

        def dispatch_refuses(error, message, *given, **options):
            with pytest.raises(error, match=message):
                buffer.low_latency_dispatch(*(given or rows), **options)

        for option, value in {
            "use_per_tensor_quantization": True,
            "static_scale": weights,
            "dispatch_wait_recv_cost_stats": weights,
        }.items():
            dispatch_refuses(farwarp.UnavailableError, f"low_latency_dispatch: {option} is", **{option: value})
        wrong = farwarp.InvalidArgumentError
        dispatch_refuses(
            wrong, "round_scale is True, use_ue8m0 False, use_fp8 False; allowed", use_fp8=False, round_scale=True
        )
        dispatch_refuses(wrong, "round_scale is False, use_ue8m0 True, use_fp8 True; allowed", use_ue8m0=True)
        dispatch_refuses(
            wrong, "x has 256 columns; allowed: with use_ue8m0 a multiple of 512", round_scale=True, use_ue8m0=True
        )
        both = {"async_finish": True, "return_recv_hook": True}
        dispatch_refuses(farwarp.InvalidArgumentError, "async_finish and return_recv_hook are True", **both)
        dispatch_refuses(
            farwarp.InvalidArgumentError, r"topk_idx is int64 of shape \(7, 3\); allowed", x, indices[:7], MOST, EXPERTS
        )
        dispatch_refuses(farwarp.InvalidArgumentError, "topk_idx is float32", x, weights, MOST, EXPERTS)
        dispatch_refuses(
            farwarp.InvalidArgumentError, "num_experts is 9; allowed: a multiple of the ranks, 4", x, indices, MOST, 9
        )
        dispatch_refuses(farwarp.InvalidArgumentError, r"x has shape \[8, 256\]", x, indices, MOST - 1, EXPERTS)
        recv_x, count, handle, _, _ = buffer.low_latency_dispatch(*rows)
        y = experts(0, recv_x, count)

        def combine_refuses(error, message, *given, **options):
            with pytest.raises(error, match=message):
                buffer.low_latency_combine(*(given or (y, indices, weights, handle)), **options)

        combine_refuses(
            farwarp.UnavailableError, "combine_wait_recv_cost_stats is", combine_wait_recv_cost_stats=weights
        )
        combine_refuses(farwarp.InvalidArgumentError, "handle is 5; allowed", y, indices, weights, 5)
        combine_refuses(farwarp.InvalidArgumentError, "topk_idx has shape", y, indices[:2], weights, handle)
        combine_refuses(farwarp.InvalidArgumentError, "weights has shape", y, indices, weights[:2], handle)
        combine_refuses(farwarp.InvalidArgumentError, r"\[2, 32, 128\]", y[:, :, :128].copy(), indices, weights, handle)
        combine_refuses(farwarp.InvalidArgumentError, "out is float32", out=np.zeros(x.shape, np.float32))
        buffer.low_latency_combine(y, indices, weights, handle)  # what was refused has changed nothing
        return True

    assert on_ranks(refused) == [True] * RANKS
    with pytest.raises(
        farwarp.UnavailableError,
        match="Buffer: enable_shrink is True, which farwarp.deep_ep has not; allowed: the default",
    ):
        deep_ep.Buffer(object(), enable_shrink=True)
    with pytest.raises(farwarp.UnavailableError, match="allow_nvlink_for_low_latency_mode is False"):
        deep_ep.Buffer(object(), allow_nvlink_for_low_latency_mode=False)
    with pytest.raises(farwarp.InvalidArgumentError, match="group is None"):
        deep_ep.Buffer()
    with pytest.raises(farwarp.InvalidArgumentError, match="new_num_sms is 3"):
        deep_ep.Buffer.set_num_sms(3)


def test_a_rank_whose_call_is_refused_makes_it_again():
    def layers(buffer, rank):
        for call in range(3):
            x, indices, weights = inputs(rank, call)
            if rank == call:
                with pytest.raises(farwarp.InvalidArgumentError, match="topk_idx is float32"):
                    buffer.low_latency_dispatch(x, weights, MOST, EXPERTS, use_fp8=False)
                with pytest.raises(farwarp.InvalidArgumentError, match="x has shape"):
                    wrong = np.zeros((MOST + 1, HIDDEN), ml_dtypes.bfloat16), np.zeros((MOST + 1, TOP_K), np.int64)
                    buffer.low_latency_dispatch(*wrong, MOST, EXPERTS, use_fp8=False)
            recv_x, count, handle, _, _ = buffer.low_latency_dispatch(x, indices, MOST, EXPERTS, use_fp8=False)
            check_received(rank, recv_x, count, call)
            out, _, _ = buffer.low_latency_combine(experts(rank, recv_x, count), indices, weights, handle)
            np.testing.assert_array_equal(out.astype(np.float32), expected(rank, call))
        return True

    assert on_ranks(layers) == [True] * RANKS


def test_a_buffer_is_not_copied():
    def copies(buffer, _rank):
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(farwarp.MisuseError, match="a Buffer is (copied|pickled); allowed"):
                make(buffer)
        return True

    assert on_ranks(copies) == [True] * RANKS


def test_modes_and_destruction():
    def body(world):
        normal = deep_ep.Buffer(world)
        x, indices, _ = inputs(world.rank)
        with pytest.raises(farwarp.MisuseError, match="low_latency_mode of this Buffer is False"):
            normal.low_latency_dispatch(x, indices, MOST, EXPERTS)
        with pytest.raises(farwarp.MisuseError, match="explicitly_destroy is False"):
            normal.destroy()
        with pytest.raises(AssertionError):
            deep_ep.EventOverlap().current_stream_wait()
        with deep_ep.Buffer.capture() as event:
            event.current_stream_wait()
        return True

    assert farwarp.run(body, ranks=RANKS) == [True] * RANKS


def test_after_recovery():
    def body(world):
        buffer = deep_ep.Buffer(world, low_latency_mode=True)
        x, indices, weights = inputs(0)
        if world.rank == 2:
            indices[3, 2] = EXPERTS
        with pytest.raises((farwarp.BadInputError, farwarp.AbortedError)):
            buffer.low_latency_dispatch(x, indices, MOST, EXPERTS, use_fp8=False)
        world.recover()
        x, indices, weights = inputs(world.rank)
        recv_x, count, handle, _, _ = buffer.low_latency_dispatch(x, indices, MOST, EXPERTS, use_fp8=False)
        check_received(world.rank, recv_x, count)
        out, _, _ = buffer.low_latency_combine(experts(world.rank, recv_x, count), indices, weights, handle)
        np.testing.assert_array_equal(out.astype(np.float32), expected(world.rank))
        return True

    assert farwarp.run(body, ranks=RANKS) == [True] * RANKS


@pytest.mark.parametrize("fp8", (False, True), ids=("bf16", "fp8"))
def test_torch_tensors(fp8):
    torch = pytest.importorskip("torch")

    def layer(buffer, rank):
        x, indices, weights = inputs(rank)
        x = torch.from_numpy(x.astype(np.float32)).bfloat16()
        indices, weights = torch.from_numpy(indices), torch.from_numpy(weights)
        recv_x, count, handle, _, hook = buffer.low_latency_dispatch(
            x, indices, MOST, EXPERTS, use_fp8=fp8, return_recv_hook=True
        )
        hook()
        as_numpy = tuple(t.float().numpy() for t in recv_x) if fp8 else recv_x.float().numpy()
        check_received(rank, as_numpy, count.numpy())
        if fp8:
            assert recv_x[0].dtype == torch.float8_e4m3fn and recv_x[1].stride() == (ROOM * 2, 1, ROOM)
        y = torch.from_numpy(experts(rank, as_numpy, count.numpy()).astype(np.float32)).bfloat16()
        out = torch.empty_like(x)
        combined, _, _ = buffer.low_latency_combine(y, indices, weights, handle, out=out)
        assert combined is out
        np.testing.assert_array_equal(out.float().numpy(), expected(rank))
        return True

    assert on_ranks(layer) == [True] * RANKS


IMPORTS = (
    "import deep_ep, farwarp.deep_ep; from deep_ep import Buffer, Config, EventOverlap; "
    "print(Buffer is farwarp.deep_ep.Buffer)"
)


@pytest.mark.parametrize("way", ("install", "path"))
def test_top_level_module(way):
    """Only where it is asked for."""

    def run(code, path=None):
        environment = {**os.environ}
        if path is not None:
            environment["PYTHONPATH"] = f"{path}:{environment.get('PYTHONPATH', '')}"
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=100
        )

    if way == "install":
        assert run(f"import farwarp.deep_ep; farwarp.deep_ep.install(); {IMPORTS}").stdout == "True\n"
        refused = run(
            "import sys, types; sys.modules['deep_ep'] = types; import farwarp.deep_ep; farwarp.deep_ep.install()"
        )
        assert "install() before its first import" in refused.stderr
    else:
        assert [entry.name for entry in pathlib.Path(deep_ep.top_level()).iterdir()] == ["deep_ep"]
        assert run("from farwarp.deep_ep import __main__").stdout.strip() == deep_ep.top_level()
        assert run(IMPORTS, deep_ep.top_level()).stdout == "True\n"
        assert run("import farwarp, importlib.util; print(importlib.util.find_spec('deep_ep'))").stdout == "None\n"
