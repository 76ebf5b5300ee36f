"""grouped_gemm against float64."""

import numpy as np
import pytest

import farwarp
from oracle import assert_rounded, f64, random

OFFSETS = np.array([2, 2, 9, 40], np.int32)  # rows 0, 1 and 40 to 49 are of no group
COUNTS = np.array([0, 20, 3], np.int32)
N, K = 72, 136


def groups_of(rows):
    """Of each group: which rows of x and y it has."""
    if len(rows) == 4:
        return [slice(rows[g], rows[g + 1]) for g in range(3)]
    return [(g, slice(0, rows[g])) for g in range(3)]


@pytest.mark.parametrize("dtype", ("bfloat16", "float16"))
@pytest.mark.parametrize("rows, shape", ((OFFSETS, (50,)), (COUNTS, (3, 20))))
@pytest.mark.parametrize("bias", (False, True))
def test_products(dtype, rows, shape, bias):
    x, w = random(1, (*shape, K), dtype), random(2, (3, N, K), dtype)
    b = random(3, (3, N), dtype) if bias else None
    group_rows = "offsets" if len(shape) == 1 else "counts"

    def multiply(world):
        gemm = farwarp.GroupedGemm(
            world, 3, shape[-1], N, K, group_rows=group_rows, bias=bias, dtype=dtype, expected_rows=100
        )
        out = world.asarray(np.full((*shape, N), 7, x.dtype))
        assert gemm(x, w, rows, bias=b, out=out) is out
        return out.numpy()

    y = farwarp.run(multiply, ranks=1)[0]
    written = np.zeros(shape, bool)
    for group, at in enumerate(groups_of(rows)):
        written[at] = True
        if x[at].size == 0:
            continue
        exact = f64(x[at]) @ f64(w[group]).T + (f64(b[group]) if bias else 0)
        assert_rounded(y[at], exact, dtype, sums=np.abs(f64(x[at])) @ np.abs(f64(w[group])).T)
    assert (f64(y[~written]) == 7).all()


@pytest.mark.parametrize("scaling", ("none", "blocks"))
@pytest.mark.parametrize("activation", ("swiglu", "clamped_swiglu"))
def test_activations(scaling, activation):
    generator, n, k = np.random.default_rng(3), 192, 144
    numbers = generator.integers(-8, 9, (50, k)), generator.integers(-4, 5, (3, 2 * n, k))
    scales = [generator.uniform(0.01, 0.02, shape).astype(np.float32) for shape in ((50, 2), (3, 4, 2))]
    if scaling == "none":
        x, w = ((array * 0.0625).astype(np.float16) for array in numbers)
        values, given = [f64(x), f64(w)], {}
    else:
        codes = np.array([0x00, 0x38, 0x40, 0x44, 0x48, 0x4A, 0x4C, 0x4E, 0x50], np.uint8)  # 0 to 8
        x, w = ((codes[np.abs(array)] | np.where(array < 0, 0x80, 0)).astype(np.uint8) for array in numbers)
        of_x, of_w = (np.repeat(scale, 128, axis=-1)[..., :k] for scale in scales)
        of_w = np.concatenate([np.repeat(part, 128, axis=1)[:, :n] for part in np.split(of_w, 2, axis=1)], axis=1)
        values, given = [numbers[0] * of_x, numbers[1] * of_w], {"x_scale": scales[0], "w_scale": scales[1]}

    def multiply(world):
        gemm = farwarp.GroupedGemm(world, 3, 50, n, k, activation=activation, scaling=scaling, dtype="float16")
        return gemm(x, w, OFFSETS, **given).numpy()

    y = farwarp.run(multiply, ranks=1)[0]
    for group, at in enumerate(groups_of(OFFSETS)):
        gate, up = np.split(values[0][at] @ values[1][group].T, 2, axis=1)
        if activation == "clamped_swiglu":
            gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
            exact = gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
        else:
            exact = gate / (1 + np.exp(-gate)) * up
        assert np.allclose(f64(y[at]), exact, rtol=2.0**-10, atol=2.0**-9)


def test_rows_change_in_graphs_and_wrong_ones_are_told():
    x, w = random(1, (50, K)), random(2, (3, N, K))

    def body(world):
        gemm = farwarp.GroupedGemm(world, 3, 50, N, K)
        first, again = gemm(x, w, OFFSETS).numpy(), gemm(x, w, np.array([2, 9, 9, 40], np.int32)).numpy()
        assert np.array_equal(first[9:40], again[9:40]), "the rows of the last group do not depend on the others"
        with pytest.raises(farwarp.BadInputError, match="rows of a group"):
            gemm(x, w, np.array([0, 9, 3, 40], np.int32)).numpy()

    farwarp.run(body, ranks=1)


@pytest.mark.parametrize(
    "options, message",
    (
        ({"group_rows": "starts"}, "group_rows is 'starts'; allowed: offsets, counts"),
        ({"activation": "gelu"}, "activation is 'gelu'; allowed: none, swiglu, clamped_swiglu"),
        ({"activation": "swiglu"}, "n is 72; allowed: a multiple of 64"),
        ({"scaling": "rows"}, "scaling is 'rows'; allowed: none, blocks"),
        ({"groups": 0}, "groups is 0; allowed: 1 to 480"),
    ),
)
def test_descriptors(options, message):
    def create(world):
        with pytest.raises(farwarp.InvalidArgumentError) as refused:
            farwarp.GroupedGemm(world, **{"groups": 3, "max_rows": 50, "n": N, "k": K, **options})
        assert message in str(refused.value)

    farwarp.run(create, ranks=1)


def test_there_is_none_on_cdna():
    with pytest.raises(farwarp.UnavailableError, match="grouped_gemm has kernels for Hopper"):
        farwarp.run(lambda world: farwarp.GroupedGemm(world, 3, 50, N, K), ranks=1, target="emu_gfx942")


@pytest.mark.parametrize("activation", ("none", "swiglu", "clamped_swiglu"))
def test_nan_stays_in_its_row(activation):
    x, w = random(1, (50, 64), "float16"), random(2, (3, 64 if activation == "none" else 128, 64), "float16")
    x[20, 7] = np.nan

    def multiply(world):
        return farwarp.GroupedGemm(world, 3, 50, 64, 64, activation=activation, dtype="float16")(x, w, OFFSETS).numpy()

    y = farwarp.run(multiply, ranks=1)[0][2:40]
    assert np.isnan(y[18]).all() and np.isfinite(np.delete(y, 18, axis=0)).all()
