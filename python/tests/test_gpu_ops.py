"""torch.library operators and farwarp.symm_mem on GPUs. Skipped where there is no GPU with kernels."""

import pytest

import farwarp
from processes import MLP, SYMM_MEM, SYMM_MEM_END, outputs

torch = pytest.importorskip("torch")
pytest.importorskip("farwarp.torch_ops")
from farwarp import torch_ops  # noqa: E402
from op_cases import CASES, OPS, check, gemm, integers, moe, numbers  # noqa: E402

GPUS = farwarp.device_count("cuda")
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        GPUS < 1 or not torch.cuda.is_available(), reason="no CUDA device, or no kernels for it in this build"
    ),
]
two = pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")


@pytest.fixture
def world():
    torch._dynamo.reset()
    torch.cuda.set_device(0)
    with farwarp.World(target="cuda") as world:
        yield world
        torch._dynamo.reset()  # graphs that torch has captured end before the operators


@pytest.mark.parametrize("mode", ("default", "reduce-overhead"))
@pytest.mark.parametrize("case", CASES)
def test_ops(world, case, mode):
    check(world, case, "cuda", mode=mode)


def test_graph_and_side_stream(world):
    operator, tensors = gemm(world)
    x, w, bias = (tensor.cuda() for tensor in tensors)
    name, out = torch_ops.register(operator), torch.empty(8, 16, device="cuda", dtype=torch.bfloat16)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        first = OPS.gemm(name, x, w, bias)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = OPS.gemm(name, x, w, bias)
        OPS.gemm(name, x, w, bias, out=out)
    for _ in range(5):
        graph.replay()
        wanted = operator(x, w, bias)
        torch.cuda.synchronize()
        assert torch.equal(y, wanted) and torch.equal(out, wanted)
        x.copy_(torch.rand_like(x))
    assert first.shape == y.shape
    world.check()


def test_moe_layer(world):
    """Dispatch, experts that double their rows, combine: one graph, replayed with fresh routing."""
    operator, tensors = moe()(world)
    x, indices, weights = (tensor.cuda() for tensor in tensors)
    name = torch_ops.register(operator)

    @torch.compile(fullgraph=True, mode="reduce-overhead")
    def layer(x, indices, weights):
        received = OPS.moe_dispatch(name, x * 1, indices * 1, weights)
        return OPS.moe_combine(name, received[0] * 2, indices * 1)

    for _ in range(100):
        wanted = 2 * x.float() * ((indices >= 0) * weights).sum(1, keepdim=True)
        torch.testing.assert_close(layer(x, indices, weights).float(), wanted, rtol=2e-2, atol=2e-2)
        indices = torch.rand(5, 4, device="cuda").topk(2).indices.int()
        x = torch.rand_like(x)
    world.check()


def test_wrong_tensors_are_refused(world):
    operator, (x, w, bias) = gemm(world)
    name = torch_ops.register(operator)
    x, w, bias = x.cuda(), w.cuda(), bias.cuda()
    with pytest.raises(farwarp.InvalidArgumentError, match="x is of float32; allowed: bfloat16"):
        OPS.gemm(name, x.float(), w, bias)
    with pytest.raises(farwarp.InvalidArgumentError, match="y has shape"):
        OPS.gemm(name, x, w, bias, out=x)
    with pytest.raises(
        farwarp.InvalidArgumentError, match="x is on DLPack device .1, 0.; allowed: .2, 0., that of the world"
    ):
        OPS.gemm(name, x.cpu(), w.cpu(), bias.cpu())
    operator.close()
    with pytest.raises(farwarp.MisuseError, match=f"op is '{name}', a Gemm that is closed"):
        OPS.gemm(name, x, w, bias)


def test_attention_with_counts_on_the_device(world):
    """Ragged and paged prefill, replayed from a graph with other counts, against plain torch in fp32."""
    heads, kv_heads, dim, page, pages, most = 4, 2, 128, 16, 40, 300
    attention = farwarp.Attention(
        world, 2, heads, kv_heads, dim, 64, most, causal=True, total_queries=100, page_size=page, pages=pages
    )
    q, k, v = (
        numbers(100, heads, dim).cuda(),
        *(numbers(pages, page, kv_heads, dim, seed=seed).cuda() for seed in (1, 2)),
    )
    table = torch.randperm(pages, generator=torch.Generator().manual_seed(3))[:38].reshape(2, 19).int().cuda()
    starts, counts = integers(0, 64, 100).cuda(), integers(300, 100).cuda()
    attention(q, k, v, query_starts=starts, key_counts=counts, block_table=table)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention(q, k, v, query_starts=starts, key_counts=counts, block_table=table)
    for sizes, lengths in (((64, 36), (300, 100)), ((40, 60), (77, 299)), ((63, 37), (64, 37))):
        starts.copy_(integers(0, sizes[0], 100))
        counts.copy_(integers(*lengths))
        graph.replay()
        world.synchronize()
        for i in range(2):
            mine = slice(starts[i].item(), starts[i + 1].item())
            keys, values = (
                cache[table[i].long()].flatten(0, 1)[: lengths[i]].float().repeat_interleave(2, 1) for cache in (k, v)
            )
            scores = torch.einsum("qhd,khd->hqk", q[mine].float(), keys) * dim**-0.5
            place = torch.arange(sizes[i], device="cuda")[:, None] + lengths[i] - sizes[i]
            scores.masked_fill_(torch.arange(lengths[i], device="cuda") > place, float("-inf"))
            wanted = torch.einsum("hqk,khd->qhd", torch.softmax(scores, -1), values)
            torch.testing.assert_close(out[mine].float(), wanted, rtol=2**-7, atol=2**-7)


@two
def test_compiled_ranks():
    assert outputs(MLP, ranks=2, target="cuda") == ["AllGatherGemm.0 GemmReduceScatter.1\n"] * 2


@two
def test_symm_mem():
    """Eagerly, and replayed from a CUDA graph, which first calls of a shape refuse."""
    capture = """
A, w, x = numbers(16, 64, seed=1), numbers(32, 64, seed=2 + rank), numbers(5, 72, seed=10 + rank)
shard, half = part(A, 0), part(A, 1)
wh = part(numbers(32, 64, seed=6), 1)

def step():
    y = symm_mem.fused_all_gather_matmul(shard, [w.t()], 0, name, return_A=False)[1][0]
    scattered = symm_mem.fused_matmul_reduce_scatter(half, wh.t(), "sum", 0, name)
    return y, scattered, symm_mem.one_shot_all_reduce(x, "sum", name)

wanted = [tensor.clone() for tensor in step()]
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    got = step()
    try:
        symm_mem.fused_matmul_reduce_scatter(numbers_on_device, wh.t(), "sum", 0, name)
    except farwarp.MisuseError as error:
        refused = str(error)
for _ in range(3):
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(got, wanted))
    for tensor in got:
        tensor.zero_()
assert "is captured in a CUDA graph; allowed: after a call that is not" in refused, refused
compiled = torch.compile(step, fullgraph=True)
assert all(torch.equal(a, b) for a, b in zip(compiled(), wanted))
del graph, got
""".replace("numbers_on_device", "half[:6]")
    printed = outputs(SYMM_MEM + capture + SYMM_MEM_END, ranks=2, target="cuda")
    assert printed[0] == printed[1]
