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


def e4m3(codes):
    """The numbers of e4m3 codes; NaN is not among them."""
    exponents, fractions = codes >> 3 & 15, (codes & 7) / 8.0
    magnitudes = np.where(exponents > 0, (1 + fractions) * 2.0 ** (exponents - 7.0), fractions * 2.0**-6)
    return np.where(codes & 128, -magnitudes, magnitudes)


SCALING = {  # what shares a scale, and the shapes of x_scale and w_scale for 40 x 152 x 272
    "blocks": ((40, 3), (2, 3)),
    "columns": ((3, 40), (2, 3)),
    "rows": ((40,), (152,)),
    "tensor": ((1,), (1,)),
}


@pytest.mark.parametrize("scaling", SCALING)
@pytest.mark.parametrize("bias", (False, True))
def test_fp8_gemm(scaling, bias):
    m, n, k = 40, 152, 272
    generator = np.random.default_rng(5)
    x, w = (generator.integers(0, 256, (rows, k), np.uint8) for rows in (m, n))
    for codes in (x, w):
        codes[codes & 127 >= 0x50] &= 0xBF  # smaller numbers, and no NaN
    scales = [generator.uniform(0.5, 2, shape).astype(np.float32) for shape in SCALING[scaling]]
    b = random(3, (n,)) if bias else None

    def multiply(world):
        by_column = scaling == "columns"
        gemm = farwarp.Fp8Gemm(
            world, m, n, k, scaling="blocks" if by_column else scaling, x_scale_by_column=by_column, bias=bias
        )
        out = world.empty((m, n), "bfloat16")
        assert gemm(x, w, *scales, b, out=out) is out
        return gemm(x, w, *scales, b).numpy(), out.numpy()

    of_x, of_w = scales
    if of_x.ndim == 1:
        of_x, of_w = of_x[:, None], of_w[:, None]
    else:
        of_x, of_w = (of_x.T if scaling == "columns" else of_x), np.repeat(of_w, 128, axis=0)[:n]
        of_x, of_w = (np.repeat(scale, 128, axis=1)[:, :k] for scale in (of_x, of_w))
    numbers = [e4m3(codes) * scale for codes, scale in ((x, of_x), (w, of_w))]
    exact = numbers[0] @ numbers[1].T + (f64(b) if bias else 0)
    deviations = np.sqrt((numbers[0] ** 2) @ (numbers[1] ** 2).T)
    for got in farwarp.run(multiply, ranks=1)[0]:
        error = np.abs(f64(got) - exact)
        assert (error <= 2.0**-8 * np.abs(exact) + 2.0**-9 * deviations).all()
        assert np.sqrt((error**2).mean()) < 2.0**-8.5 * np.sqrt((exact**2).mean())


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
