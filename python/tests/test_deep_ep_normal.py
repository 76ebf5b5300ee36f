"""farwarp.deep_ep's normal mode on the emulator, against NumPy. On GPUs: tools/deep_ep_gpus.py."""

import ml_dtypes
import numpy as np
import pytest

import farwarp
from deep_ep_inputs import EXPERTS, HIDDEN, LOCAL, MOST, RANKS, TARGETS, TOP_K, inputs
from farwarp import deep_ep

ROOM = 4 << 20  # num_nvl_bytes
FP8 = {"emu_sm90": ml_dtypes.float8_e4m3fn, "emu_gfx942": ml_dtypes.float8_e4m3fnuz}


def given(x, fp8):
    """x as dispatch takes it: with fp8, numbers and scales that are different in each group."""
    if fp8 is None:
        return x
    scales = np.exp2(np.arange(len(x) * 2).reshape(-1, 2) % 3).astype(np.float32)
    return (x.astype(np.float32) / np.repeat(scales, 128, axis=1)).astype(fp8), scales


def values(rows):
    if isinstance(rows, tuple):
        return rows[0].astype(np.float32) * np.repeat(rows[1], 128, axis=1)
    return rows.astype(np.float32)


def expected_rows(rank, call=0):
    """Rows, local experts and weights that arrive, by source rank and token."""
    rows, entries, factors = [], [], []
    for source in range(RANKS):
        x, indices, weights = inputs(source, call)
        here = indices // LOCAL == rank
        for token in np.nonzero(here.any(axis=1))[0]:
            rows.append(x[token].astype(np.float32))
            entries.append(np.where(here[token], indices[token] - rank * LOCAL, -1))
            factors.append(np.where(here[token], weights[token], 0))
    count = len(rows)
    return np.reshape(rows, (count, HIDDEN)), np.reshape(entries, (count, TOP_K)), np.reshape(factors, (count, TOP_K))


def expected_out(rank, call=0):
    x, indices, weights = inputs(rank, call)
    factors = np.where(indices >= 0, weights * (indices % 3 + 1), 0).sum(axis=1)
    return x.astype(np.float32) * factors[:, None]


def make_of_rows(rank, rows, entries, weights):
    """What a rank's experts make of each row, the weights applied: expert e multiplies by e % 3 + 1."""
    experts = entries + rank * LOCAL
    factors = np.where(entries >= 0, weights * (experts % 3 + 1), 0).sum(axis=1)
    return (rows * factors[:, None]).astype(ml_dtypes.bfloat16)


def dispatch(buffer, call=0, index_type="int64", fp8=None, **options):
    x, indices, weights = inputs(buffer.rank, call, index_type)
    *_, of_expert, _, _ = buffer.get_dispatch_layout(indices, EXPERTS)
    return buffer.dispatch(
        given(x, fp8), num_tokens_per_expert=of_expert, topk_idx=indices, topk_weights=weights, **options
    )


def check(buffer, received, call=0):
    """Also what is returned when all rows are combined."""
    rows, entries, weights = expected_rows(buffer.rank, call)
    recv_x, recv_idx, recv_weights, _, handle, _ = received
    got, count = values(recv_x), len(rows)
    np.testing.assert_array_equal(got[:count], rows)
    np.testing.assert_array_equal(recv_idx[:count], entries)
    np.testing.assert_array_equal(recv_weights[:count], weights)
    assert (recv_idx[count:] == -1).all() and (recv_weights[count:] == 0).all()
    combine(buffer, got, recv_idx, recv_weights, handle, call)


def combine(buffer, rows, recv_idx, recv_weights, handle, call=0):
    out, none, _ = buffer.combine(make_of_rows(buffer.rank, rows, recv_idx, recv_weights), handle)
    assert none is None
    np.testing.assert_array_equal(out.astype(np.float32), expected_out(buffer.rank, call))


def on_ranks(function, target="emu_sm90", room=ROOM, **options):
    def body(world):
        function(deep_ep.Buffer(world, room))
        return True

    assert farwarp.run(body, ranks=RANKS, target=target, **options) == [True] * RANKS


