"""Cases of torch.library operators, for the emulator and for GPUs."""

import torch

import farwarp
from farwarp import torch_ops

OPS = torch.ops.farwarp
BF16 = torch.bfloat16


def numbers(*shape, seed=0, dtype=BF16):
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1).to(dtype)


def integers(*values):
    return torch.tensor(values, dtype=torch.int32)


# Of each op: the operator, its tensors. All of one rank, where the collective ones have nobody to wait for.


def gemm(world):
    return farwarp.Gemm(world, 8, 16, 64, bias=True), (numbers(8, 64), numbers(16, 64), numbers(16))


def fp8_gemm(world):
    codes = torch.arange(16 * 64, dtype=torch.uint8).reshape(16, 64) & 0x3F
    scales = torch.tensor([[2.0]]).expand(8, 1).contiguous(), torch.tensor([[0.5]])
    return farwarp.Fp8Gemm(world, 8, 16, 64, bias=True), (codes[:8].contiguous(), codes, *scales, numbers(16))


def grouped_gemm(world):
    rows = integers(0, 3, 8)
    return farwarp.GroupedGemm(world, 2, 8, 16, 64), (numbers(8, 64), numbers(2, 16, 64), rows)


def product(kind, **options):
    return lambda world: (kind(world, 8, 16, 64, path="own", **options), (numbers(8, 64), numbers(16, 64)))


def all_reduce(world):
    return farwarp.AllReduce(world, 1024), (numbers(4, 32),)


def attention(**options):
    def make(world):
        q, k, v = numbers(2, 20, 4, 64), numbers(2, 40, 2, 64, seed=1), numbers(2, 40, 2, 64, seed=2)
        return farwarp.Attention(world, 2, 4, 2, 64, 20, 40, causal=True, **options), (q, k, v)

    return make


def paged_attention(world):
    operator = farwarp.Attention(
        world, 2, 4, 2, 64, 20, 40, causal=True, page_size=16, pages=6, total_queries=27, sinks=True
    )
    cache = numbers(6, 16, 2, 64, seed=1), numbers(6, 16, 2, 64, seed=2)
    table = integers([0, 2, 4], [5, 1, 3])
    return operator, (
        numbers(27, 4, 64),
        *cache,
        numbers(4, dtype=torch.float32),
        integers(0, 20, 27),
        None,
        integers(40, 17),
        table,
    )


def decode(**options):
    def make(world):
        operator = farwarp.FlashDecode(world, 3, 4, 2, 64, pages=12, max_pages=3, **options)
        cache = numbers(12, 16, 2, 64, seed=1), numbers(12, 16, 2, 64, seed=2)
        return operator, (
            numbers(3, 1, 4, 64),
            *cache,
            torch.arange(9, dtype=torch.int32).reshape(3, 3),
            integers(17, 40, 1),
        )

    return make


def moe(**options):
    def make(world):
        operator = farwarp.MoeAllToAll(world, 4, 2, 128, 8, **options)
        tokens = numbers(5, 128), integers([0, 1], [2, 3], [3, 0], [1, 2], [-1, 3]), torch.rand(5, 2)
        return operator, tokens

    return make


def fused(world):
    operator, tokens = moe()(world)
    return operator, (*tokens, torch.rand(4, 2))


def moe_layer(world):
    operator = farwarp.MoeLayer(world, 4, 2, 64, 128, 8, bias=True)
    tokens = numbers(5, 64), integers([0, 1], [2, 3], [3, 0], [1, 2], [-1, 3]), torch.rand(5, 2)
    biases = numbers(4, 256, seed=3), numbers(4, 64, seed=4)
    return operator, (*tokens, numbers(4, 256, 64, seed=1), numbers(4, 64, 128, seed=2), *biases)


CASES = {
    "gemm": gemm,
    "fp8_gemm": fp8_gemm,
    "grouped_gemm": grouped_gemm,
    "ag_gemm": product(farwarp.AllGatherGemm),
    "ag_gemm_x": product(farwarp.AllGatherGemm, return_x=True),
    "gemm_rs": product(farwarp.GemmReduceScatter),
    "gemm_ar": product(farwarp.GemmAllReduce),
    "all_reduce": all_reduce,
    "attention": attention(),
    "attention_lse": attention(lse=True),
    "attention paged": paged_attention,
    "flash_decode": decode(),
    "flash_decode_lse": decode(lse=True),
    "moe_fused": fused,
    "moe_layer": moe_layer,
}
OUTPUTS = {"ag_gemm_x": ("out", "all_x"), "attention_lse": ("out", "lse"), "flash_decode_lse": ("out", "lse")}


def several(results):
    return results if isinstance(results, tuple) else (results,)


def check(world, case, device, **compiler):
    """opcheck of both overloads, and their results in one compiled graph are those of the operator's class."""
    op = getattr(OPS, case.split()[0])
    operator, tensors = CASES[case](world)
    tensors = tuple(None if tensor is None else tensor.to(device) for tensor in tensors)
    name = torch_ops.register(operator)
    expected = several(op(name, *tensors))
    outputs = dict(zip(OUTPUTS.get(case, ("out",)), (torch.zeros_like(result) for result in expected)))
    torch.library.opcheck(op.default, (name, *tensors))
    torch.library.opcheck(op.out, (name, *tensors), outputs)

    @torch.compile(fullgraph=True, **compiler)
    def both(first, *others):
        results = several(op(name, first * 1, *others))
        op(name, first * 1, *others, **outputs)
        return [result + 1 for result in results], [output + 1 for output in outputs.values()]

    for _ in range(3):  # with CUDA graphs a later call replays one
        for results in both(*tensors):
            for result, wanted in zip(results, expected):
                assert torch.equal(result, wanted + 1)
        for output, wanted in zip(outputs.values(), expected):
            assert torch.equal(output, wanted)
            output.zero_()
    world.check()
    assert expected[0].abs().sum() > 0
