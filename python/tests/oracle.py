"""What the tests compare with: NumPy in float64, and what the roundings of a 16-bit type allow."""

import ml_dtypes
import numpy as np

# Of a number of 1 to 2, and a little more for smaller ones of 16 bits: twice that.
HALF_ULP = {"bfloat16": 2.0**-9, "float16": 2.0**-12}
SUBNORMAL = {"bfloat16": 0.0, "float16": 2.0**-25}


def numpy_type(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def random(seed, shape, dtype="bfloat16"):
    """Numbers of -1 to 1 in `dtype`."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(numpy_type(dtype))


def assert_rounded(got, exact, dtype, partials=(), sums=0.0):
    """`got` is `exact`, rounded once, and each of `partials` (which were added) rounded once before.

    `sums`: sum of the magnitudes that were added in fp32.
    """
    assert got.shape == exact.shape
    half = 2 * HALF_ULP[dtype]  # the ulp of a number may be twice that of a smaller number beside it
    allowed = (
        half * np.abs(exact) + SUBNORMAL[dtype] + 2.0**-20 * sums + sum(half * np.abs(partial) for partial in partials)
    )
    error = np.abs(got.astype(np.float64) - exact)
    worst = np.unravel_index(np.argmax(error - allowed), error.shape)
    assert (error <= allowed).all(), (
        f"at {worst}: {got[worst]}, expected {exact[worst]} within {np.broadcast_to(allowed, error.shape)[worst]}"
    )


def f64(array):
    return np.asarray(array).astype(np.float64)


def softmax_attention(q, k, v, visible, scale=None, softcap=0):
    """q [queries, d], k, v [keys, d], visible [queries, keys] -> (out, logarithms of the denominators), in float64."""
    scores = f64(q) @ f64(k).T * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = np.where(visible, scores, -np.inf)
    highest = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - highest)
    total = weights.sum(axis=1, keepdims=True)
    return weights / total @ f64(v), (np.log(total) + highest)[:, 0]
