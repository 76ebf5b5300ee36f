"""torch tensors on GPUs against plain torch in fp32. Skipped where there is no GPU with kernels; products need two."""

import random

import farwarp
import pytest

torch = pytest.importorskip("torch")
GPUS = farwarp.device_count("cuda")
pytestmark = [
    pytest.mark.seconds(600),
    pytest.mark.skipif(GPUS < 1 or not torch.cuda.is_available(), reason="no CUDA device, or no kernels for it in this build"),
]
SHAPES = 200


def on(rank):
    torch.cuda.set_device(rank)
    return {"device": torch.device("cuda", rank), "generator": torch.Generator(torch.device("cuda", rank)).manual_seed(rank)}


def numbers(shape, place, dtype=torch.bfloat16):
    return (torch.rand(shape, **place) * 2 - 1).to(dtype)


def assert_close(got, exact):
    """`exact` in fp32. Each of two roundings to 16 bits, and partial sums that are rounded on their way."""
    torch.testing.assert_close(got.float(), exact, rtol=2**-7, atol=2**-7 * exact.abs().max().item())


def plain_attention(q, k, v):
    groups = q.shape[2] // k.shape[2]
    q, k, v = (tensor.float().transpose(1, 2) for tensor in (q, k.repeat_interleave(groups, 2), v.repeat_interleave(groups, 2)))
    return (torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ v).transpose(1, 2)


def test_gemm():
    place, choose = on(0), random.Random(1)
    with farwarp.World(target="cuda") as world:
        for _ in range(SHAPES):
            m, n, k = choose.randint(1, 600), 8 * choose.randint(1, 128), 8 * choose.randint(1, 128)
            x, w, bias = numbers((m, k), place), numbers((n, k), place), numbers((n,), place)
            with farwarp.Gemm(world, m, n, k, bias=True) as gemm:
                assert_close(gemm(x, w, bias), x.float() @ w.float().T + bias.float())


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


def test_attention():
    place, choose = on(0), random.Random(2)
    with farwarp.World(target="cuda") as world:
        for _ in range(SHAPES):
            batch, kv_heads, groups, dim = choose.randint(1, 3), choose.randint(1, 4), choose.choice((1, 2, 4)), choose.choice((64, 128))
            queries, keys = choose.randint(1, 300), choose.randint(1, 300)
            q = numbers((batch, queries, kv_heads * groups, dim), place)
            k, v = (numbers((batch, keys, kv_heads, dim), place) for _ in range(2))
            with farwarp.Attention(world, batch, kv_heads * groups, kv_heads, dim, queries, keys) as attention:
                assert_close(attention(q, k, v), plain_attention(q, k, v))


def test_decode():
    place, choose = on(0), random.Random(3)
    with farwarp.World(target="cuda") as world:
        for _ in range(SHAPES):
            batch, kv_heads, groups, most = choose.randint(1, 8), choose.randint(1, 4), choose.choice((1, 2, 4, 8)), choose.randint(1, 20)
            pages = batch * most
            q = numbers((batch, 1, kv_heads * groups, 128), place)
            k, v = (numbers((pages, 16, kv_heads, 128), place) for _ in range(2))
            table = torch.randperm(pages, **place).int().reshape(batch, most)
            lengths = torch.tensor([choose.randint(1, 16 * most) for _ in range(batch)], dtype=torch.int32, device="cuda")
            with farwarp.FlashDecode(world, batch, kv_heads * groups, kv_heads, 128, pages=pages, max_pages=most) as decode:
                out = decode(q, k, v, table, lengths)
            for i, length in enumerate(lengths.tolist()):
                keys, values = (cache[table[i].long()].flatten(0, 1)[None, :length] for cache in (k, v))
                assert_close(out[i : i + 1], plain_attention(q[i : i + 1], keys, values))


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
@pytest.mark.parametrize("kind", (farwarp.AllGatherGemm, farwarp.GemmReduceScatter, farwarp.GemmAllReduce))
def test_products(kind):
    def multiply(world):
        place = on(world.rank)
        choose = random.Random(4)
        for _ in range(SHAPES):
            m, n, k = 2 * choose.randint(1, 300), 16 * choose.randint(1, 64), 16 * choose.randint(1, 64)
            common = {"device": place["device"], "generator": torch.Generator(place["device"]).manual_seed(7)}
            x, w = numbers((m, k), common), numbers((n, k), common)
            exact = x.float() @ w.float().T
            with kind(world, m, n, k, path="own") as product:
                if kind is farwarp.AllGatherGemm:
                    y = product(x.chunk(2)[world.rank].clone(), w.chunk(2)[world.rank].clone())  # at multiples of 256 bytes
                    exact = exact.chunk(2, 1)[world.rank]
                else:
                    y = product(x.chunk(2, 1)[world.rank].contiguous(), w.chunk(2, 1)[world.rank].contiguous())
                    exact = exact.chunk(2)[world.rank] if kind is farwarp.GemmReduceScatter else exact
                assert_close(y, exact)

    farwarp.run(multiply, ranks=2, target="cuda")


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_moe():
    """2,000 calls with fresh routing, experts that scale by their number."""

    def layer(world):
        place = on(world.rank)
        experts, top_k, hidden, most = 16, 4, 512, 64
        moe = farwarp.MoeAllToAll(world, experts, top_k, hidden, most)
        row = torch.arange(moe.recv_rows, device=place["device"])
        for _ in range(2000):
            x = numbers((most, hidden), place)
            indices = torch.rand((most, experts), **place).topk(top_k).indices.int()
            weights = torch.rand((most, top_k), **place)
            received = moe.dispatch(x, indices, weights)
            owner = torch.searchsorted(received.offsets[1:].long(), row, right=True)
            y = received.recv_x * (1 + world.rank * experts // 2 + owner)[:, None].to(torch.bfloat16)
            exact = (weights * (1 + indices)).sum(1, keepdim=True) * x.float()
            assert_close(moe.combine(y), exact)
        world.check()

    farwarp.run(layer, ranks=2, target="cuda")


def test_qwen3():
    with farwarp.Qwen3.random("tiny", target="cuda", positions=64) as model:
        tokens = model.generate([1, 2, 3], max_tokens=20)
    with farwarp.Qwen3.random("tiny", target="emu_sm90", positions=64, max_sms=4) as model:
        assert model.generate([1, 2, 3], max_tokens=3) == tokens[:3]
