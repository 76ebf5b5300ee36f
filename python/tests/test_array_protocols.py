"""Arrays as other libraries see them: __array__, __dlpack__, __dlpack_device__."""

import gc

import numpy as np
import pytest

import farwarp
from farwarp import _c, dlpack
from test_world import script

NUMBERS = np.arange(12, dtype=np.float32).reshape(3, 4)


def alone(function, **options):
    return farwarp.run(function, ranks=1, **options)[0]


def test_numpy_copies():
    def body(world):
        array = world.asarray(NUMBERS)
        for found in (np.asarray(array), np.array(array), np.array(array, copy=True)):
            np.testing.assert_array_equal(found, NUMBERS)
            found[0, 0] = 7
        assert array.numpy()[0, 0] == 0
        assert np.asarray(array, np.float64).dtype == np.float64 and np.asarray(array).dtype == np.float32
        np.testing.assert_array_equal(np.stack([array, array]), np.stack([NUMBERS, NUMBERS]))
        with pytest.raises(ValueError, match="^copy is False; allowed: True or None"):
            array.__array__(copy=False)
        with pytest.raises(farwarp.InvalidArgumentError, match="^values is a farwarp.Array"):
            array.copy_from(array)

    alone(body)


@pytest.mark.parametrize("dtype", ("float16", "float32", "int32", "int64", "uint8"))
@pytest.mark.parametrize("shape", ((), (0,), (5,), (2, 3, 4), (2, 0, 3)))
def test_dlpack_lends_the_memory(dtype, shape):
    def body(world):
        values = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
        array = world.asarray(values)
        assert array.__dlpack_device__() == (_c.CPU, 0)
        view = np.from_dlpack(array)
        assert view.dtype == np.dtype(dtype) and view.shape == shape and view.flags.c_contiguous
        np.testing.assert_array_equal(view, values)
        array.copy_from(np.ones(shape, dtype)).numpy()
        assert (view == 1).all()

    alone(body)


def test_dlpack_waits_for_what_writes_the_array():
    def body(world):
        gemm = farwarp.Gemm(world, 64, 64, 64, dtype="float16")
        ones, stream = world.asarray(np.ones((64, 64), np.float16)), world.stream()
        return np.from_dlpack(gemm(ones, ones, stream=stream)).copy()

    assert (alone(body) == 64).all()


def test_what_is_lent_lives_as_long_as_its_reader():
    """Also when the Array was dropped and when the world is closed; afterwards nothing is left of it."""

    def body(world):
        array = world.asarray(NUMBERS)
        view = np.from_dlpack(array)
        del array
        world.synchronize()
        assert len(world.memory) == 1
        np.testing.assert_array_equal(view, NUMBERS)
        del view
        gc.collect()
        world.synchronize()
        assert not world.memory
        return np.from_dlpack(world.asarray(NUMBERS))

    view = alone(body)
    np.testing.assert_array_equal(view, NUMBERS)
    del view
    gc.collect()
    assert not dlpack.given()


def test_a_capsule_that_nobody_takes():
    def body(world):
        array = world.asarray(NUMBERS)
        for options in (
            {},
            {"max_version": (1, 1)},
            {"max_version": (0, 8)},
            {"stream": -1},
            {"dl_device": (_c.CPU, 0)},
            {"copy": False},
        ):
            capsule = array.__dlpack__(**options)
            assert len(dlpack.given()) == 1
            assert ("dltensor_versioned" in repr(capsule)) == (options.get("max_version") == (1, 1))
            del capsule
            assert not dlpack.given()

    alone(body)


def test_what_dlpack_refuses():
    def body(world):
        array = world.asarray(NUMBERS)
        for options, message in (
            ({"dl_device": (_c.CUDA, 0)}, r"^dl_device is \(2, 0\); allowed: \(1, 0\)"),
            ({"copy": True}, "^copy is True; allowed: None or False"),
            ({"stream": "x"}, "^stream is 'x'; allowed: None, -1"),
            ({"stream": -2}, "^stream is -2; allowed: None, -1"),
        ):
            with pytest.raises(BufferError, match=message):
                array.__dlpack__(**options)
        return array

    with pytest.raises(farwarp.MisuseError, match="the World is closed"):
        alone(body).__dlpack__()


def test_a_failed_call_is_raised():
    def body(world):
        moe = farwarp.MoeAllToAll(world, 4, 1, 128, 8)
        received = moe.dispatch(
            np.zeros((1, 128), np.uint16).view(bf16), np.full((1, 1), 99, np.int32), np.ones((1, 1), np.float32)
        )
        with pytest.raises(farwarp.BadInputError):
            np.from_dlpack(received.counts)
        world.recover()

    bf16 = pytest.importorskip("ml_dtypes").bfloat16
    alone(body)


def test_a_reader_at_the_end_of_the_process():
    assert script("""
        import farwarp, numpy as np
        world = farwarp.World(target="emu_sm90", heap_bytes=1 << 20)
        view = np.from_dlpack(world.asarray(np.ones(1000).astype(np.float32)))
        world.close()
        print(view.sum())
    """) == (0, "1000.0\n")


@pytest.mark.parametrize("dtype", ("bfloat16", "float32", "int64"))
def test_torch_reads_the_memory(dtype):
    torch = pytest.importorskip("torch")

    def body(world):
        array = world.asarray(NUMBERS, dtype)
        view = torch.from_dlpack(array)
        assert view.dtype == getattr(torch, dtype) and torch.equal(view, array.torch())
        view[1, 1] = 99
        assert array.numpy().astype(np.float32)[1, 1] == 99

    alone(body)
