"""gemm and the products of tensor parallelism against float64."""

import numpy as np
import pytest

import farwarp
from oracle import assert_rounded, f64, random

TARGETS = ("emu_sm90", "emu_gfx942")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ("bfloat16", "float16"))
@pytest.mark.parametrize("bias", (False, True))
def test_gemm(target, dtype, bias):
    m, n, k = 33, 48, 72
    x, w, b = random(1, (m, k), dtype), random(2, (n, k), dtype), random(3, (n,), dtype) if bias else None

    def multiply(world):
        gemm = farwarp.Gemm(world, m, n, k, bias=bias, dtype=dtype)
        first = gemm(x, w, b)
        out = world.empty((m, n), dtype)
        assert gemm(world.asarray(x), world.asarray(w), None if b is None else world.asarray(b), out=out) is out
        return first.numpy(), out.numpy()

    exact = f64(x) @ f64(w).T + (f64(b) if bias else 0)
    for got in farwarp.run(multiply, ranks=1, target=target)[0]:
        assert got.dtype == x.dtype
        assert_rounded(got, exact, dtype, sums=np.abs(f64(x)) @ np.abs(f64(w)).T)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ranks", (1, 2, 4))
@pytest.mark.parametrize("return_x", (False, True))
def test_all_gather_gemm(target, ranks, return_x):
    m, n, k = 8 * ranks, 32 * ranks, 64
    x, w, b = random(1, (m, k)), random(2, (n, k)), random(3, (n,))

    def part(array, world):
        return np.split(array, world.size)[world.rank]

    def multiply(world):
        product = farwarp.AllGatherGemm(world, m, n, k, bias=True, return_x=return_x, path="own")
        got = product(part(x, world), part(w, world), part(b, world))
        return [result.numpy() for result in got] if return_x else [got.numpy(), x]

    results = farwarp.run(multiply, ranks=ranks, target=target)
    exact = f64(x) @ f64(w).T + f64(b)
    for rank, (y, all_x) in enumerate(results):
        assert np.array_equal(all_x, x)
        assert_rounded(y, np.split(exact, ranks, axis=1)[rank], "bfloat16", sums=k)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ranks", (1, 2, 4))
@pytest.mark.parametrize("kind", (farwarp.GemmReduceScatter, farwarp.GemmAllReduce))
def test_reduced_products(target, ranks, kind):
    m, n, k = 16 * ranks, 40, 64 * ranks
    x, w = random(1, (m, k)), random(2, (n, k))
    x_parts, w_parts = np.split(x, ranks, axis=1), np.split(w, ranks, axis=1)

    def multiply(world):
        product = kind(world, m=m, n=n, k=k)
        x_part, w_part = world.asarray(x_parts[world.rank].copy()), world.asarray(w_parts[world.rank].copy())
        return [product(x_part, w_part).numpy() for _ in range(3)]

    partials = [f64(a) @ f64(b).T for a, b in zip(x_parts, w_parts)]
    for rank, calls in enumerate(farwarp.run(multiply, ranks=ranks, target=target)):
        rows = slice(None) if kind is farwarp.GemmAllReduce else slice(rank * m // ranks, (rank + 1) * m // ranks)
        for y in calls:
            assert_rounded(y, sum(partials)[rows], "bfloat16", [partial[rows] for partial in partials], sums=k)
            assert np.array_equal(y, calls[0])


def test_what_products_share_is_refused():
    def body(world):
        message = "^ParallelGemm has no calls; allowed: AllGatherGemm, GemmReduceScatter, GemmAllReduce$"
        with pytest.raises(farwarp.MisuseError, match=message):
            farwarp.ParallelGemm(world, 16, 32, 64)
        assert not world.operators

    farwarp.run(body, ranks=1)