def test_layout():
    def body(buffer):
        _, indices, _ = inputs(buffer.rank)
        per_rank, none, per_expert, in_rank, event = buffer.get_dispatch_layout(indices, EXPERTS, async_finish=True)
        event.current_stream_wait()
        wanted = np.array([[(row // LOCAL == rank).any() for rank in range(RANKS)] for row in indices], bool).reshape(
            -1, RANKS
        )
        assert none is None and per_rank.dtype == per_expert.dtype == np.int32
        np.testing.assert_array_equal(in_rank, wanted)
        np.testing.assert_array_equal(per_rank, wanted.sum(axis=0))
        np.testing.assert_array_equal(per_expert, [(indices == expert).sum() for expert in range(EXPERTS)])

    on_ranks(body)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ("bf16", "fp8"))
@pytest.mark.parametrize("worst", (0, RANKS * MOST), ids=("counted", "worst"))
def test_normal_mode(target, kind, worst):
    fp8 = None if kind == "bf16" else FP8[target]

    def body(buffer):
        for call, index_type in enumerate(("int64", "int32", "int64")):
            received = dispatch(
                buffer, call, index_type, fp8, num_worst_tokens=worst, expert_alignment=4, async_finish=call == 2
            )
            recv_x, recv_idx, _, counts, _, event = received
            if call == 2:
                event.current_stream_wait()
            rows, entries, _ = expected_rows(buffer.rank, call)
            assert len(recv_idx) == (worst or len(rows)) and recv_idx.dtype == index_type
            assert counts == ([] if worst else [-(-int((entries == local).sum()) // 4) * 4 for local in range(LOCAL)])
            if fp8 is not None:
                assert (
                    recv_x[0].dtype == fp8 and recv_x[1].shape == (len(recv_idx), 2) and recv_x[1].dtype == np.float32
                )
            check(buffer, received, call)

    on_ranks(body, target)


def test_cached_handle():
    def body(buffer):
        received = dispatch(buffer)
        check(buffer, received)
        x, _, _ = inputs(buffer.rank)
        for kind in (None, FP8["emu_sm90"], None):
            again, *nothing, _ = buffer.dispatch(given(x * 2, kind), handle=received[4])
            assert nothing == [None] * 4
            rows, entries, weights = expected_rows(buffer.rank)
            np.testing.assert_array_equal(values(again), 2 * rows)
            combine(buffer, rows, entries, weights, received[4])
        again, *_ = buffer.dispatch(x * 4, handle=received[4], config=deep_ep.Config(num_sms=2))
        np.testing.assert_array_equal(values(again), 4 * rows)
        assert {shape.num_sms for shape in buffer._operators} == {2, buffer.num_sms}
        combine(buffer, rows, entries, weights, received[4])
        with pytest.raises(farwarp.InvalidArgumentError, match="handle and topk_idx or topk_weights are given"):
            dispatch(buffer, handle=received[4])
        with pytest.raises(farwarp.InvalidArgumentError, match="x has 9 rows; allowed"):
            buffer.dispatch(np.zeros((9, HIDDEN), ml_dtypes.bfloat16), handle=received[4])

    on_ranks(body)


def test_handles_in_any_order():
    def body(buffer):
        calls = [dispatch(buffer, call) for call in range(4)]
        for call in (3, 0, 0, 2, 1, 3):
            check(buffer, calls[call], call)

    on_ranks(body)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tokens", (MOST, 160))
def test_without_topk(target, tokens):
    """As DeepEP's tests call it: ranks and counts are given, and a handle combines rows and weights."""
    local, hidden = EXPERTS // RANKS, 512

    def routing(rank):
        rng = np.random.default_rng((rank, tokens))
        indices = np.array([rng.choice(EXPERTS, TOP_K, replace=False) for _ in range(tokens - rank)])
        in_rank = (indices[:, :, None] // local == np.arange(RANKS)).any(1)
        return indices, in_rank, np.bincount(indices.ravel(), minlength=EXPERTS).astype(np.int32)

    def body(buffer):
        rank = buffer.rank
        indices, in_rank, per_expert = routing(rank)
        x = np.full((len(indices), hidden), rank + 1, ml_dtypes.bfloat16)
        x[:, 0] = np.arange(len(indices)) % 32
        recv_x, recv_idx, recv_weights, counts, handle, _ = buffer.dispatch(
            x,
            num_tokens_per_rank=in_rank.sum(0, dtype=np.int32),
            is_token_in_rank=in_rank,
            num_tokens_per_expert=per_expert,
        )
        everyone = [routing(source) for source in range(RANKS)]
        assert recv_idx is None and recv_weights is None
        assert counts == sum(one[2][rank * local : (rank + 1) * local] for one in everyone).tolist()
        tokens_here = [np.nonzero(one[1][:, rank])[0] for one in everyone]
        np.testing.assert_array_equal(recv_x[:, 0].astype(int), np.concatenate(tokens_here) % 32)
        np.testing.assert_array_equal(
            recv_x[:, 1].astype(int), np.repeat(np.arange(1, RANKS + 1), [len(t) for t in tokens_here])
        )
        np.testing.assert_array_equal(handle[0][:, rank], np.cumsum([len(t) for t in tokens_here]))
        assert len(handle) == 6 and handle[4] is in_rank and (np.delete(handle[0], rank, 1) == -1).all()

        # The weights of a routing with entries come back unrounded, each as often as its owners say.
        weights = np.random.default_rng((7, rank)).standard_normal((len(indices), TOP_K)).astype(np.float32)
        got = buffer.dispatch(x, topk_idx=indices, topk_weights=weights, num_tokens_per_expert=per_expert)
        for _ in range(2):
            out, sums, _ = buffer.combine(got[0], got[4], topk_weights=got[2])
            np.testing.assert_array_equal(sums, weights)
            np.testing.assert_array_equal(out.astype(np.float32), x.astype(np.float32) * in_rank.sum(1, keepdims=True))
            out, sums, _ = buffer.combine(recv_x, handle, topk_weights=np.full((len(recv_x), RANKS), 0.1, np.float32))
            # added in fp32, one owner after the other
            added = np.cumsum(np.full(RANKS, 0.1, np.float32), dtype=np.float32)[in_rank.sum(1) - 1]
            np.testing.assert_array_equal(sums, np.repeat(added[:, None], RANKS, axis=1))
            np.testing.assert_array_equal(out.astype(np.float32), x.astype(np.float32) * in_rank.sum(1, keepdims=True))

    on_ranks(body, target, room=16 << 20, heap_bytes=40 << 20)


def test_shapes_are_given_back_when_the_heap_is_full():
    room = 2 << 20

    def body(buffer):
        first, second = dispatch(buffer, 0), dispatch(buffer, 1, "int32")
        check(buffer, second, 1)
        check(buffer, first, 0)
        check(buffer, second, 1)

    on_ranks(body, room=room, heap_bytes=room // 2 + (512 << 10))


def test_room():
    """A call has as many tokens as num_nvl_bytes has room for; the hint says how much that is."""
    deep_ep.Config.tokens, before = MOST, deep_ep.Config.tokens
    try:
        hint = deep_ep.Buffer.get_dispatch_config(RANKS).get_nvl_buffer_size_hint(2 * HIDDEN, RANKS)
        assert deep_ep.Config().get_rdma_buffer_size_hint(2 * HIDDEN, RANKS) == 0
    finally:
        deep_ep.Config.tokens = before

    def too_many(buffer):
        x = np.zeros((4000, HIDDEN), ml_dtypes.bfloat16)
        routing = {"topk_idx": np.zeros((4000, TOP_K), np.int64), "topk_weights": np.zeros((4000, TOP_K), np.float32)}
        with pytest.raises(
            farwarp.InvalidArgumentError, match="x has 4000 rows; allowed: up to .* num_nvl_bytes, 4194304, has room"
        ):
            buffer.dispatch(x, num_tokens_per_expert=np.zeros(EXPERTS, np.int32), **routing)
        check(buffer, dispatch(buffer))

    on_ranks(too_many)
    # A multiple of 32 tokens.
    on_ranks(lambda buffer: check(buffer, dispatch(buffer)), room=5 * hint, heap_bytes=5 * hint + (2 << 20))

    def none(buffer):
        with pytest.raises(
            farwarp.InvalidArgumentError, match="num_nvl_bytes is 0; allowed: Config.get_nvl_buffer_size_hint"
        ):
            dispatch(buffer)

    on_ranks(none, room=0)


def test_a_rank_whose_call_is_refused_makes_it_again():
    def body(buffer):
        for call in range(3):
            if buffer.rank == call:
                with pytest.raises(farwarp.InvalidArgumentError, match="recv_x has"):
                    dispatch(buffer, call, num_worst_tokens=1 << 20)
            check(buffer, dispatch(buffer, call), call)

    on_ranks(body)


def test_refused_by_name():
    def body(buffer):
        x, indices, weights = inputs(0)
        experts = np.zeros(EXPERTS, np.int32)

        def refuses(error, message, *args, **options):
            everything = {"num_tokens_per_expert": experts, "topk_idx": indices, "topk_weights": weights, **options}
            with pytest.raises(error, match=message):
                buffer.dispatch(*(args or (x,)), **everything)

        wrong = farwarp.InvalidArgumentError
        refuses(farwarp.UnavailableError, "num_tokens_per_rdma_rank is given", num_tokens_per_rdma_rank=experts)
        for missing in ("topk_idx", "topk_weights", "num_tokens_per_expert"):
            refuses(wrong, "num_tokens_per_expert, or one of topk_idx and topk_weights", **{missing: None})
        in_rank = np.ones((8, RANKS + 1), bool)
        refuses(
            wrong,
            r"is_token_in_rank is bool of shape \(8, 5\)",
            topk_idx=None,
            topk_weights=None,
            is_token_in_rank=in_rank,
        )
        refuses(wrong, r"topk_idx is int64 of shape \(7, 3\)", topk_idx=indices[:7])
        refuses(wrong, r"topk_weights is float32 of shape \(8, 2\)", topk_weights=weights[:, :2])
        refuses(wrong, "num_tokens_per_expert has 9 elements", num_tokens_per_expert=np.zeros(9, np.int32))
        refuses(wrong, r"x is \(uint8 \(8, 256\), float32", (x.view(np.uint8)[:, :HIDDEN], weights))
        refuses(wrong, "recv_x has shape", num_worst_tokens=1 << 20)
        received = buffer.dispatch(x, num_tokens_per_expert=experts, topk_idx=indices, topk_weights=weights)
        with pytest.raises(farwarp.UnavailableError, match="combine: bias is given"):
            buffer.combine(received[0], received[4], bias=weights)
        with pytest.raises(wrong, match="row_weights has shape"):
            buffer.combine(received[0], received[4], topk_weights=weights[:, :1].repeat(9, 1))
        with pytest.raises(wrong, match="handle is 5; allowed"):
            buffer.combine(received[0], 5)
        with pytest.raises(wrong, match=r"combine: x has shape .*; allowed: .* the rows that dispatch delivered"):
            buffer.combine(received[0][1:], received[4])
        buffer.combine(received[0], received[4])  # what was refused has changed nothing
        with pytest.raises(wrong, match="num_experts is 9"):
            buffer.get_dispatch_layout(indices, 9)

    on_ranks(body)


@pytest.mark.parametrize("kind", ("bf16", "fp8"))
def test_torch_tensors(kind):
    torch = pytest.importorskip("torch")

    def body(buffer):
        x, indices, weights = inputs(buffer.rank)
        tensors = [torch.from_numpy(t) for t in (indices, weights)]
        if kind == "bf16":
            sent = torch.from_numpy(x.astype(np.float32)).bfloat16()
        else:
            numbers, scales = given(x, ml_dtypes.float8_e4m3fn)
            sent = torch.from_numpy(numbers.view(np.uint8)).view(torch.float8_e4m3fn), torch.from_numpy(scales)
        _, _, of_expert, in_rank, _ = buffer.get_dispatch_layout(tensors[0], EXPERTS)
        assert in_rank.dtype == torch.bool and of_expert.dtype == torch.int32
        np.testing.assert_array_equal(of_expert.numpy(), [(indices == expert).sum() for expert in range(EXPERTS)])
        recv_x, recv_idx, recv_weights, _, handle, _ = buffer.dispatch(
            sent, num_tokens_per_expert=of_expert, topk_idx=tensors[0], topk_weights=tensors[1]
        )
        rows, entries, factors = expected_rows(buffer.rank)
        got = recv_x.float().numpy() if kind == "bf16" else values((recv_x[0].float().numpy(), recv_x[1].numpy()))
        np.testing.assert_array_equal(got, rows)
        np.testing.assert_array_equal(recv_idx.numpy(), entries)
        np.testing.assert_array_equal(recv_weights.numpy(), factors)
        y = torch.from_numpy(make_of_rows(buffer.rank, rows, entries, factors).astype(np.float32)).bfloat16()
        out, _, _ = buffer.combine(y, handle)
        np.testing.assert_array_equal(out.float().numpy(), expected_out(buffer.rank))

    on_ranks(body)
