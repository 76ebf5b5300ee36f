#!/usr/bin/env python3
"""A mixture-of-experts layer over several ranks: dispatch, the rank's experts, combine.

    python moe_layer.py                                    four emulated ranks, threads of this process, with NumPy
    torchrun --nproc-per-node 2 moe_layer.py --torch       GPUs, with torch; torchrun's process group

Each rank has some tokens and some of the experts (two products with a SiLU between). The result is compared with the
same layer computed on one rank from all weights.
"""

import numpy as np

import farwarp
from ranks import main

EXPERTS, TOP_K, HIDDEN, INNER, TOKENS = 8, 2, 256, 128, 16


def weights_of(expert):
    """The expert's two matrices: [INNER, HIDDEN], [HIDDEN, INNER]."""
    rng = np.random.default_rng(expert)
    return (rng.standard_normal((INNER, HIDDEN)) * HIDDEN**-0.5).astype(np.float32), (
        rng.standard_normal((HIDDEN, INNER)) * INNER**-0.5
    ).astype(np.float32)


def tokens_of(rank):
    """x [TOKENS, HIDDEN], experts [TOKENS, TOP_K] and their weights."""
    rng = np.random.default_rng(1000 + rank)
    x = rng.standard_normal((TOKENS, HIDDEN)).astype(np.float32)
    experts = np.array([rng.choice(EXPERTS, TOP_K, replace=False) for _ in range(TOKENS)], np.int32)
    weights = rng.dirichlet(np.ones(TOP_K), TOKENS).astype(np.float32)
    return x, experts, weights


def expert_in_numpy(expert, rows):
    up, down = weights_of(expert)
    inner = rows @ up.T
    return inner / (1 + np.exp(-inner)) @ down.T


def plain(rank):
    """What the layer gives the rank's tokens."""
    x, experts, weights = tokens_of(rank)
    out = np.zeros_like(x)
    for token, slot in np.ndindex(experts.shape):
        out[token] += weights[token, slot] * expert_in_numpy(experts[token, slot], x[token])
    return out


def check(world, out):
    expected = plain(world.rank)
    error = np.abs(out - expected).max() / np.abs(expected).max()
    print(f"rank {world.rank} of {world.size}, {world.target}: largest error {error:.4f} of the largest number")
    assert error < 0.02, "bfloat16 explains less"


def new_layer(world):
    return farwarp.MoeAllToAll(world, num_experts=EXPERTS, experts_per_token=TOP_K, hidden=HIDDEN, max_tokens=TOKENS)


def layer_in_numpy(world):
    moe = new_layer(world)
    x, experts, weights = tokens_of(world.rank)
    received = moe.dispatch(world.asarray(x, "bfloat16"), experts, weights)
    rows = received.recv_x.numpy().astype(np.float32)
    counts, offsets = received.counts.numpy(), received.offsets.numpy()
    y = np.zeros_like(rows)
    for local in range(moe.local_experts):
        mine = slice(offsets[local], offsets[local] + counts[local])
        y[mine] = expert_in_numpy(world.rank * EXPERTS // world.size + local, rows[mine])
    out = moe.combine(world.asarray(y, "bfloat16"))
    check(world, out.numpy().astype(np.float32))


def layer_in_torch(world):
    """Without a synchronisation with the host between dispatch and combine.

    Each expert multiplies all rows, and a mask keeps its own.
    """
    import torch

    device = torch.device("cuda", world.device)
    moe = new_layer(world)
    x, experts, weights = (torch.from_numpy(array).to(device) for array in tokens_of(world.rank))
    received = moe.dispatch(x.bfloat16(), experts, weights)
    row = torch.arange(moe.recv_rows, device=device)
    y = torch.zeros_like(received.recv_x)
    for local in range(moe.local_experts):
        up, down = (
            torch.from_numpy(matrix).to(device).bfloat16()
            for matrix in weights_of(world.rank * EXPERTS // world.size + local)
        )
        begin = received.offsets[local]
        mine = (row >= begin) & (row < begin + received.counts[local])
        of_expert = torch.nn.functional.silu(received.recv_x @ up.T) @ down.T
        y = torch.where(mine[:, None], of_expert, y)
    out = moe.combine(y)
    torch.cuda.synchronize()
    world.check()
    check(world, out.float().cpu().numpy())


if __name__ == "__main__":
    main(__doc__, layer_in_numpy, layer_in_torch)
