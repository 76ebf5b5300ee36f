"""Arrays that are not what their memory looks like: taken rightly, or refused by name."""

import re

import numpy as np
import pytest

import farwarp
from farwarp import dtypes

M, N, K = 8, 16, 64
TYPES = ("float16", "float32", "int32", "int64", "uint8")


def alone(function):
    return farwarp.run(function, ranks=1)[0]


def numbers(shape, dtype):
    return np.random.default_rng(1).integers(0, 100, shape).astype(dtype)


def unaligned(array):
    """The same at an address that is no multiple of an element."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(np.uint8)[: array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    assert array.itemsize == 1 or not view.flags.aligned
    return view


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


RIGHT = {
    "other byte order": lambda array: array.astype(array.dtype.newbyteorder("S")),
    "matrix": lambda array: array.view(np.matrix),
    "recarray": lambda array: array.view(np.recarray),
    "read-only": read_only,
    "negative strides": lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
    "Fortran order": np.asfortranarray,
    "unaligned": unaligned,
    "every second": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "zero strides": lambda array: np.broadcast_to(array[0], array.shape),
    "memory map": lambda array: array.view(np.memmap),
}


@pytest.mark.parametrize("form", RIGHT)
@pytest.mark.parametrize("dtype", TYPES)
def test_forms_that_asarray_takes(form, dtype):
    values = RIGHT[form](numbers((4, 6), dtype))
    expected = np.array(np.asarray(values).tolist(), dtype)

    def body(world):
        taken = world.asarray(values)
        assert taken.dtype == dtype and taken.shape == values.shape
        filled = world.empty(values.shape, dtype).copy_from(values)
        as_float = world.asarray(values, "float32")
        return taken.numpy(), filled.numpy(), as_float.numpy()

    for got in alone(body):
        np.testing.assert_array_equal(got, expected)


def test_bfloat16_of_either_byte_order():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([1.0, -2.5, 3e38], ml_dtypes.bfloat16)

    def body(world):
        with pytest.raises(farwarp.InvalidArgumentError):
            world.asarray(values.view("V2"))
        turned = np.array([1.0, -2.5, 0.5], ">f4")
        return world.asarray(values).numpy(), world.asarray(turned, "bfloat16").numpy().astype(np.float32)

    same, rounded = alone(body)
    assert same.dtype == values.dtype and (same == values).all()
    assert rounded.tolist() == [1.0, -2.5, 0.5]


def test_empty_and_zero_dimensional():
    def body(world):
        assert world.asarray(np.float32(2.5)).shape == ()
        assert world.asarray(np.zeros((3, 0), ">i4")).numpy().shape == (3, 0)
        with pytest.raises(TypeError):
            len(world.asarray(np.float32(1)))
        return world.asarray(np.array(2.5, ">f4")).numpy()

    assert alone(body) == 2.5


class Broken:
    def __array__(self, *_args, **_options):
        raise ZeroDivisionError("no numbers")


masked = np.ma.masked_array(np.ones((M, K), np.float16), mask=np.eye(M, K))
structured = np.zeros((M, K), [("a", np.float16)])
WRONG = {
    "masked": (masked, "is a masked array; allowed: one without a mask"),
    "masked without a mask": (np.ma.masked_array(np.ones((M, K), np.float16)), "is a masked array"),
    "structured": (structured, "is of structured ("),
    "record array": (structured.view(np.recarray), "is of structured ("),
    "void": (np.zeros((M, K), "V2"), "is of void16"),
    "object": (np.ones((M, K), object), "is of object"),
    "complex": (np.ones((M, K), np.complex64), "is of complex64"),
    "text": (np.full((M, K), "1"), "is of str"),
    "bytes": (np.full((M, K), b"1"), "is of bytes8"),
    "datetime": (np.zeros((M, K), "datetime64[s]"), "is of datetime64[s]"),
    "timedelta": (np.zeros((M, K), "timedelta64[s]"), "is of timedelta64[s]"),
}


@pytest.mark.parametrize("form", WRONG)
def test_forms_that_are_refused(form):
    values, message = WRONG[form]

    def body(world):
        gemm = farwarp.Gemm(world, M, N, K, dtype="float16")
        w = np.ones((N, K), np.float16)
        for name, call in (
            ("values", lambda: world.asarray(values)),
            ("values", lambda: world.asarray(values, "float32")),
            ("values", lambda: world.asarray(values, "int64")),
            ("values", lambda: world.empty((M, K), "float32").copy_from(values)),
            ("x", lambda: gemm(values, w)),
        ):
            with pytest.raises(farwarp.InvalidArgumentError, match="^" + re.escape(f"{name} {message}")):
                call()

    alone(body)


@pytest.mark.parametrize(
    "values, dtype",
    (
        ([1.5], "int32"),
        ([float("nan")], "int64"),
        ([300], "uint8"),
        ([-1], "uint8"),
        ([2**31], "int32"),
        ([2**63], "int64"),
        ([float(2**63)], "int64"),
        ([10**6], "float16"),
        ([2**31], np.dtype(">i4")),
    ),
)
def test_numbers_that_do_not_fit(values, dtype):
    def body(world):
        with pytest.raises(
            farwarp.InvalidArgumentError,
            match="^values has .* numbers that .* has not; allowed: whole numbers in its range",
        ):
            world.asarray(values, dtype)

    alone(body)


@pytest.mark.parametrize("values", ([[1.0], [1.0, 2.0]], Broken(), {"a": 1}, None, "12", [1.0, "a"], [10**30]))
def test_what_is_no_array(values):
    def body(world):
        with pytest.raises(farwarp.InvalidArgumentError, match="^values is "):
            world.asarray(values, "float32")

    alone(body)


def test_operators_take_the_other_byte_order():
    x, w, bias = (numbers(shape, np.float16) / 64 for shape in ((M, K), (N, K), (N,)))

    def body(world):
        gemm = farwarp.Gemm(world, M, N, K, bias=True, dtype="float16")
        swap = [array.astype(">f2") for array in (x, w, bias)]
        moe = farwarp.MoeAllToAll(world, 4, 2, 128, 8, dtype="float16")
        rows, indices, weights = (
            np.ones((3, 128), np.float16),
            np.array([[0, 1], [2, 3], [1, -1]], np.int32),
            np.ones((3, 2), np.float32),
        )
        plain = moe.fused(rows, indices, weights).numpy()
        turned = moe.fused(rows.astype(">f2"), indices.astype(">i4"), weights.astype(">f4")).numpy()
        np.testing.assert_array_equal(plain, turned)
        assert (plain[0] == 2).all() and (plain[2] == 1).all()
        return (
            gemm(x, w, bias).numpy(),
            gemm(*swap).numpy(),
            gemm(unaligned(x), w.view(np.matrix), read_only(bias)).numpy(),
        )

    plain, turned, other = alone(body)
    np.testing.assert_array_equal(plain, turned)
    np.testing.assert_array_equal(plain, other)
    np.testing.assert_allclose(plain, x.astype(float) @ w.T.astype(float) + bias, rtol=1e-3)


def test_types_that_share_a_name(monkeypatch):
    assert dtypes.name_of(np.dtype(">f4")) == "float32"
    assert dtypes.name_of(np.dtype("=f4")) == "float32"
    assert dtypes.name_of(None) == "None"
    assert dtypes.name_of(np.dtype([("a", "f4")])).startswith("structured (")
    assert dtypes.name_of(np.dtype(("f4", (2,)))).startswith("structured (")
    torch_like = type("float32", (), {"__module__": "torch", "__repr__": lambda self: "torch.float32"})()
    assert dtypes.name_of(torch_like) not in dtypes.CODES
    if dtypes.ml_dtypes is not None:  # as if NumPy's bfloat16 were another package's
        monkeypatch.setitem(dtypes._EXACT, "bfloat16", np.dtype(np.uint16))
        assert dtypes.name_of(dtypes.ml_dtypes.bfloat16) == "bfloat16 of ml_dtypes"

        def body(world):
            with pytest.raises(farwarp.InvalidArgumentError, match="dtype is bfloat16 of ml_dtypes; allowed: bfloat16"):
                world.asarray(np.ones(3, dtypes.ml_dtypes.bfloat16))

        alone(body)


@pytest.mark.parametrize("dtype", (">f4", "f4", "half", None, 3, object, np.dtype("f8"), "float64", ["float32"]))
def test_types_that_there_are_not(dtype):
    def body(world):
        with pytest.raises(farwarp.InvalidArgumentError, match="^dtype is .*; allowed: bfloat16, float16"):
            world.empty((1,), dtype)
        with pytest.raises(farwarp.InvalidArgumentError, match="^dtype is .*; allowed: bfloat16"):
            farwarp.Gemm(world, 8, 8, 8, dtype=dtype)

    alone(body)


def test_torch_tensors_that_are_refused():
    torch = pytest.importorskip("torch")

    def body(world):
        for values, dtype, message in (
            (torch.ones(2, dtype=torch.complex64), "float32", "values is of complex64"),
            (torch.ones(2, 2).to_sparse(), "float32", "values is of layout torch.sparse_coo"),
            (torch.ones(2, device="meta"), "float32", "values is of layout torch.strided, on meta"),
            (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "float32", "values is quantized"),
            (torch.tensor([1.5]), "int32", "values has float32 numbers that int32 has not"),
            (torch.tensor([300]), "uint8", "values has int64 numbers that uint8 has not"),
            (torch.tensor([10**6]), "float16", "values has int64 numbers that float16 has not"),
        ):
            with pytest.raises(farwarp.InvalidArgumentError, match="^" + re.escape(message)):
                world.asarray(values, dtype)
        negative = torch.tensor([1 + 2j, 3 - 4j]).conj().imag  # of which torch keeps a bit, not the numbers
        assert negative.is_neg()
        assert world.asarray(negative, "float32").numpy().tolist() == [-2.0, 4.0]
        assert world.asarray(torch.ones(3, requires_grad=True)).numpy().tolist() == [1, 1, 1]
        assert world.asarray(torch.ones(2, 3).t()).shape == (3, 2)
        bits = torch.tensor([1.0, -2.5], dtype=torch.bfloat16)
        assert np.asarray(world.asarray(bits).numpy(), np.float32).tolist() == [1.0, -2.5]

    alone(body)
