"""What DeepEP's low-latency tests send and expect."""

import ml_dtypes
import numpy as np

import farwarp
from deep_ep_inputs import HIDDEN, LOCAL, MOST, RANKS, inputs
from farwarp import deep_ep

ROOM = RANKS * MOST


def factor(expert):
    """What an expert multiplies by."""
    return expert % 3 + 1


def expected(rank, call=0):
    x, indices, weights = inputs(rank, call)
    factors = np.where(indices >= 0, weights * (indices % 3 + 1), 0).sum(axis=1)
    return x.astype(np.float32) * factors[:, None]


def arrivals(expert, call=0):
    """The rows that an expert gets, by source rank and token."""
    sent = (inputs(source, call) for source in range(RANKS))
    rows = [x[token] for x, indices, _ in sent for token in np.nonzero(indices == expert)[0]]
    return np.array(rows, np.float32).reshape(len(rows), HIDDEN)


def values(recv_x):
    """What recv_x stands for, as float32."""
    if isinstance(recv_x, tuple):
        numbers, scales = recv_x
        return numbers.astype(np.float32) * np.repeat(scales, 128, axis=2)
    return recv_x.astype(np.float32)


def check_received(rank, recv_x, recv_count, call=0):
    got = values(recv_x)
    assert got.shape == (LOCAL, ROOM, HIDDEN) and recv_count.shape == (LOCAL,) and recv_count.dtype == np.int32
    for local in range(LOCAL):
        wanted = arrivals(rank * LOCAL + local, call)
        assert recv_count[local] == len(wanted)
        np.testing.assert_allclose(got[local, : len(wanted)], wanted, atol=0.01 if isinstance(recv_x, tuple) else 0)


def experts(rank, recv_x, recv_count):
    """The experts' outputs; rows that nobody has sent are NaN."""
    y = np.full((LOCAL, ROOM, HIDDEN), np.nan, np.float32)
    for local, count in enumerate(recv_count):
        y[local, :count] = np.rint(values(recv_x)[local, :count]) * factor(rank * LOCAL + local)
    return y.astype(ml_dtypes.bfloat16)


def on_ranks(function, target="emu_sm90", **options):
    """function(buffer, rank) on each rank."""

    def body(world):
        return function(deep_ep.Buffer(world, low_latency_mode=True, explicitly_destroy=True), world.rank)

    return farwarp.run(body, ranks=RANKS, target=target, **options)
