"""What the ranks of DeepEP's tests send."""

import ml_dtypes
import numpy as np

RANKS, EXPERTS, TOP_K, HIDDEN, MOST = 4, 8, 3, 256, 8
LOCAL = EXPERTS // RANKS
TOKENS = (8, 0, 5, 1)  # of each rank
TARGETS = ("emu_sm90", "emu_gfx942")


def inputs(rank, call=0, index_type="int64"):
    """x, topk_idx with one -1, topk_weights: numbers so small that every sum is exact."""
    rng = np.random.default_rng((rank, call))
    tokens = TOKENS[(rank + call) % RANKS]
    x = rng.integers(-2, 3, (tokens, HIDDEN)).astype(ml_dtypes.bfloat16)
    indices = np.array([rng.choice(EXPERTS, TOP_K, replace=False) for _ in range(tokens)], index_type).reshape(
        tokens, TOP_K
    )
    if tokens:
        indices[0, 1] = -1
    weights = rng.choice([0.5, 1, 2], (tokens, TOP_K)).astype(np.float32)
    return x, indices, weights
