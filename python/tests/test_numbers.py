"""Numbers, durations, streams and flags that are not what a door takes.

They are refused under the caller's name, none is converted silently.
"""

import re
import threading
import time

import numpy as np
import pytest

import farwarp
from farwarp import arguments

X, W = np.ones((8, 64), np.float16), np.ones((16, 64), np.float16)


def alone(function, **options):
    return farwarp.run(function, ranks=1, **options)[0]


def refused(message):
    return pytest.raises(farwarp.InvalidArgumentError, match="^" + re.escape(message))


NOT_WHOLE = (True, np.True_, 2.0, np.float32(2), "2", b"2", None, 1j, [2], np.array([2]), float("nan"))
NOT_REAL = (True, "1", b"1", None, 1j, np.complex64(1), [1.0], np.array([1.0]), float("nan"), float("inf"), 10**400)


@pytest.mark.parametrize("value", NOT_WHOLE)
def test_sizes_are_whole_numbers(value):
    def body(world):
        shown = arguments.shown(value)
        with refused(f"m is {shown}; allowed: a whole number"):
            farwarp.Gemm(world, value, 16, 64)
        with refused(f"shape[1] is {shown}; allowed: a whole number"):
            world.empty((1, value), "uint8")
        with refused(f"max_elements is {shown}; allowed: a whole number"):
            farwarp.AllReduce(world, value)

    alone(body)
    with refused(f"ranks is {arguments.shown(value)}; allowed: a whole number"):
        farwarp.run(print, ranks=value)


def test_whole_numbers_of_other_libraries():
    def body(world):
        gemm = farwarp.Gemm(world, np.int64(8), np.uint8(16), np.array(64), dtype="float16")
        assert world.zeros(np.array([2, 3]), "uint8").shape == (2, 3)
        return gemm(X, W).numpy()

    assert (farwarp.run(body, ranks=np.int32(1), deadline=np.float32(10))[0] == 64).all()
    torch = pytest.importorskip("torch")

    def with_torch(world):
        sizes = torch.ones(2, 3).shape
        assert world.empty(sizes, torch.float32).shape == (2, 3)
        assert world.empty((torch.tensor(2),), "uint8").shape == (2,)
        with refused("shape[0] is tensor(2.5000); allowed: a whole number"):
            world.empty((torch.tensor(2.5),), "uint8")

    alone(with_torch)


@pytest.mark.parametrize("ranks", (2**32 + 1, 2**64, -(2**32) + 1, 0, 9, -1))
def test_ranks_out_of_range(ranks):
    with refused(f"ranks is {ranks}; allowed: 1 to 8"):
        farwarp.run(print, ranks=ranks)


@pytest.mark.parametrize(
    "shape, message",
    (
        ((2**62 + 16, 4), "shape is (4611686018427387920, 4); allowed: up to 2**63 - 1 bytes"),
        ((2**61, 4), "shape is (2305843009213693952, 4); allowed: up to 2**63 - 1 bytes"),
        ((2**64, 0), "shape is (18446744073709551616, 0); allowed: up to 2**63 - 1 bytes"),
        ((2**64,), "shape is (18446744073709551616,); allowed: up to 2**63 - 1 bytes"),
        ((-1,), "shape is (-1,); allowed: sizes of 0 or more"),
        (5, "shape is 5; allowed: a sequence of sizes"),
        ("12", "shape is '12'; allowed: a sequence of sizes"),
        (None, "shape is None; allowed: a sequence of sizes"),
    ),
)
def test_shapes_that_no_memory_has(shape, message):
    def body(world):
        for make in (world.empty, world.zeros):
            with refused(message):
                make(shape, "float32")

    alone(body)


def test_more_memory_than_there_is():
    def body(world):
        for elements in (2**40, 2**60, 2**63 - 1):
            with pytest.raises(farwarp.OutOfMemoryError):
                world.empty((elements,), "uint8")

    alone(body)


@pytest.mark.parametrize("value", (*NOT_REAL, 0, -1, 0.0005, 1e10, 1e300))
def test_durations(value):
    message = f" is {arguments.shown(value)}; allowed: 0.001 to "
    with refused("deadline" + message + "86400 seconds"):
        farwarp.run(print, ranks=1, deadline=value)
    with refused("deadline" + message + "86400 seconds"):
        farwarp.World(target="emu_sm90", deadline=value)

    def body(world):
        with refused("timeout" + message + "1000000000 seconds"):
            world.synchronize(timeout=value)
        with refused("timeout" + message + "1000000000 seconds"):
            world.stream().synchronize(value)

    alone(body)


def test_a_deadline_of_more_than_a_day_is_refused():
    with refused("deadline is 86401; allowed: 0.001 to 86400 seconds"):
        farwarp.World(target="emu_sm90", deadline=86401)
    farwarp.World(target="emu_sm90", deadline=86400).close()


