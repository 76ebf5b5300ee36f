#!/usr/bin/env python3
"""A tensor-parallel MLP over several ranks: all-gather and product, SiLU, product and reduce-scatter.

    python tensor_parallel_mlp.py                                four emulated ranks, threads of a process, with NumPy
    torchrun --nproc-per-node 2 tensor_parallel_mlp.py --torch   GPUs, with torch; torchrun's process group

Each rank has a part of the rows of x, a part of the rows of w1 and of the columns of w2, and gets its rows of silu(x @
w1.T) @ w2.T, which are compared with the same computed on one rank.
"""

import numpy as np

import farwarp
from ranks import main

ROWS, HIDDEN, INNER = 64, 256, 512


def problem():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((ROWS, HIDDEN)).astype(np.float32)
    w1 = (rng.standard_normal((INNER, HIDDEN)) * HIDDEN**-0.5).astype(np.float32)
    w2 = (rng.standard_normal((HIDDEN, INNER)) * INNER**-0.5).astype(np.float32)
    return x, w1, w2


def parts_of(world):
    """Of this rank: x [ROWS/R, HIDDEN], w1 [INNER/R, HIDDEN], w2 [HIDDEN, INNER/R]."""
    x, w1, w2 = problem()
    rank, size = world.rank, world.size
    return np.split(x, size)[rank], np.split(w1, size)[rank], np.ascontiguousarray(np.split(w2, size, axis=1)[rank])


def silu(numbers):
    return numbers / (1 + np.exp(-numbers))


def check(world, y):
    x, w1, w2 = problem()
    expected = np.split(silu(x @ w1.T) @ w2.T, world.size)[world.rank]
    error = np.abs(y - expected).max() / np.abs(expected).max()
    print(f"rank {world.rank} of {world.size}, {world.target}: largest error {error:.4f} of the largest number")
    assert error < 0.02, "bfloat16 explains less"


def new_products(world):
    return farwarp.AllGatherGemm(world, m=ROWS, n=INNER, k=HIDDEN), farwarp.GemmReduceScatter(
        world, m=ROWS, n=HIDDEN, k=INNER
    )


def mlp_in_numpy(world):
    up, down = new_products(world)
    x, w1, w2 = (world.asarray(part, "bfloat16") for part in parts_of(world))
    inner = silu(up(x, w1).numpy().astype(np.float32))
    y = down(world.asarray(inner, "bfloat16"), w2)
    check(world, y.numpy().astype(np.float32))


def mlp_in_torch(world):
    """The second time from a CUDA graph."""
    import torch

    up, down = new_products(world)
    x, w1, w2 = (torch.from_numpy(part).to("cuda").bfloat16() for part in parts_of(world))

    def mlp():
        return down(torch.nn.functional.silu(up(x, w1)), w2)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        first = mlp()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = mlp()
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    world.check()
    assert torch.equal(first, y), "a graph gives the same bits"
    check(world, y.float().cpu().numpy())


if __name__ == "__main__":
    main(__doc__, mlp_in_numpy, mlp_in_torch)
