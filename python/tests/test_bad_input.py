"""Every mistake raises, with the parameter, its value and what is allowed."""

import re
import threading
import time

import numpy as np
import pytest

import farwarp

M, N, K = 8, 16, 64
ONES = {name: np.ones(shape, np.float16) for name, shape in (("x", (M, K)), ("w", (N, K)), ("bias", (N,)))}


def alone(function, **options):
    return farwarp.run(function, ranks=1, **options)[0]


def gemm_of(world, **options):
    return farwarp.Gemm(world, M, N, K, dtype="float16", **options)


@pytest.mark.parametrize(
    "name, value, message",
    (
        ("x", np.ones((M, K), np.float32), "x is of float32; allowed: float16"),
        ("x", np.ones((M, K), np.complex64), "x is of complex64; allowed: bfloat16, float16, "),
        ("x", np.ones((K, M), np.float16), "x has shape [64, 8]; allowed: [8, 64]"),
        ("x", np.ones(M * K, np.float16), "x has shape [512]; allowed: [8, 64]"),
        (
            "x",
            np.ones((M, 2 * K), np.float16)[:, ::2],
            "x has strides (128, 2) for shape (8, 64); allowed: a contiguous tensor",
        ),
        ("w", ONES["w"].T, "w has strides (1, 64) for shape (64, 16); allowed: a contiguous tensor"),
        ("x", [[1.0]], "x is a list; allowed: a farwarp.Array, a numpy.ndarray, a torch.Tensor"),
        ("w", None, "w is a NoneType; allowed: a farwarp.Array"),
        ("bias", ONES["bias"], "bias is given; allowed: NULL, as the descriptor says"),
        ("out", np.ones((M, N), np.float16), "out is a ndarray; allowed: a farwarp.Array, as World.empty() makes"),
        ("stream", "first", "stream is a str; allowed: None, a farwarp.Stream, a torch.cuda.Stream, a handle"),
    ),
)
def test_tensors(name, value, message):
    def call(world):
        arguments = {"x": ONES["x"], "w": ONES["w"], name: value}
        gemm = gemm_of(world)
        with pytest.raises(farwarp.InvalidArgumentError, match=re.escape(message)):
            gemm(**arguments)
        return gemm(ONES["x"], ONES["w"]).numpy()  # still works

    assert (alone(call) == K).all()


def test_output_of_another_shape():
    def call(world):
        with pytest.raises(farwarp.InvalidArgumentError, match=re.escape("y has shape [16, 8]; allowed: [8, 16]")):
            gemm_of(world)(ONES["x"], ONES["w"], out=world.empty((N, M), "float16"))

    alone(call)


@pytest.mark.parametrize(
    "options, message",
    (
        ({"m": 0}, "m is 0; allowed"),
        ({"n": 7}, "n is 7; allowed"),
        ({"m": 2.5}, "m is 2.5; allowed: a whole number"),
        ({"m": 2**40}, "m is 1099511627776; allowed: a number of 32 bits"),
        ({"dtype": "float32"}, "dtype is float32; allowed: bfloat16, float16"),
        ({"dtype": "tf32"}, "dtype is tf32; allowed: bfloat16"),
        ({"max_sms": -1}, "max_sms is -1; allowed"),
    ),
)
def test_descriptors(options, message):
    def create(world):
        with pytest.raises(ValueError, match=re.escape(message)):
            farwarp.Gemm(world, **{"m": M, "n": N, "k": K, **options})

    alone(create)


@pytest.mark.parametrize(
    "options, message",
    (
        ({"scaling": "none"}, "scaling is 'none'; allowed: blocks, rows, tensor"),
        (
            {"scaling": "rows", "x_scale_by_column": True},
            "x_scale_by_column is 1; allowed: 0, or 1 with scaling blocks",
        ),
        ({"x_scale_by_column": 2}, "x_scale_by_column is 2; allowed"),
        ({"k": 72}, "k is 72; allowed: a multiple of 16"),
    ),
)
def test_descriptors_of_fp8_gemm(options, message):
    def create(world):
        with pytest.raises(ValueError, match=re.escape(message)):
            farwarp.Fp8Gemm(world, **{"m": M, "n": N, "k": 64, **options})

    alone(create)


def test_fp8_gemm_on_cdna():
    with pytest.raises(farwarp.InvalidArgumentError, match="scaling is blocks; allowed: none"):
        farwarp.run(lambda world: farwarp.Fp8Gemm(world, 8, 16, 64), ranks=1, target="emu_gfx942")


def test_path_that_there_is_not():
    with pytest.raises(farwarp.InvalidArgumentError, match="path is 'fast'; allowed: own, unfused, best"):
        alone(lambda world: farwarp.GemmAllReduce(world, M, N, K, path="fast"))