@pytest.mark.parametrize(
    "stream, message",
    (
        (2**70, "stream is 1180591620717411303424; allowed: 0 to 18446744073709551615"),
        (2**64, "stream is 18446744073709551616; allowed: 0 to 18446744073709551615"),
        (-1, "stream is -1; allowed: 0 to "),
        (4711, "stream is 4711; allowed on the emulator: 0, the handle of a stream of World.stream()"),
        (2**32, "stream is 4294967296; allowed on the emulator: 0,"),
        (True, "stream is a bool; allowed: None, a farwarp.Stream, a torch.cuda.Stream, a handle"),
        (1.0, "stream is a float; allowed: None, "),
        ("0", "stream is a str; allowed: None, "),
    ),
)
def test_streams(stream, message):
    def body(world):
        gemm, x = farwarp.Gemm(world, 8, 16, 64, dtype="float16"), world.asarray(X)
        for call in (
            lambda: gemm(x, W, stream=stream),
            lambda: world.synchronize(stream),
            lambda: world.asarray(X, stream=stream),
            lambda: x.numpy(stream),
        ):
            with refused(message):
                call()
        own = world.stream()
        world.synchronize()
        return gemm(x, W, stream=np.int64(own.handle)).numpy()

    assert (alone(body) == 64).all()


@pytest.mark.parametrize("value", ("False", "", None, 2, -1, 0.0, [], np.array([True])))
def test_flags(value):
    message = f" is {arguments.shown(value)}; allowed: True, False"

    def body(world):
        for name, make in (
            ("bias", lambda: farwarp.Gemm(world, 8, 16, 64, bias=value)),
            ("bias", lambda: farwarp.GemmAllReduce(world, 8, 16, 64, bias=value)),
            ("return_x", lambda: farwarp.AllGatherGemm(world, 8, 16, 64, return_x=value)),
            ("causal", lambda: farwarp.Attention(world, 1, 2, 2, 64, 4, 4, causal=value)),
            ("lse", lambda: farwarp.Attention(world, 1, 2, 2, 64, 4, 4, lse=value)),
            ("key_counts", lambda: farwarp.Attention(world, 1, 2, 2, 64, 4, 4, key_counts=value)),
            ("lse", lambda: farwarp.FlashDecode(world, 1, 2, 2, 64, pages=2, max_pages=2, lse=value)),
            ("fp8_cache", lambda: farwarp.FlashDecode(world, 1, 2, 2, 64, pages=2, max_pages=2, fp8_cache=value)),
            ("round_scales", lambda: farwarp.MoeAllToAll(world, 4, 2, 128, 8, round_scales=value)),
            ("weights_at_combine", lambda: farwarp.MoeAllToAll(world, 4, 2, 128, 8, weights_at_combine=value)),
        ):
            with refused(name + message):
                make()
        assert not world.operators

    alone(body)


@pytest.mark.parametrize("value", (*NOT_REAL, 1e39, -1e300))
def test_floats(value):
    def body(world):
        for make in (
            lambda: farwarp.Attention(world, 1, 2, 2, 64, 4, 4, scale=value),
            lambda: farwarp.FlashDecode(world, 1, 2, 2, 64, pages=2, max_pages=2, scale=value),
        ):
            with refused("scale is "):
                make()

    alone(body)


def test_choices_and_devices():
    for options, message in (
        ({"device": 2**32}, "device is 4294967296; allowed: a number of 32 bits"),
        ({"device": -5}, "device is -5; allowed: -1 or more"),
        ({"device": True}, "device is True; allowed: a whole number"),
        ({"heap_bytes": 2**64}, "heap_bytes is 18446744073709551616; allowed: a number of 64 bits"),
        ({"heap_bytes": 1e6}, "heap_bytes is 1000000.0; allowed: a whole number"),
        ({"target": ["cuda"]}, "target is ['cuda']; allowed: auto, cuda"),
        ({"target": np.array(["cuda", "hip"])}, "target is array("),
        ({"target": None}, "target is None; allowed: auto, cuda"),
    ):
        with refused(message):
            farwarp.World(**{"target": "emu_sm90", **options})

    def body(world):
        for path in (np.array(["own", "best"]), ["own"], None, 0):
            with refused(f"path is {arguments.shown(path)}; allowed: own, unfused, best"):
                farwarp.GemmAllReduce(world, 8, 16, 64, path=path)
        for kind, arguments_of in (
            (farwarp.Gemm, (8, 16, 64)),
            (farwarp.AllReduce, (64,)),
            (farwarp.MoeAllToAll, (4, 2, 128, 8)),
            (farwarp.MoeRowsAllToAll, (4, 2, 128, 8)),
        ):
            with refused("world is a NoneType; allowed: a farwarp.World"):
                kind(None, *arguments_of)

    alone(body)


