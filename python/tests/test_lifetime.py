"""Nothing is left of worlds, operators and arrays, whatever the order in which they end."""

import gc
import os
import resource

import numpy as np
import pytest

import farwarp
from farwarp.allocations import Allocations
from leaks import cycles, held
from test_world import script

X, W = np.ones((8, 64), np.float16), np.ones((16, 64), np.float16)


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.not_sanitized("keeps memory that is freed")
def test_operators_are_created_and_closed_without_growth():
    def cycle(world, count):
        for _ in range(count):
            with farwarp.GemmAllReduce(world, 8, 16, 64 * world.size, dtype="float16") as product:
                product(X, W)
        assert not world.operators and not world.memory
        return resident_bytes()

    def measure(world):
        return cycle(world, 50), cycle(world, 1000)

    for before, after in farwarp.run(measure, ranks=2, heap_bytes=16 << 20):
        assert after - before < 4 << 20


@pytest.mark.not_sanitized("keeps memory that is freed")
def test_arrays_that_no_call_uses_are_freed():
    def body(world):
        for _ in range(1000):
            world.empty((1 << 20,), "uint8")
        return len(world.memory)

    assert farwarp.run(body, ranks=1)[0] <= 66  # more than 64 MiB wait no longer


@pytest.mark.not_sanitized("keeps memory that is freed")
def test_all_operators_leave_nothing():
    """1,000 of all classes in turn: host memory, open files, shared memory."""

    def body(world):
        cycles(world, 80)
        before = held()
        cycles(world, 1000)
        return before, held()

    for before, after in farwarp.run(body, ranks=2, heap_bytes=64 << 20):
        assert after[0] - before[0] < 8 << 20
        assert all(now <= was for was, now in zip(before[1:], after[1:]))


@pytest.mark.not_sanitized("keeps memory that is freed")
def test_worlds_are_created_and_closed_without_growth():
    def one():
        farwarp.run(
            lambda world: farwarp.Gemm(world, 8, 16, 64, dtype="float16")(X, W).numpy(), ranks=2, heap_bytes=1 << 20
        )

    def files():
        return len(os.listdir("/proc/self/fd"))

    for _ in range(20):
        one()
    before, files_before = resident_bytes(), files()
    for _ in range(100):
        one()
    assert resident_bytes() - before < 8 << 20
    assert files() <= files_before


@pytest.mark.not_sanitized("keeps memory that is freed")
def test_a_world_that_ends_by_an_exception_frees_its_operators():
    closed = []

    def fail(world):
        gemm = farwarp.Gemm(world, 8, 16, 64, dtype="float16")
        gemm(X, W)
        close = gemm.close_handle
        gemm.close_handle = lambda: closed.append(gemm) or close()
        raise KeyError

    with pytest.raises(KeyError):
        farwarp.run(fail, ranks=2)
    assert len(closed) == 2
    assert all(gemm.handle is None and gemm.world.handle is None and not gemm.world.operators for gemm in closed)


@pytest.mark.parametrize("deadline", (86400, np.float16(40)))  # the longest; milliseconds that its type has not
def test_closing_waits_and_frees_whatever_the_deadline(monkeypatch, deadline):
    freed, end = [], Allocations.end
    monkeypatch.setattr(Allocations, "end", lambda self, free: freed.append(free) or end(self, free))
    farwarp.run(lambda world: farwarp.Gemm(world, 8, 16, 64, dtype="float16")(X, W), ranks=1, deadline=deadline)
    assert freed == [True]


def test_world_that_is_not_closed():
    def leave():
        world = farwarp.World(target="emu_sm90", heap_bytes=1 << 20)
        farwarp.Gemm(world, 8, 16, 64, dtype="float16")(X, W)

    with pytest.warns(ResourceWarning, match="farwarp.World.rank 0 of 1, emu_sm90. was not closed"):
        leave()
        gc.collect()


def test_exit_with_calls_in_flight():
    assert script("""
        import farwarp, numpy as np
        world = farwarp.World(target="emu_sm90")
        gemm = farwarp.Gemm(world, 256, 256, 512, dtype="float16")
        kept = [gemm(np.ones((256, 512), np.float16), np.ones((256, 512), np.float16)) for _ in range(20)]
        print("the end")
    """) == (0, "the end\n")


def test_exit_while_a_peer_is_awaited():
    status, output = script("""
        import farwarp, numpy as np, sys
        def body(world):
            product = farwarp.GemmAllReduce(world, 8, 16, 128, dtype="float16")
            if world.rank == 0:
                product(np.ones((8, 64), np.float16), np.ones((16, 64), np.float16))
                sys.exit("leaving")
            product(np.ones((8, 64), np.float16), np.ones((16, 64), np.float16)).numpy()
        farwarp.run(body, ranks=2)
    """)
    assert status == 1 and "leaving" in output and "Fatal" not in output


def test_exit_of_one_process_ends_the_other():
    from farwarp import __main__ as program

    if not os.path.exists(program.path()):
        pytest.skip("the package has no program")
    status, output = script(
        """
        import farwarp, numpy as np
        world = farwarp.World(target="emu_sm90")
        product = farwarp.GemmAllReduce(world, 8, 16, 128, dtype="float16")
        if world.rank == 0:
            raise SystemExit(0)
        try:
            product(np.ones((8, 64), np.float16), np.ones((16, 64), np.float16)).numpy()
        except farwarp.Error as error:
            print("told:", type(error).__name__)
    """,
        program.path(),
        "launch",
        "-n",
        "2",
        "--",
    )
    assert "told: " in output and "Traceback" not in output, output


def test_fork():
    assert script("""
        import farwarp, os, warnings, numpy as np
        warnings.simplefilter("ignore")  # Python 3.12 warns of fork() beside threads
        with farwarp.World(target="emu_sm90") as world:
            gemm = farwarp.Gemm(world, 8, 16, 64, dtype="float16")
            array = world.zeros((8, 64), "float16")
            child = os.fork()
            if child == 0:
                for call in (lambda: gemm(array, np.ones((16, 64), np.float16)), world.check, array.numpy):
                    try:
                        call()
                    except farwarp.MisuseError as error:
                        assert f"the World was created before fork(), in process {os.getppid()}" in str(error), error
                    else:
                        os._exit(1)
                try:
                    farwarp.World(target="emu_sm90")
                except farwarp.MisuseError as error:
                    assert f"farwarp was used before fork(), in process {os.getppid()}" in str(error), error
                else:
                    os._exit(1)
                del array
                raise SystemExit(0)
            assert os.waitpid(child, 0)[1] == 0
            print(gemm(array, np.ones((16, 64), np.float16)).numpy().max())
    """) == (0, "0.0\n")


def test_interrupt():
    """Ctrl-C in the thread that waits in run() reaches the ranks."""
    status, output = script("""
        import farwarp, os, signal, threading, time
        def body(world):
            while True:
                time.sleep(0.01)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        farwarp.run(body, ranks=2)
    """)
    assert status != 0 and "KeyboardInterrupt" in output
