"""torch.library operators on the emulator: opcheck, one graph under torch.compile, names. On GPUs: test_gpu_ops.py."""

import farwarp
import pytest
from processes import outputs as printed_by

torch = pytest.importorskip("torch")
pytest.importorskip("farwarp.torch_ops")
from farwarp import torch_ops  # noqa: E402

OPS = torch.ops.farwarp
BF16 = torch.bfloat16
pytestmark = pytest.mark.seconds(600)


def numbers(*shape, seed=0, dtype=BF16):
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1).to(dtype)


def integers(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()


def alone(function):
    """In this thread: torch 2.11 ends with a segmentation fault if several threads of a process compile."""
    with farwarp.World(target="emu_sm90") as world:
        return function(world)


# Of each op: the operator, its tensors. All of one rank, where the collective ones have nobody to wait for.


def gemm(world):
    return farwarp.Gemm(world, 8, 16, 64, bias=True), (numbers(8, 64), numbers(16, 64), numbers(16))


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
    operator = farwarp.Attention(world, 2, 4, 2, 64, 20, 40, causal=True, page_size=16, pages=6, total_queries=27, sinks=True)
    cache = numbers(6, 16, 2, 64, seed=1), numbers(6, 16, 2, 64, seed=2)
    table = integers([0, 2, 4], [5, 1, 3])
    return operator, (numbers(27, 4, 64), *cache, numbers(4, dtype=torch.float32), integers(0, 20, 27), None, integers(40, 17), table)


def decode(**options):
    def make(world):
        operator = farwarp.FlashDecode(world, 3, 4, 2, 64, pages=12, max_pages=3, **options)
        cache = numbers(12, 16, 2, 64, seed=1), numbers(12, 16, 2, 64, seed=2)
        return operator, (numbers(3, 1, 4, 64), *cache, torch.arange(9, dtype=torch.int32).reshape(3, 3), integers(17, 40, 1))

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


CASES = {
    "gemm": gemm,
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
}
OUTPUTS = {"ag_gemm_x": ("out", "all_x"), "attention_lse": ("out", "lse"), "flash_decode_lse": ("out", "lse")}


def several(results):
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("case", CASES)
def test_ops(case):
    """opcheck of both overloads, and their results in one compiled graph are those of the class."""
    op = getattr(OPS, case.split()[0])

    def check(world):
        operator, tensors = CASES[case](world)
        name = torch_ops.register(operator)
        expected = several(op(name, *tensors))
        outputs = dict(zip(OUTPUTS.get(case, ("out",)), (torch.zeros_like(result) for result in expected)))
        torch.library.opcheck(op.default, (name, *tensors))
        torch.library.opcheck(op.out, (name, *tensors), outputs)

        @torch.compile(fullgraph=True)
        def both(first, *others):
            results = several(op(name, first * 1, *others))
            op(name, first * 1, *others, **outputs)
            return [result + 1 for result in results], [output + 1 for output in outputs.values()]

        for results in both(*tensors):
            for result, wanted in zip(results, expected):
                assert torch.equal(result, wanted + 1)
        for output, wanted in zip(outputs.values(), expected):
            assert torch.equal(output, wanted)
        return expected

    assert alone(check)[0].abs().sum() > 0


def test_results_are_those_of_the_class():
    def both(world):
        for make, op in ((gemm, OPS.gemm), (paged_attention, OPS.attention), (decode(), OPS.flash_decode), (all_reduce, OPS.all_reduce)):
            operator, tensors = make(world)
            got = op(torch_ops.register(operator), *tensors)
            if op is OPS.attention:
                q, k, v, sinks, starts, _, counts, table = tensors
                wanted = operator(q, k, v, sinks=sinks, query_starts=starts, key_counts=counts, block_table=table)
            else:
                wanted = operator(*tensors)
            assert torch.equal(got, wanted.torch())

    alone(both)


def test_all_reduce_in_place():
    def reduce(world):
        operator, (x,) = all_reduce(world)
        name = torch_ops.register(operator)
        torch.library.opcheck(OPS.all_reduce_.default, (name, x.clone()))

        @torch.compile(fullgraph=True)
        def twice(x):
            y = x + x
            OPS.all_reduce_(name, y)
            return y + y

        assert torch.equal(twice(x), 4 * x)

    alone(reduce)


def test_one_graph_for_many_shapes():
    """Sizes of the token dimension are symbols: no graph is compiled again."""

    def reduce(world):
        name = torch_ops.register(farwarp.AllReduce(world, 4096))
        graphs = []

        def count(module, _inputs):
            graphs.append(module)
            return module

        @torch.compile(fullgraph=True, dynamic=True, backend=count)
        def layer(x):
            return OPS.all_reduce(name, x * 2) + 1

        for tokens in (2, 3, 7, 30):
            x = numbers(tokens, 128)
            assert torch.equal(layer(x), 2 * x + 1)
        return len(graphs)

    assert alone(reduce) == 1


@pytest.mark.parametrize("options", ({}, {"fp8_dispatch": True}), ids=str)
def test_moe_layer(options):
    """Dispatch, experts that double their rows, combine; in one graph, and by the class."""

    def layer(world):
        operator, (x, indices, weights) = moe(**options)(world)
        name = torch_ops.register(operator)

        def experts(received):
            rows = received[0]
            if not options:
                return rows * 2
            return (rows.view(torch.float8_e4m3fn).float() * received[4].repeat_interleave(128, 1) * 2).to(BF16)

        @torch.compile(fullgraph=True)
        def compiled(x, indices, weights):
            received = (OPS.moe_dispatch_fp8 if options else OPS.moe_dispatch)(name, x * 1, indices * 1, weights)
            return OPS.moe_combine(name, experts(received), indices * 1)

        got = compiled(x, indices, weights)
        received = operator.dispatch(x, indices, weights)
        y = experts([None if tensor is None else tensor.torch() for tensor in received])
        assert torch.equal(got, operator.combine(y).torch())
        valid = (indices >= 0) * weights
        torch.testing.assert_close(got.float(), 2 * x.float() * valid.sum(1, keepdim=True), rtol=0.1, atol=0.1)
        room = {field: torch.zeros_like(tensor.torch()) for field, tensor in zip(received._fields, received) if tensor is not None}
        (OPS.moe_dispatch_fp8 if options else OPS.moe_dispatch)(name, x, indices, weights, **room)
        out = torch.empty_like(x)
        OPS.moe_combine(name, experts(list(room.values())), indices, out=out)
        assert torch.equal(out, got)

    alone(layer)


def test_ranks_that_are_processes():
    """Two ranks; on each one graph of an all-gather and a reduce-scatter, with the same names on both."""
    printed = printed_by(
        """
        from farwarp import torch_ops
        ops, generator = torch.ops.farwarp, torch.Generator().manual_seed(1)
        x, up, down = (torch.rand(shape, generator=generator).bfloat16() for shape in ((16, 64), (128, 64), (64, 128)))
        with farwarp.World(dist.group.WORLD, target="emu_sm90") as world:
            ag = torch_ops.register(farwarp.AllGatherGemm(world, 16, 128, 64, path="own"))
            rs = torch_ops.register(farwarp.GemmReduceScatter(world, 16, 64, 128, path="own"))

            @torch.compile(fullgraph=True, backend="aot_eager")
            def mlp(x, up, down):
                return ops.gemm_rs(rs, torch.relu(ops.ag_gemm(ag, x, up)), down)

            y = mlp(x.chunk(2)[rank].contiguous(), up.chunk(2)[rank].contiguous(), down.chunk(2, 1)[rank].contiguous())
            wanted = (torch.relu(x.float() @ up.float().T) @ down.float().T).chunk(2)[rank]
            torch.testing.assert_close(y.float(), wanted, rtol=2e-2, atol=1e-2)
            print(ag, rs)
        """,
        ranks=2,
    )
    assert printed == ["AllGatherGemm.0 GemmReduceScatter.1\n"] * 2


def test_names():
    def names(world):
        first, tensors = gemm(world)
        name = torch_ops.register(first)
        assert torch_ops.register(first) == name
        second, _ = gemm(world)
        with pytest.raises(farwarp.InvalidArgumentError, match=f"name is '{name}', which a Gemm has; allowed: a name of no open operator"):
            torch_ops.register(second, name)
        reduce, (x,) = all_reduce(world)
        with pytest.raises(farwarp.InvalidArgumentError, match=f"op is '{name}', a Gemm; allowed: an AllReduce"):
            OPS.all_reduce(name, x)
        lse, attention_tensors = attention(lse=True)(world)
        other = torch_ops.register(lse, "layers.0.attention")
        assert other == "layers.0.attention"
        with pytest.raises(farwarp.InvalidArgumentError, match="an Attention with lse; allowed: an Attention$"):
            OPS.attention(other, *attention_tensors)
        with pytest.raises(farwarp.MisuseError, match="op is 'layers.1', which no operator has; allowed: a name that register"):
            OPS.gemm("layers.1", *tensors)
        with pytest.raises(farwarp.InvalidArgumentError, match="operator is a World; allowed: Gemm, AllGatherGemm, "):
            torch_ops.register(world)
        compiled = torch.compile(lambda *tensors: OPS.gemm(name, *tensors), fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(*tensors), OPS.gemm(name, *tensors))
        first.close()
        for call in (OPS.gemm, lambda name, *tensors: compiled(*tensors)):
            with pytest.raises(farwarp.MisuseError, match=f"op is '{name}', a Gemm that is closed; allowed: an operator that is open"):
                call(name, *tensors)
        with pytest.raises(farwarp.MisuseError, match="Gemm is closed; allowed: calls before close"):
            torch_ops.register(first)
        assert torch_ops.register(second, name) == name  # a compiled graph finds the operator that has the name now
        assert torch.equal(compiled(*tensors), second(*tensors).torch())
        return name

    name = alone(names)
    assert name not in torch_ops._named or torch_ops._named[name].operator() is None or torch_ops._named[name].operator()._handle is None


def test_names_are_forgotten():
    import gc

    def cycle(world):
        for _ in range(3):
            with farwarp.Gemm(world, 8, 16, 64) as operator:
                torch_ops.register(operator)
            del operator

    before = set(torch_ops._named)
    alone(cycle)
    gc.collect()
    assert set(torch_ops._named) <= before


@pytest.mark.parametrize(
    "out, message",
    (
        (
            torch.empty(16, 8, dtype=BF16),
            r"out has shape \(16, 8\), strides \(8, 1\), torch.bfloat16; allowed: \(8, 16\), contiguous, torch.bfloat16",
        ),
        (torch.empty(8, 16), r"out has shape \(8, 16\), strides \(16, 1\), torch.float32; allowed"),
        (torch.empty(16, 8, dtype=BF16).T, r"out has shape \(8, 16\), strides \(1, 8\), torch.bfloat16; allowed"),
    ),
)
def test_outputs_that_are_refused(out, message):
    def call(world):
        operator, tensors = gemm(world)
        with pytest.raises(farwarp.InvalidArgumentError, match=message):
            OPS.gemm(torch_ops.register(operator), *tensors, out=out)

    alone(call)


def test_wrong_tensors_are_refused():
    def call(world):
        operator, (x, w, bias) = gemm(world)
        name = torch_ops.register(operator)
        with pytest.raises(farwarp.InvalidArgumentError, match="x is of float32; allowed: bfloat16"):
            OPS.gemm(name, x.float(), w, bias)
        with pytest.raises(farwarp.InvalidArgumentError, match=r"w has shape \[8, 64\]; allowed: \[16, 64\]"):
            OPS.gemm(name, x, x, bias)
        with pytest.raises(farwarp.InvalidArgumentError, match="bias is a NoneType; allowed: a farwarp.Array"):
            OPS.gemm(name, x, w)

    alone(call)
