"""Worlds, arrays and streams; ranks as threads and as processes."""

import concurrent.futures
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import farwarp
from farwarp import _c, dtypes


def alone(function, **options):
    return farwarp.run(function, ranks=1, **options)[0]


def test_run_returns_what_ranks_return():
    assert farwarp.run(
        lambda world, factor: (world.rank * factor, world.size, world.target), ranks=3, target="emu_gfx942", args=(10,)
    ) == [(rank * 10, 3, "emu_gfx942") for rank in range(3)]


def test_run_ends_where_a_thread_cannot_start(monkeypatch):
    start, destroy, destroyed = threading.Thread.start, _c.lib.threads_destroy, []

    def limited(thread):
        if thread.name == "rank 2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    monkeypatch.setattr(_c.lib, "threads_destroy", lambda handle: destroyed.append(handle) or destroy(handle))
    with pytest.raises(RuntimeError, match="can't start new thread"):
        farwarp.run(lambda world: None, ranks=3, deadline=0.5)
    assert len(destroyed) == 1 and not [thread for thread in threading.enumerate() if thread.name.startswith("rank ")]


@pytest.mark.parametrize("dtype", ("bfloat16", "float16", "float32", "int32", "int64", "uint8"))
@pytest.mark.parametrize("shape", ((), (0,), (3,), (2, 3, 4)))
def test_arrays(dtype, shape):
    def copy(world):
        values = np.arange(int(np.prod(shape))).reshape(shape)
        array = world.asarray(values, dtype)
        assert (array.shape, array.dtype, array.nbytes) == (shape, dtype, values.size * dtypes.item_bytes(dtype))
        assert world.asarray(array) is array
        got = array.numpy()
        assert got.dtype.name == dtype
        np.testing.assert_array_equal(got.astype(np.int64), values)
        assert not world.zeros(shape, dtype).numpy().astype(bool).any()
        np.testing.assert_array_equal(world.asarray(got).numpy(), got)

    alone(copy)


def test_bfloat16_without_ml_dtypes(monkeypatch):
    monkeypatch.setattr(dtypes, "ml_dtypes", None)

    def copy(world):
        got = world.asarray([1, 2.5, 1 + 2**-9], "bfloat16").numpy()
        assert got.dtype == np.float32
        return got.tolist()

    assert alone(copy) == [1, 2.5, 1]


def test_numbers_that_do_not_fit():
    def copy(world):
        for values, dtype in (([1.5], "int32"), ([300], "uint8"), ([2**40], "int32")):
            with pytest.raises(farwarp.InvalidArgumentError, match=f"numbers that {dtype} has not"):
                world.asarray(values, dtype)
        with pytest.raises(farwarp.InvalidArgumentError, match=r"values has shape \(2,\); allowed: \(3,\)"):
            world.zeros((3,), "int32").copy_from([1, 2])
        with pytest.raises(farwarp.InvalidArgumentError, match="dtype is float64; allowed: bfloat16"):
            world.asarray([1.5])

    alone(copy)


def test_streams():
    def call(world):
        gemm = farwarp.Gemm(world, 8, 16, 64, dtype="float16")
        streams = [world.stream() for _ in range(3)]
        results = []
        for i, stream in enumerate(streams):
            x, w = (world.asarray(np.full(shape, i + 1), "float16", stream=stream) for shape in ((8, 64), (16, 64)))
            results.append(gemm(x, w, stream=stream))
            stream.synchronize()
        return [result.numpy().max() for result in results]

    assert alone(call) == [64, 4 * 64, 9 * 64]


def test_dropped_arrays_wait_for_the_device():
    """Inputs are dropped while calls that read them are still to run, and more than the world keeps before it waits."""

    def call(world):
        gemm = farwarp.Gemm(world, 8, 64, 64, dtype="float16")
        total = world.zeros((8, 64), "float16")
        for i in range(300):
            gemm(np.full((8, 64), i % 3, np.float16), np.ones((64, 64), np.float16), out=total)
        most = len(world.memory)
        return total.numpy().max(), most, len(world.memory)

    result, most, afterwards = alone(call)
    assert result == 64 * (299 % 3)
    assert most < 600 and afterwards == 1


