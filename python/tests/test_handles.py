"""Handles are not copied, threads take turns, memory lives until nothing can use it, and results lie apart."""

import asyncio
import concurrent.futures
import copy
import ctypes
import pickle
import re
import threading

import numpy as np
import pytest

import farwarp
from farwarp import _c
from test_world import script

X, W = np.ones((8, 64), np.float16), np.ones((16, 64), np.float16)


def alone(function, **options):
    return farwarp.run(function, ranks=1, **options)[0]


def gemm_of(world):
    return farwarp.Gemm(world, 8, 16, 64, dtype="float16")


OBJECTS = {
    "World": lambda world: world,
    "Stream": lambda world: world.stream(),
    "Array": lambda world: world.asarray(X),
    "Gemm": gemm_of,
    "GemmAllReduce": lambda world: farwarp.GemmAllReduce(world, 8, 16, 64),
    "AllReduce": lambda world: farwarp.AllReduce(world, 64),
    "MoeAllToAll": lambda world: farwarp.MoeAllToAll(world, 4, 2, 128, 8),
    "MoeRowsAllToAll": lambda world: farwarp.MoeRowsAllToAll(world, 4, 2, 128, 8),
    "Attention": lambda world: farwarp.Attention(world, 1, 2, 2, 64, 4, 4),
    "FlashDecode": lambda world: farwarp.FlashDecode(world, 1, 2, 2, 64, pages=2, max_pages=2),
    "Qwen3": lambda world: farwarp.Qwen3.random("nano", world, positions=32, max_sms=2),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_handles_are_not_copied(kind):
    def body(world):
        made = OBJECTS[kind](world)
        for how, act in (
            ("copied", copy.copy),
            ("copied", copy.deepcopy),
            ("copied", lambda made: copy.deepcopy({"layers": [made]})),
            ("pickled", pickle.dumps),
            ("pickled", lambda made: pickle.dumps([made], 2)),
        ):
            with pytest.raises(farwarp.MisuseError, match=f"^a {kind} is {how}; allowed: "):
                act(made)

    alone(body)


def test_a_refused_copy_harms_nothing():
    def body(world):
        gemm, x = gemm_of(world), world.asarray(X)
        for made in (gemm, x, world):
            with pytest.raises(farwarp.MisuseError):
                copy.copy(made)
        return gemm(x, W).numpy()

    assert (alone(body) == 64).all()


# ---- threads


def test_threads_of_one_world_take_turns():
    def body(world):
        gemm, reduce = gemm_of(world), farwarp.AllReduce(world, 64, dtype="float16")
        failures = []

        def work(number):
            try:
                x = np.full((8, 64), number, np.float16)
                for _ in range(40):
                    out = gemm(x, W)
                    doubled = reduce(world.asarray(np.full(64, number, np.float16)))
                    assert (out.numpy() == 64 * number).all() and (doubled.numpy() == number).all()
                    world.synchronize()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures

    alone(body)


def test_asyncio_gathers_calls():
    def body(world):
        gemm = gemm_of(world)

        async def one(number):
            return await asyncio.to_thread(lambda: gemm(np.full((8, 64), number, np.float16), W).numpy())

        async def all_of_them():
            return await asyncio.gather(*(one(number) for number in range(16)))

        for number, got in enumerate(asyncio.run(all_of_them())):
            assert (got == 64 * number).all()

    alone(body)


def test_threads_create_and_close_operators():
    def body(world):
        def work(number):
            for _ in range(10):
                with gemm_of(world) as gemm:
                    assert (gemm(np.full((8, 64), number, np.float16), W).numpy() == 64 * number).all()

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert not world.operators

    alone(body)


def test_a_world_that_another_thread_closes():
    world = farwarp.World(target="emu_sm90", heap_bytes=16 << 20)
    gemm = gemm_of(world)
    started, ends = threading.Event(), []

    def work():
        try:
            while True:
                gemm(X, W).numpy()
                started.set()
        except farwarp.MisuseError as error:
            ends.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert started.wait(60)
    world.close()
    for thread in threads:
        thread.join(60)
    assert len(ends) == 3 and all("closed" in end for end in ends), ends


# ---- memory


def test_released_memory_that_a_copy_still_uses():
    def body(world):
        pointer, host = ctypes.c_void_p(), np.ones(1 << 20, np.uint8)
        for _ in range(20):
            assert _c.lib.allocate(world.handle, host.nbytes, ctypes.addressof(pointer)) == 0
            assert _c.lib.copy_in(world.handle, pointer, host.ctypes.data, host.nbytes, None) == 0
            _c.lib.release(world.handle, pointer)

    alone(body)


@pytest.mark.parametrize("method", ("copy_in", "gemm_call", "copy_out"))
def test_an_interrupt_right_after_a_call(method):
    """Ctrl-C may come when C has returned and Python has noted nothing: closing still waits for what was enqueued."""
    status, output = script(
        f"""
        import farwarp, numpy
        from farwarp import _c
        world = farwarp.World(target="emu_sm90", heap_bytes=16 << 20)
        stream = world.stream()
        gemm = farwarp.Gemm(world, 8, 16, 64, dtype="float16")
        x, w = (world.asarray(numpy.ones((rows, 64), numpy.float16)) for rows in (8, 16))
        out = world.empty((8, 16), "float16")
        world.synchronize()
        real, real_unchecked = _c.lib.{method}, gemm._call._function
        def interrupted(*arguments):
            (real_unchecked if "{method}" == "gemm_call" else real)(*arguments)
            raise KeyboardInterrupt
        _c.lib.{method} = gemm._call._function = interrupted
        try:
            if "{method}" == "copy_in":
                world.empty((1 << 22,), "uint8").copy_from(numpy.ones(1 << 22, numpy.uint8), stream)
            elif "{method}" == "gemm_call":
                gemm(x, w, out=out, stream=stream)
            else:
                out.numpy(stream)
            print("not interrupted")
        except KeyboardInterrupt:
            pass
        _c.lib.{method} = real
        del x, w, out
        world.close()
        print("closed")
        """
    )
    assert (status, output) == (0, "closed\n")


# ---- outputs over inputs


def test_outputs_over_inputs():
    def body(world):
        square = farwarp.Gemm(world, 64, 64, 64, dtype="float16")
        x, w = (world.asarray(np.ones((64, 64), np.float16)) for _ in range(2))
        reduce = farwarp.AllReduce(world, 64 * 64, dtype="float16")
        attention = farwarp.Attention(world, 1, 2, 2, 64, 4, 4, lse=True, dtype="float16")
        q, k, v = (world.asarray(np.ones((1, 4, 2, 64), np.float16)) for _ in range(3))
        gather = farwarp.AllGatherGemm(world, 64, 64, 64, return_x=True, dtype="float16", path="own")
        moe = farwarp.MoeAllToAll(world, 4, 1, 128, 8, recv_rows=8)
        rows, indices = world.zeros((8, 128), "bfloat16"), world.zeros((8, 1), "int32")
        received = moe.new_received(rows)
        for result, other, call in (
            ("y", "x", lambda: square(x, w, out=x)),
            ("y", "w", lambda: square(x, w, out=w)),
            ("out", "q", lambda: attention(q, k, v, out=q)),
            ("out", "k", lambda: attention(q, k, v, out=k)),
            ("out", "v", lambda: attention(q, k, v, out=v)),
            ("y", "x", lambda: gather(x, w, out=x)),
            ("all_x", "x", lambda: gather(x, w, all_x=x)),
            (
                "recv_x",
                "x",
                lambda: moe.dispatch(rows, indices, world.zeros((8, 1), "float32"), out=received._replace(recv_x=rows)),
            ),
            ("out", "x", lambda: moe.fused(rows, indices, world.zeros((8, 1), "float32"), out=rows)),
        ):
            with pytest.raises(farwarp.InvalidArgumentError, match=f"^{result} overlaps {other}: it begins 0 bytes"):
                call()
        both = world.empty((64, 64), "float16")
        with pytest.raises(farwarp.InvalidArgumentError, match="^all_x overlaps y: "):
            gather(x, w, out=both, all_x=both)
        assert reduce(x, out=x) is x
        return square(x, w).numpy()

    assert (alone(body) == 64).all()


def test_outputs_over_inputs_in_torch_ops():
    torch = pytest.importorskip("torch")
    from farwarp import torch_ops

    def body(world):
        ops = torch.ops.farwarp
        name = torch_ops.register(farwarp.Gemm(world, 64, 64, 64, bias=True, dtype="float16"))
        memory = torch.ones(3 * 64 * 64, dtype=torch.float16)
        x, w, y = (memory[i * 4096 : (i + 1) * 4096].view(64, 64) for i in range(3))
        bias = torch.ones(64, dtype=torch.float16)
        late = memory[4096 + 64 : 2 * 4096 + 64].view(64, 64)
        for out, other in ((x, "x"), (w, "w"), (memory[64 : 4096 + 64].view(64, 64), "x"), (late, "w")):
            with pytest.raises(farwarp.InvalidArgumentError, match=re.escape(f"out overlaps {other}; allowed: memory")):
                ops.gemm(name, x, w, bias, out=out)
        ops.gemm(name, x, w, bias, out=y)
        assert (y == 65).all()
        reduce = torch_ops.register(farwarp.AllReduce(world, 4096, dtype="float16"))
        ops.all_reduce(reduce, x, out=x)
        with pytest.raises(farwarp.InvalidArgumentError, match="out overlaps x"):
            ops.all_reduce(reduce, x, out=memory[8 : 4096 + 8].view(64, 64))
        attention = torch_ops.register(farwarp.Attention(world, 1, 2, 2, 64, 4, 4, lse=True))
        q, k, v = (torch.ones(1, 4, 2, 64, dtype=torch.bfloat16) for _ in range(3))
        out = torch.empty_like(q)
        lse = out.view(-1).view(torch.float32)[:8].view(1, 2, 4)
        with pytest.raises(farwarp.InvalidArgumentError, match="lse overlaps out"):
            ops.attention_lse(attention, q, k, v, out=out, lse=lse)

    alone(body)