def test_qwen3():
    for options, message in (
        ({"seed": -1}, "seed is -1; allowed: a number of 64 bits, 0 or more"),
        ({"seed": 2**64}, "seed is 18446744073709551616; allowed: a number of 64 bits"),
        ({"sequences": True}, "sequences is True; allowed: a whole number"),
        ({"positions": 2**32 + 32}, "positions is 4294967328; allowed: a number of 32 bits"),
        ({"ranks": 2**32 + 1}, "ranks is 4294967297; allowed: 1 to 8"),
        ({"device": 2**32}, "device is 4294967296; allowed: 0 to 2147483647"),
    ):
        with refused(message):
            farwarp.Qwen3.heap_bytes("random:nano", **{"target": "emu_sm90", **options})
    for model in ("random:nano\0", 3, None):
        with refused(f"model is {model!r}; allowed: "):
            farwarp.Qwen3.heap_bytes(model, target="emu_sm90")

    def body(world):
        with farwarp.Qwen3.random("nano", world, positions=32, max_sms=2) as model:
            for prompt, options, message in (
                ([1.5], {}, "prompt[0] is 1.5; allowed: a whole number"),
                ([1, -1], {}, "prompt[1] is -1; allowed: 0 to "),
                ([1, 2**32], {}, "prompt[1] is 4294967296; allowed: 0 to "),
                ([1], {"max_tokens": 2.5}, "max_tokens is 2.5; allowed: a whole number"),
                ([1], {"max_tokens": "3"}, "max_tokens is '3'; allowed: a whole number"),
                ([1], {"tokens_per_launch": 0}, "tokens_per_launch is 0; allowed: 1 or more"),
                ([1], {"temperature": "1"}, "temperature is '1'; allowed: a number"),
                ([1], {"top_k": 2**32}, "top_k is 4294967296; allowed: a number of 32 bits"),
            ):
                with refused(message):
                    list(model.stream(prompt, **{"max_tokens": 3, **options}))
            assert model.generate(np.array([5, 6]), 3) == model.generate([5, 6], 3)

    alone(body)


def test_inputs_without_a_shape():
    def body(world):
        moe = farwarp.MoeAllToAll(world, 4, 2, 128, 8)
        indices, weights = np.zeros((1, 2), np.int32), np.zeros((1, 2), np.float32)
        for call in (lambda: farwarp.AllReduce(world, 64)([1.0]), lambda: moe.fused([[1.0]], indices, weights)):
            with refused("x is a list; allowed: a farwarp.Array, a numpy.ndarray, a torch.Tensor"):
                call()

    alone(body)


@pytest.mark.parametrize("ranks", (1, 2, 4))
def test_run_in_run(ranks):
    """Four kernels of four worlds that wait for peers do not fit on the same devices."""

    def inner(world):
        return farwarp.GemmAllReduce(world, 8, 16, 64 * world.size, dtype="float16")(X, W).numpy()

    def outer(world):
        before = inner(world)
        nested = farwarp.run(inner, ranks=4, deadline=60.0)
        return [before, inner(world)], nested

    for own, nested in farwarp.run(outer, ranks=ranks, deadline=60.0):
        assert all((y == 64 * ranks).all() for y in own)
        assert all((y == 256).all() for y in nested)


def test_a_run_in_run_that_does_not_end():
    end = threading.Event()

    def outer(world):
        if world.rank == 0:
            return farwarp.run(lambda _: end.wait(60), ranks=1)
        time.sleep(0.3)
        with pytest.raises(
            farwarp.MisuseError, match="another rank's run\\(\\) has not ended within 0.2 s; allowed: one at a time"
        ):
            farwarp.run(lambda _: None, ranks=1, deadline=0.2)
        end.set()

    farwarp.run(outer, ranks=2)


def test_runs_of_several_threads():
    def body(world):
        return farwarp.GemmAllReduce(world, 8, 16, 64 * world.size, dtype="float16")(X, W).numpy()

    found = []
    threads = [
        threading.Thread(target=lambda: found.append(farwarp.run(body, ranks=4, deadline=60.0))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert all((y == 256).all() for each in found for y in each)


def test_a_run_of_another_thread_that_does_not_end():
    begun, end = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: farwarp.run(lambda _: (begun.set(), end.wait(60)), ranks=1))
    other.start()
    begun.wait(60)
    with pytest.raises(
        farwarp.MisuseError, match="another thread's run\\(\\) has not ended within 0.2 s; allowed: one at a time"
    ):
        farwarp.run(lambda _: None, ranks=1, deadline=0.2)
    end.set()
    other.join()
    assert farwarp.run(lambda world: world.size, ranks=2) == [2, 2]
