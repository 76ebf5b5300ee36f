"""Mistakes and ends on GPUs: each is an exception, nothing hangs, nothing is left.

Skipped where there is no GPU with kernels; some need two.
"""

import time

import pytest

import farwarp
from leaks import KINDS, cycles, held
from processes import outputs
from test_world import script

torch = pytest.importorskip("torch")
TARGET = "cuda"
GPUS = farwarp.device_count("cuda")
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        GPUS < 1 or not torch.cuda.is_available(), reason="no CUDA device, or no kernels for it in this build"
    ),
]
two = pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
CYCLES = 1000


def ones(world, *shape):
    device = "cpu" if world.emulated else f"cuda:{world.device}"
    return torch.ones(shape, dtype=torch.bfloat16, device=device)


@two
def test_tensor_on_another_gpu():
    """Each is refused, and nothing is written."""
    with farwarp.World(target=TARGET, device=0) as world, farwarp.Gemm(world, 8, 16, 64) as gemm:
        x, w, out = ones(world, 8, 64), ones(world, 16, 64), torch.zeros(8, 16, dtype=torch.bfloat16, device="cuda:0")
        for wrong, name in (
            ((x.to("cuda:1"), w, out), "x"),
            ((x, w.to("cuda:1"), out), "w"),
            ((x, w, out.to("cuda:1")), "y"),
        ):
            with pytest.raises(
                farwarp.InvalidArgumentError,
                match=f"{name} is on DLPack device .2, 1.; allowed: .2, 0., that of the world",
            ):
                gemm(*wrong[:2], out=wrong[2])
        torch.cuda.synchronize(0)
        assert not out.any() and (gemm(x, w) == 64).all()


def test_closed():
    with farwarp.World(target=TARGET) as world:
        gemm = farwarp.Gemm(world, 8, 16, 64)
        x, w = ones(world, 8, 64), ones(world, 16, 64)
        gemm(x, w)
        gemm.close()
        with pytest.raises(farwarp.MisuseError, match="Gemm is closed; allowed: calls before close()"):
            gemm(x, w)
    with pytest.raises(farwarp.MisuseError, match="the World is closed"):
        world.check()


class Odd(Exception):
    pass


@two
@pytest.mark.parametrize("where", ("at once", "others wait in a kernel", "others wait on the host"))
def test_exception_on_one_rank(where):
    def body(world):
        product = farwarp.GemmAllReduce(world, 8, 16, 64 * world.size, path="own")
        if world.rank == 1:
            raise Odd(where)
        if where == "others wait in a kernel":
            product(ones(world, 8, 64), ones(world, 16, 64))
            world.synchronize()
        elif where == "others wait on the host":
            product.close()

    start = time.monotonic()
    with pytest.raises(Odd, match=where):
        farwarp.run(body, ranks=2, target=TARGET, deadline=30.0)
    assert time.monotonic() - start < 20


@two
def test_exception_in_one_process():
    """The other is told while its kernel waits."""
    assert outputs(
        """
        import time
        try:
            with farwarp.World(dist.group.WORLD, target=target, deadline=60.0) as world:
                product = farwarp.GemmAllReduce(world, 8, 16, 128, path="own")
                x, w = (torch.ones(rows, 64, dtype=torch.bfloat16, device=device) for rows in (8, 16))
                product(x, w)
                world.synchronize()
                if rank == 1:
                    raise KeyError("rank 1")
                start = time.monotonic()
                product(x, w)
                world.synchronize(timeout=60.0)
        except KeyError:
            print("left")
        except (farwarp.AbortedError, farwarp.PeerLostError):
            print("told", time.monotonic() - start < 30)
        """,
        ranks=2,
        target=TARGET,
    ) == ["told True\n", "left\n"]


FORK = """
    import farwarp, os, torch, warnings
    warnings.simplefilter("ignore")
    target = "TARGET"
    with farwarp.World(target=target) as world:
        device = "cpu" if world.emulated else "cuda:0"
        gemm = farwarp.Gemm(world, 8, 16, 64)
        x, w = (torch.ones(rows, 64, dtype=torch.bfloat16, device=device) for rows in (8, 16))
        gemm(x, w)
        child = os.fork()
        if child == 0:
            for call in (lambda: gemm(x, w), world.check, world.synchronize, lambda: farwarp.World(target=target)):
                try:
                    call()
                except farwarp.MisuseError as error:
                    assert f"before fork(), in process {os.getppid()}" in str(error), error
                else:
                    os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        y = gemm(x, w)
        world.synchronize()
        print((y.torch() if world.emulated else y).max().item())
"""


def test_fork():
    """The child's copies raise; the parent goes on."""
    assert script(FORK.replace("TARGET", TARGET)) == (0, "64.0\n")


def test_exit_with_calls_in_flight():
    text = """
        import farwarp, torch
        world = farwarp.World(target="TARGET")
        gemm = farwarp.Gemm(world, 2048, 2048, 2048) if not world.emulated else farwarp.Gemm(world, 64, 64, 64)
        x = torch.ones(gemm.m, gemm.k, dtype=torch.bfloat16, device="cpu" if world.emulated else "cuda")
        kept = [gemm(x, x) for _ in range(100)]
        print("the end")
    """
    assert script(text.replace("TARGET", TARGET)) == (0, "the end\n")


@two
def test_exit_while_a_peer_is_awaited():
    """Long before the deadline."""
    text = """
        import farwarp, sys, torch
        def body(world):
            product = farwarp.GemmAllReduce(world, 8, 16, 128, path="own")
            device = "cpu" if world.emulated else f"cuda:{world.device}"
            x, w = (torch.ones(rows, 64, dtype=torch.bfloat16, device=device) for rows in (8, 16))
            product(x, w)
            if world.rank == 0:
                sys.exit("leaving")
            product(x, w)
            world.synchronize()
        farwarp.run(body, ranks=2, target="TARGET", deadline=60.0)
    """
    status, output = script(text.replace("TARGET", TARGET))
    assert status == 1 and "leaving" in output and "Fatal" not in output


def device_bytes():
    """In use on every GPU."""
    return [0] if TARGET != "cuda" else [total - free for free, total in map(torch.cuda.mem_get_info, range(GPUS))]


def assert_nothing_kept(before, after, device_before):
    assert after[0] - before[0] < 16 << 20, "host memory grows"
    assert all(now <= was for was, now in zip(before[1:], after[1:])), "open files, mappings of shared memory"
    for was, now in zip(device_before, device_bytes()):
        assert now - was <= 2 << 20, "memory of the device grows"


def test_operators_leave_nothing():
    """1,000 of all classes in turn."""

    def body(world):
        cycles(world, 100)
        before, device_before = held(), device_bytes()
        cycles(world, CYCLES)
        return before, held(), device_before

    results = farwarp.run(body, ranks=min(2, GPUS), target=TARGET, heap_bytes=64 << 20)
    for before, after, device_before in results:
        assert_nothing_kept(before, after, device_before)


def test_worlds_leave_nothing():
    def one():
        farwarp.run(lambda world: cycles(world, KINDS), ranks=min(2, GPUS), target=TARGET, heap_bytes=4 << 20)

    for _ in range(5):
        one()
    before, device_before = held(), device_bytes()
    for _ in range(CYCLES // 20):
        one()
    assert_nothing_kept(before, held(), device_before)
