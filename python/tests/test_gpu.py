"""torch tensors on GPUs against plain torch in fp32. Skipped where there is no GPU with kernels; some need two."""

import os
import pathlib
import subprocess
import sys

import pytest

import farwarp

torch = pytest.importorskip("torch")
pytest.importorskip("farwarp.torch_ops")
from random_calls import calls, routings  # noqa: E402
from random_cases import CASES  # noqa: E402

GPUS = farwarp.device_count("cuda")
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        GPUS < 1 or not torch.cuda.is_available(), reason="no CUDA device, or no kernels for it in this build"
    ),
]
SHAPES = 200
EVERY_WAY = int(os.environ.get("FARWARP_SHAPES", "10"))  # shapes that are called in every way
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")


def on(rank):
    torch.cuda.set_device(rank)
    return {
        "device": torch.device("cuda", rank),
        "generator": torch.Generator(torch.device("cuda", rank)).manual_seed(rank),
    }


def numbers(shape, place, dtype=torch.bfloat16):
    return (torch.rand(shape, **place) * 2 - 1).to(dtype)


def assert_close(got, exact):
    """`exact` in fp32. Each of two roundings to 16 bits, and partial sums that are rounded on their way."""
    torch.testing.assert_close(got.float(), exact, rtol=2**-7, atol=2**-7 * exact.abs().max().item())


@pytest.mark.parametrize("name", CASES)
def test_random_calls_in_one_process(name):
    """SHAPES of them called eagerly, the first in the other ways, too."""

    def body(world):
        torch.cuda.set_device(world.rank)
        calls(world, name, {"eager": SHAPES, "side": EVERY_WAY, "graph": EVERY_WAY})

    farwarp.run(body, ranks=min(2, GPUS), target="cuda")


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_random_calls_in_processes():
    program = [
        str(pathlib.Path(__file__).with_name("random_calls.py")),
        f"--shapes={EVERY_WAY}",
        "--compiled=1",
        "--routings=100",
    ]
    done = subprocess.run(
        [*TORCHRUN, *program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout


def test_graphs_and_side_streams():
    place = on(0)
    x, w = numbers((64, 512), place), numbers((256, 512), place)
    with farwarp.World(target="cuda") as world, farwarp.Gemm(world, 64, 256, 512) as gemm:
        first = gemm(x, w)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            second = gemm(x, w)
        out = torch.empty_like(first)
        gemm(x, w, out=out, stream=side)
        torch.cuda.synchronize()
        assert torch.equal(first, second) and torch.equal(first, out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = gemm(x, w)
        for _ in range(5):
            x.copy_(numbers((64, 512), place))
            graph.replay()
            assert_close(y, x.float() @ w.float().T)
        world.check()


@pytest.mark.parametrize(
    "wrong, message",
    (
        (lambda x: x.cpu(), "x is on DLPack device .1, 0.; allowed: .2, 0., that of the world"),
        (lambda x: x.float(), "x is of float32; allowed: bfloat16"),
        (lambda x: x.T.contiguous().T, "x has stride 8 in dimension 1; allowed: 1, a contiguous tensor"),
        (lambda x: x[:4], "x has shape"),
        (lambda x: x.cpu().float().numpy(), "x is a ndarray; allowed: a torch.Tensor"),
    ),
)
def test_bad_tensors(wrong, message):
    place = on(0)
    with farwarp.World(target="cuda") as world, farwarp.Gemm(world, 8, 16, 64, dtype="bfloat16") as gemm:
        with pytest.raises(farwarp.InvalidArgumentError, match=message):
            gemm(wrong(numbers((8, 64), place)), numbers((16, 64), place))


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_moe():
    """2,000 calls with fresh routing."""

    def body(world):
        torch.cuda.set_device(world.rank)
        routings(world, 2000)

    farwarp.run(body, ranks=2, target="cuda")


def test_qwen3():
    with farwarp.Qwen3.random("tiny", target="cuda", positions=64) as model:
        tokens = model.generate([1, 2, 3], max_tokens=20)
    with farwarp.Qwen3.random("tiny", target="emu_sm90", positions=64, max_sms=4) as model:
        assert model.generate([1, 2, 3], max_tokens=3) == tokens[:3]