@pytest.mark.parametrize(
    "options, kind, message",
    (
        (
            {"target": "tpu"},
            farwarp.InvalidArgumentError,
            "target is 'tpu'; allowed: auto, cuda, hip, emu_sm90, emu_gfx942",
        ),
        ({"device": 8}, farwarp.InvalidArgumentError, "device is 8, allowed for emu_sm90 on this machine are 0 to 7"),
        ({"deadline": 0}, farwarp.InvalidArgumentError, "deadline is 0; allowed: 0.001 to 86400 seconds"),
        (
            {"deadline": "long"},
            farwarp.InvalidArgumentError,
            "deadline is 'long'; allowed: 0.001 to 86400 seconds",
        ),
        (
            {"deadline": float("inf")},
            farwarp.InvalidArgumentError,
            "deadline is inf; allowed: 0.001 to 86400 seconds",
        ),
        ({"device": "gpu"}, farwarp.InvalidArgumentError, "device is 'gpu'; allowed: a whole number"),
        ({"heap_bytes": -1}, farwarp.InvalidArgumentError, "heap_bytes is -1; allowed: a number of 64 bits, 0 or more"),
        (
            {"group": "all"},
            farwarp.InvalidArgumentError,
            "group is a str; allowed: None, a torch.distributed.ProcessGroup",
        ),
    ),
)
def test_worlds(options, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        farwarp.World(**{"target": "emu_sm90", **options})


@pytest.mark.parametrize("ranks", (0, 9))
def test_numbers_of_ranks(ranks):
    with pytest.raises(farwarp.InvalidArgumentError, match=f"ranks is {ranks}; allowed: 1 to 8"):
        farwarp.run(print, ranks=ranks)


def test_heap_without_room():
    def create(world):
        with pytest.raises(farwarp.OutOfMemoryError):
            farwarp.GemmAllReduce(world, 4096, 4096, 4096)

    farwarp.run(create, ranks=2, heap_bytes=1 << 20)


def test_closed():
    def close(world):
        gemm, array = gemm_of(world), world.zeros((M, N), "float16")
        gemm.close()
        gemm.close()
        with pytest.raises(farwarp.MisuseError, match="Gemm is closed; allowed: calls before close()"):
            gemm(ONES["x"], ONES["w"])
        with gemm_of(world) as other:
            pass
        world.close()
        world.close()
        for call in (
            lambda: other(ONES["x"], ONES["w"]),
            lambda: gemm_of(world),
            array.numpy,
            world.check,
            world.synchronize,
            world.stream,
            world.recover,
            lambda: world.empty((1,), "int32"),
            world.__enter__,
        ):
            with pytest.raises(farwarp.MisuseError, match="the World is closed; allowed: a World that is open"):
                call()

    alone(close)


def test_array_and_stream_of_another_world():
    def call(world, arrays, barrier):
        arrays[world.rank] = world.zeros((M, K), "float16"), world.stream()
        barrier.wait()
        with pytest.raises(
            farwarp.InvalidArgumentError, match="x is of farwarp.World.rank . of 2, emu_sm90.; allowed: an Array of"
        ):
            gemm_of(world)(arrays[1 - world.rank][0], ONES["w"])
        with pytest.raises(
            farwarp.InvalidArgumentError,
            match="stream is of farwarp.World.rank . of 2, emu_sm90.; allowed: a stream of",
        ):
            world.zeros((1,), "int32").copy_from([1], stream=arrays[1 - world.rank][1])
        barrier.wait()

    arrays = [None, None]
    farwarp.run(call, ranks=2, args=(arrays, threading.Barrier(2)))


def test_call_under_way():
    def call(world):
        moe = farwarp.MoeAllToAll(world, 4, 1, 64, 4)
        with pytest.raises(farwarp.MisuseError, match="dispatch.* comes first"):
            moe.combine(world.zeros((moe.recv_rows, 64), "bfloat16"))

    alone(call)


def test_ranks_that_disagree():
    def create(world):
        with pytest.raises(farwarp.MismatchError):
            farwarp.GemmAllReduce(world, M, N if world.rank else 2 * N, K)
        with pytest.raises(
            farwarp.InvalidArgumentError, match="^(rank 1: )?dtype is int32"
        ):  # one rank's mistake is told to all
            farwarp.GemmAllReduce(world, M, N, K, dtype="int32" if world.rank else "bfloat16")

    farwarp.run(create, ranks=2)


def test_operators_for_another_number_of_ranks():
    def create(world):
        with pytest.raises(farwarp.InvalidArgumentError, match="kv_shards is 3; allowed: 1, or 2, the World's size"):
            farwarp.FlashDecode(world, 2, 2, 1, 64, pages=4, max_pages=2, kv_shards=3)
        with pytest.raises(farwarp.InvalidArgumentError, match="m is 7; allowed: a multiple of .*2"):
            farwarp.GemmReduceScatter(world, 7, N, K)

    farwarp.run(create, ranks=2)


class Odd(Exception):
    pass


@pytest.mark.parametrize("where", ("at once", "others wait in a kernel", "others wait on the host"))
def test_exception_on_one_rank(where):
    def body(world):
        product = farwarp.GemmAllReduce(world, M, N, K * world.size, dtype="float16")
        if world.rank == 2:
            raise Odd(where)
        if where == "others wait in a kernel":
            product(ONES["x"], ONES["w"]).numpy()
        elif where == "others wait on the host":
            product.close()

    start = time.monotonic()
    with pytest.raises(Odd, match=where):
        farwarp.run(body, ranks=4)
    assert time.monotonic() - start < 5  # the deadline is 10 s


def test_target_without_devices():
    target = next(name for name in ("hip", "cuda") if farwarp.device_count(name) == 0)
    with pytest.raises(farwarp.UnavailableError):
        farwarp.run(lambda world: None, ranks=2, target=target)
    assert farwarp.choose_target("auto") != target
