"""Ranks that are processes with a process group: gloo's on the emulator, NCCL's on GPUs."""

import subprocess
import sys
import tempfile
import textwrap

_BEGIN = """
import sys, torch, torch.distributed as dist, farwarp
rank, ranks, target = int(sys.argv[1]), int(sys.argv[3]), sys.argv[4]
device = torch.device("cuda", rank) if target == "cuda" else torch.device("cpu")
if target == "cuda":
    torch.cuda.set_device(device)
backend, store = "nccl" if target == "cuda" else "gloo", f"file://{sys.argv[2]}"
dist.init_process_group(backend, init_method=store, rank=rank, world_size=ranks)
"""
_END = """
dist.destroy_process_group()
"""


def outputs(program, ranks, target="emu_sm90"):
    """What each rank's `program` prints; an error on one fails.

    It has torch, dist, farwarp, rank, ranks, target, device.
    """
    program = _BEGIN + textwrap.dedent(program) + _END
    with tempfile.TemporaryDirectory() as folder:
        started = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(rank), folder + "/store", str(ranks), target],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        ended = [process.communicate(timeout=500) for process in started]
    assert all(process.returncode == 0 for process in started), "\n".join(error for _, error in ended)
    return [output for output, _ in ended]


MLP = """
from farwarp import torch_ops
ops, generator = torch.ops.farwarp, torch.Generator().manual_seed(1)
shapes = (16, 64), (128, 64), (64, 128)
x, up, down = ((torch.rand(shape, generator=generator) - 0.5).bfloat16().to(device) for shape in shapes)
with farwarp.World(dist.group.WORLD, target=target) as world:
    ag = torch_ops.register(farwarp.AllGatherGemm(world, 16, 128, 64, path="own"))
    rs = torch_ops.register(farwarp.GemmReduceScatter(world, 16, 64, 128, path="own"))

    @torch.compile(fullgraph=True, **({"mode": "reduce-overhead"} if target == "cuda" else {"backend": "aot_eager"}))
    def mlp(x, up, down):
        return ops.gemm_rs(rs, torch.relu(ops.ag_gemm(ag, x, up)), down)

    mine = x.chunk(2)[rank].clone(), up.chunk(2)[rank].clone(), down.chunk(2, 1)[rank].contiguous()
    for _ in range(4):  # with CUDA graphs later calls replay one
        y = mlp(*mine)
        wanted = (torch.relu(x.float() @ up.float().T).bfloat16().float() @ down.float().T).chunk(2)[rank]
        torch.testing.assert_close(y.float(), wanted, rtol=2e-2, atol=2e-2)
        mine[0].neg_()
        x.neg_()
    world.check()
    print(ag, rs)
    del mlp, y
    torch._dynamo.reset()
"""

SYMM_MEM = """
from farwarp import symm_groups, symm_mem
name = dist.group.WORLD.group_name
symm_mem.enable_symm_mem_for_group(name, target=target, heap_bytes=64 << 20)
assert symm_mem.is_symm_mem_enabled_for_group(name)

def numbers(*shape, seed):
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1).bfloat16().to(device)

def close(got, wanted):
    torch.testing.assert_close(got.float(), wanted, rtol=2e-2, atol=4e-2)

def part(tensor, dimension):
    return tensor.chunk(2, dimension)[rank].clone(memory_format=torch.contiguous_format)

for _ in range(2):
    for shape, dimension in (((16, 64), 0), ((4, 3, 64), 0), ((1, 16, 64), 1), ((1, 16, 64), -2)):
        A, weights = numbers(*shape, seed=1), [numbers(32, 64, seed=2 + rank), numbers(16, 64, seed=4 + rank)]
        for return_A in (True, False):
            for ws in (weights, weights[:1]):
                gathered, ys = symm_mem.fused_all_gather_matmul(
                    part(A, dimension), [w.t() for w in ws], dimension, name, return_A=return_A
                )
                assert torch.equal(gathered, A) if return_A else gathered is None
                assert len(ys) == len(ws)
                for y, w in zip(ys, ws):
                    close(y, A.float() @ w.float().t())
        w = numbers(32, 64, seed=6)
        y = symm_mem.fused_matmul_reduce_scatter(part(A, -1), part(w, 1).t(), "sum", dimension, name)
        close(y, part(A.float() @ w.float().t(), dimension))
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x = [numbers(5, 72, seed=10 + i).to(dtype) for i in range(2)]
        wanted = (x[0].float() + x[1].float()).to(dtype)
        mine = x[rank].clone()
        assert torch.equal(symm_mem.one_shot_all_reduce(mine, "sum", name), wanted)
        out = torch.zeros_like(mine)
        assert symm_mem.one_shot_all_reduce_out(mine, "sum", name, out) is out and torch.equal(out, wanted)
        out.zero_()
        assert symm_mem.two_shot_all_reduce_out(mine, "sum", name, out) is out and torch.equal(out, wanted)
        assert torch.equal(mine, x[rank])
        assert symm_mem.two_shot_all_reduce_(mine, "sum", name) is mine and torch.equal(mine, wanted)
    operators = len(symm_groups.groups[name].operators)
"""
SYMM_MEM_END = """
print(operators)
symm_mem.close(name)
assert not symm_mem.is_symm_mem_enabled_for_group(name)
"""
