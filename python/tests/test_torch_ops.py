"""torch.library operators on the emulator: opcheck, one graph under torch.compile, names. On GPUs: test_gpu_ops.py."""

import pytest

import farwarp
from processes import MLP, outputs

torch = pytest.importorskip("torch")
pytest.importorskip("farwarp.torch_ops")
from farwarp import torch_ops  # noqa: E402
from op_cases import BF16, CASES, OPS, all_reduce, attention, check, decode, gemm, moe, numbers, paged_attention  # noqa: E402

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()


def alone(function):
    """In this thread: torch 2.11 ends with a segmentation fault if several threads of a process compile."""
    with farwarp.World(target="emu_sm90") as world:
        return function(world)


@pytest.mark.parametrize("case", CASES)
def test_ops(case):
    alone(lambda world: check(world, case, "cpu"))


def test_results_are_those_of_the_class():
    def both(world):
        for make, op in (
            (gemm, OPS.gemm),
            (paged_attention, OPS.attention),
            (decode(), OPS.flash_decode),
            (all_reduce, OPS.all_reduce),
        ):
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


@pytest.mark.parametrize("options", ({}, {"scales": "rows"}), ids=str)
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
        room = {
            field: torch.zeros_like(tensor.torch())
            for field, tensor in zip(received._fields, received)
            if tensor is not None
        }
        (OPS.moe_dispatch_fp8 if options else OPS.moe_dispatch)(name, x, indices, weights, **room)
        out = torch.empty_like(x)
        OPS.moe_combine(name, experts(list(room.values())), indices, out=out)
        assert torch.equal(out, got)

    alone(layer)


def test_two_layers_of_one_operator():
    def twice(world):
        operator, (x, indices, weights) = moe()(world)
        name = torch_ops.register(operator)

        def layer(x):
            return OPS.moe_combine(name, OPS.moe_dispatch(name, x, indices, weights)[0], indices)

        compiled = torch.compile(lambda x: layer(layer(x) + 1), fullgraph=True)
        for _ in range(2):
            assert torch.equal(compiled(x), layer(layer(x) + 1))

    alone(twice)


def test_moe_with_a_count():
    """Rows from `count` on, whose indices are not allowed, are not read."""

    def layer(world):
        operator, (x, indices, weights) = moe()(world)
        name, count = torch_ops.register(operator), torch.tensor([5], dtype=torch.int32)
        wide = [
            torch.cat((tensor, torch.full((3, *tensor.shape[1:]), 99, dtype=tensor.dtype)))
            for tensor in (x, indices, weights)
        ]
        received = OPS.moe_dispatch(name, *wide, count)
        out = OPS.moe_combine(name, received[0], wide[1], count)
        assert torch.equal(out[:5], operator.combine(operator.dispatch(x, indices, weights).recv_x).torch())
        received = OPS.moe_dispatch(name, *wide, count)
        with pytest.raises(farwarp.InvalidArgumentError, match="indices has 5 rows; allowed: 8, those of the dispatch"):
            OPS.moe_combine(name, received[0], indices, count)
        OPS.moe_combine(name, received[0], wide[1], count)
        fused = OPS.moe_fused(name, *wide, count=count)  # of rank 0: experts that keep their rows
        assert torch.equal(fused[:5], out[:5]) and fused.shape == (8, 128)

    alone(layer)


def test_layer_with_a_count():
    """MoeLayer, without biases."""

    def layer(world):
        operator = farwarp.MoeLayer(world, 4, 2, 64, 128, 8)
        name, count = torch_ops.register(operator), torch.tensor([3], dtype=torch.int32)
        _, (_, indices, weights) = moe()(world)
        x, matrices = numbers(8, 64), (numbers(4, 256, 64, seed=1), numbers(4, 64, 128, seed=2))
        wide = [torch.cat((tensor, torch.full((3, 2), 99, dtype=tensor.dtype))) for tensor in (indices, weights)]
        wanted = operator(x[:3], indices[:3], weights[:3], *matrices).torch()
        assert torch.equal(OPS.moe_layer(name, x[:3], indices[:3], weights[:3], *matrices), wanted)
        got = OPS.moe_layer(name, x, *wide, *matrices, count=count)
        assert torch.equal(got[:3], wanted) and got.shape == (8, 64)
        out = torch.full_like(x, 7)
        OPS.moe_layer(name, x, *wide, *matrices, count=count, out=out)
        assert torch.equal(out[:3], wanted)
        with pytest.raises(farwarp.InvalidArgumentError, match=f"op is '{name}', a MoeLayer; allowed: a MoeAllToAll"):
            OPS.moe_fused(name, x[:3], indices[:3], weights[:3])

    alone(layer)


def test_ranks_that_are_processes():
    """Two ranks; on each one graph of an all-gather and a reduce-scatter, with the same names on both."""
    assert outputs(MLP, ranks=2) == ["AllGatherGemm.0 GemmReduceScatter.1\n"] * 2


def test_names():
    def names(world):
        first, tensors = gemm(world)
        name = torch_ops.register(first)
        assert torch_ops.register(first) == name
        second, _ = gemm(world)
        with pytest.raises(
            farwarp.InvalidArgumentError,
            match=f"name is '{name}', which a Gemm has; allowed: a name of no open operator",
        ):
            torch_ops.register(second, name)
        reduce, (x,) = all_reduce(world)
        with pytest.raises(farwarp.InvalidArgumentError, match=f"op is '{name}', a Gemm; allowed: an AllReduce"):
            OPS.all_reduce(name, x)
        lse, attention_tensors = attention(lse=True)(world)
        other = torch_ops.register(lse, "layers.0.attention")
        assert other == "layers.0.attention"
        with pytest.raises(farwarp.InvalidArgumentError, match="an Attention with lse; allowed: an Attention$"):
            OPS.attention(other, *attention_tensors)
        with pytest.raises(
            farwarp.MisuseError, match="op is 'layers.1', which no operator has; allowed: a name that register"
        ):
            OPS.gemm("layers.1", *tensors)
        with pytest.raises(
            farwarp.InvalidArgumentError, match="operator is a World; allowed: Gemm, Fp8Gemm, GroupedGemm, "
        ):
            torch_ops.register(world)
        compiled = torch.compile(lambda *tensors: OPS.gemm(name, *tensors), fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(*tensors), OPS.gemm(name, *tensors))
        first.close()
        for call in (OPS.gemm, lambda name, *tensors: compiled(*tensors)):
            with pytest.raises(
                farwarp.MisuseError, match=f"op is '{name}', a Gemm that is closed; allowed: an operator that is open"
            ):
                call(name, *tensors)
        with pytest.raises(farwarp.MisuseError, match="Gemm is closed; allowed: calls before close"):
            torch_ops.register(first)
        assert torch_ops.register(second, name) == name  # a compiled graph finds the operator that has the name now
        assert torch.equal(compiled(*tensors), second(*tensors).torch())
        return name

    name = alone(names)
    assert (
        name not in torch_ops._named
        or torch_ops._named[name].operator() is None
        or torch_ops._named[name].operator().handle is None
    )


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
            r"out has shape \(16, 8\), strides \(8, 1\), torch.bfloat16; "
            r"allowed: \(8, 16\), contiguous, torch.bfloat16",
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
