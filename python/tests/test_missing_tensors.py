"""None for a tensor that a call needs: it is refused by its name before C is asked, and C would refuse it, too."""

import numpy as np
import pytest

import farwarp
from deep_ep_inputs import EXPERTS, MOST, RANKS, inputs
from farwarp import call, deep_ep

HALF, FULL, INT = np.float16, np.float32, np.int32
BYTES = 4 << 20  # of a Buffer, for either mode


@pytest.fixture
def checked(monkeypatch):
    """Each call is first made without each of its inputs; of which, by the names of the calls' inputs."""
    enqueue, names = call.Call.enqueue, set()

    def asked(*_):
        raise AssertionError("C is asked")

    def enqueue_all(self, operator, tensors, stream):
        for i, parameter in enumerate(self._parameters[: self._inputs]):
            if tensors[i] is None:
                continue
            few = *tensors[:i], None, *tensors[i + 1 :]
            function, self._function = self._function, asked
            message = f"^{parameter.name} is a NoneType; allowed: a farwarp.Array, a numpy.ndarray, a torch.Tensor$"
            with pytest.raises(farwarp.InvalidArgumentError, match=message):
                enqueue(self, operator, few, stream)
            self._function = function
            needed, self._needed = self._needed, frozenset()
            with pytest.raises(farwarp.InvalidArgumentError, match=" is NULL; allowed: a pointer$"):
                enqueue(self, operator, few, stream)
            self._needed = needed
            names.add(parameter.name)
        return enqueue(self, operator, tensors, stream)

    monkeypatch.setattr(call.Call, "enqueue", enqueue_all)
    return names


def test_products_and_sums(checked):
    def body(world):
        x, w, bias = np.ones((8, 64), HALF), np.ones((16, 64), HALF), np.ones(16, HALF)
        for kind in (farwarp.Gemm, farwarp.GemmAllReduce):
            kind(world, 8, 16, 64, dtype="float16")(x, w)
            kind(world, 8, 16, 64, dtype="float16", bias=True)(x, w, bias)
        codes, scale = np.ones((16, 64), np.uint8), np.ones(1, FULL)
        farwarp.Fp8Gemm(world, 8, 16, 64, scaling="tensor", dtype="float16")(codes[:8], codes, scale, scale)
        weights, scales = np.ones((2, 16, 64), np.uint8), np.ones((2, 1, 1), FULL)
        grouped = farwarp.GroupedGemm(world, 2, 8, 16, 64, scaling="blocks", bias=True, dtype="float16")
        grouped(codes[:8], weights, np.array([0, 3, 8], INT), np.ones((8, 1), FULL), scales, np.ones((2, 16), HALF))
        farwarp.AllReduce(world, 512, dtype="float16")(x)

    farwarp.run(body, ranks=1)
    assert checked == {"x", "w", "bias", "x_scale", "w_scale", "rows"}


def test_attention(checked):
    def body(world):
        q, cache, sinks = np.ones((2, 8, 4, 64), HALF), np.ones((4, 16, 2, 64), HALF), np.ones(4, FULL)
        k, rows, starts = np.ones((2, 8, 2, 64), HALF), np.ones((16, 4, 64), HALF), np.array([0, 8, 16], INT)
        table, counts, scales = np.array([[0], [1]], INT), np.array([8, 8], INT), np.ones(2, FULL)

        def attention(**options):
            return farwarp.Attention(world, 2, 4, 2, 64, 8, 8, dtype="float16", **options)

        attention()(q, k, k)
        attention(sinks=True)(q, k, k, sinks=sinks)
        attention(key_counts=True)(q, k, k, key_counts=counts)
        attention(total_queries=16)(rows, k, k, query_starts=starts)
        attention(total_keys=16)(q, *(k.reshape(16, 2, 64),) * 2, key_starts=starts)
        attention(page_size=16, pages=4)(q, cache, cache, key_counts=counts, block_table=table)

        def decode(cache, options, **more):
            step = farwarp.FlashDecode(world, 2, 4, 2, 64, pages=4, max_pages=1, dtype="float16", **options)
            step(np.ones((2, 1, 4, 64), HALF), cache, cache, table, counts, **more)

        decode(cache, {})
        decode(cache, {"sinks": True}, sinks=sinks)
        decode(np.zeros(cache.shape, np.uint8), {"fp8_cache": True}, k_scale=scales, v_scale=scales)

    farwarp.run(body, ranks=1)
    assert checked == set("q k v sinks query_starts key_starts key_counts block_table lengths k_scale v_scale".split())


def test_moe(checked):
    def body(world):
        x, indices = np.ones((4, 128), HALF), np.arange(8, dtype=INT).reshape(4, 2) % 4
        weights, count = np.ones((4, 2), FULL), np.array([4], INT)
        for late in (False, True):
            moe = farwarp.MoeAllToAll(world, 4, 2, 128, 4, dtype="float16", weights_at_combine=late)
            at_dispatch, at_combine = (None, weights) if late else (weights, None)
            moe.combine(moe.dispatch(x, indices, at_dispatch).recv_x, at_combine)
            moe.combine(moe.dispatch(x, indices, at_dispatch, count=count).recv_x, at_combine)
            moe.dispatch_send(x, indices, at_dispatch)
            moe.combine_send(moe.dispatch_recv().recv_x, at_combine)
            moe.combine_recv()
            if not late:
                moe.fused(x, indices, weights)
        matrices = np.ones((4, 128, 128), HALF), np.ones((4, 128, 64), HALF)
        farwarp.MoeLayer(world, 4, 2, 128, 64, 4, dtype="float16")(x, indices, weights, *matrices)
        biased = farwarp.MoeLayer(world, 4, 2, 128, 64, 4, dtype="float16", bias=True)
        biased(x, indices, weights, *matrices, np.ones((4, 128), HALF), np.ones((4, 128), HALF))
        rows = farwarp.MoeRowsAllToAll(world, 4, 2, 128, 4, dtype="float16")
        rows.combine(rows.dispatch(x, indices, weights).recv_x)
        rows.dispatch_send(x, indices, weights)
        rows.combine(rows.dispatch_recv().recv_x)

    farwarp.run(body, ranks=1)
    assert checked == {"x", "indices", "weights", "count", "y", "w1", "w2", "bias1", "bias2"}


def test_deep_ep(checked):
    def body(world):
        buffer = deep_ep.Buffer(world, BYTES, BYTES, low_latency_mode=True, explicitly_destroy=True)
        x, indices, weights = inputs(world.rank)
        for hooks in (False, True):
            recv_x, _, handle, _, hook = buffer.low_latency_dispatch(
                x, indices, MOST, EXPERTS, use_fp8=False, return_recv_hook=hooks
            )
            if hooks:
                hook()
            *_, hook = buffer.low_latency_combine(recv_x, indices, weights, handle, return_recv_hook=hooks)
            if hooks:
                hook()
        *_, of_expert, _, _ = buffer.get_dispatch_layout(indices, EXPERTS)
        for worst in (0, RANKS * MOST):
            recv_x, _, row_weights, _, handle, _ = buffer.dispatch(
                x, num_tokens_per_expert=of_expert, topk_idx=indices, topk_weights=weights, num_worst_tokens=worst
            )
            buffer.combine(recv_x, handle, row_weights)

    farwarp.run(body, ranks=RANKS, heap_bytes=64 << 20)
    assert checked == {"x", "topk_idx", "topk_weights", "handle"}