def test_recover():
    def call(world):
        product = farwarp.GemmAllReduce(world, 8, 16, 64, dtype="float16")
        x, w = np.ones((8, 32), np.float16), np.ones((16, 32), np.float16)
        if world.rank == 0:  # rank 1 does not come
            with pytest.raises(farwarp.DeadlineError, match="rank 0 waited .* for rank 1"):
                product(x, w).numpy()
            with pytest.raises(farwarp.DeadlineError):
                world.check()
        world.recover()
        world.check()
        return product(x, w).numpy()

    for got in farwarp.run(call, ranks=2, deadline=0.5):
        assert (got == 64).all()


def test_failures_that_nobody_asks_for():
    def call(world):
        product = farwarp.GemmAllReduce(world, 8, 16, 64, dtype="float16")
        if world.rank == 0:
            product(np.ones((8, 32), np.float16), np.ones((16, 32), np.float16))

    with pytest.raises(farwarp.DeadlineError, match="rank 0 waited .* for rank 1"):
        farwarp.run(call, ranks=2, deadline=0.5)


def script(text, *command, environment=None, timeout=50):
    """Runs a program of its own: (exit status, all output)."""
    done = subprocess.run(
        [*command, sys.executable, "-c", textwrap.dedent(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        env={**os.environ, **(environment or {})},
    )
    return done.returncode, done.stdout


PRODUCT = """
    import farwarp, numpy as np
    with farwarp.World(target="emu_sm90") as world:
        product = farwarp.GemmAllReduce(world, 8, 16, 64 * world.size, dtype="float16")
        y = product(np.ones((8, 64), np.float16), np.ones((16, 64), np.float16)).numpy()
        print(f"rank {world.rank} of {world.size}: {y.min()} {y.max()}")
"""


def test_one_rank_alone():
    assert script(PRODUCT) == (0, "rank 0 of 1: 64.0 64.0\n")


def test_processes_of_a_launcher():
    from farwarp import __main__ as program

    if not os.path.exists(program.path()):
        pytest.skip("the package has no program")  # tests of a source tree
    status, output = script(PRODUCT, program.path(), "launch", "-n", "3", "--")
    assert status == 0, output
    for rank in range(3):
        assert f"rank {rank} of 3: 192.0 192.0\n" in output


MODEL = """
    import farwarp
    with farwarp.Qwen3.random("nano4", target="emu_sm90", positions=16, max_sms=2) as model:
        print(f"rank {model.world.rank} of {model.world.size}")
"""


@pytest.mark.parametrize("program", (PRODUCT, MODEL))
def test_environment_that_is_wrong(program):
    for environment, message in (
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'; allowed: "),
        ({"PMI_RANK": "0", "PMI_SIZE": "two"}, "PMI_SIZE is 'two'; allowed: "),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "FARWARP_RENDEZVOUS is not set"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
            "but SLURM_PROCID is 1 and SLURM_NTASKS is 2 (srun)",
        ),
    ):
        status, output = script(program, environment=environment)
        assert status == 1 and "InvalidArgumentError: " in output and message in output, output


@pytest.mark.parametrize(
    "names",
    (("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE")),
)
@pytest.mark.parametrize("program", (PRODUCT, MODEL))
def test_processes_of_other_launchers(program, names):
    name = f"test-{os.getpid()}-{names[0]}"
    environments = [{names[0]: str(rank), names[1]: "2", "FARWARP_RENDEZVOUS": name} for rank in range(2)]
    with concurrent.futures.ThreadPoolExecutor() as threads:
        results = list(threads.map(lambda environment: script(program, environment=environment), environments))
    for rank, (status, output) in enumerate(results):
        assert status == 0 and f"rank {rank} of 2" in output, output


def test_two_worlds_of_one_thread():
    def call(world):
        with farwarp.World(target="emu_gfx942", heap_bytes=1 << 20) as other:
            return (
                farwarp.Gemm(other, 8, 8, 8, dtype="float16")(np.ones((8, 8), np.float16), np.ones((8, 8), np.float16))
                .numpy()
                .max()
            )

    assert alone(call) == 8
