"""farwarp.symm_mem on the emulator against plain torch. On GPUs: test_gpu_ops.py."""

import concurrent.futures
import time

import pytest

import farwarp
from processes import SYMM_MEM, SYMM_MEM_END, outputs

torch = pytest.importorskip("torch")
pytest.importorskip("farwarp.torch_ops")
from farwarp import symm_groups, symm_mem  # noqa: E402

BF16 = torch.bfloat16
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def group():
    """A group of one rank."""
    torch._dynamo.reset()
    with farwarp.World(target="emu_sm90") as world:
        symm_mem.enable_symm_mem_for_group("alone", world=world)
        yield "alone"
        symm_mem.close("alone")


def numbers(*shape, seed=0, dtype=BF16):
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1).to(dtype)


def test_a_closed_world_is_none():
    world = farwarp.World(target="emu_sm90")
    symm_mem.enable_symm_mem_for_group("closed", world=world)
    assert symm_mem.is_symm_mem_enabled_for_group("closed")
    world.close()
    assert not symm_mem.is_symm_mem_enabled_for_group("closed")
    symm_mem.close("closed")


def test_threads_make_one_world_and_one_operator(monkeypatch):
    """At the same time each finds none."""
    made = []

    def slow(kind, *arguments, **options):
        time.sleep(0.05)
        made.append(kind)
        return kind(*arguments, **options)

    def call(_):
        group = symm_groups.group_of("threads")
        return group, group.operators.get("key", lambda: [slow(Sum, group.world, 64)], "a sum")

    Sum, World = farwarp.AllReduce, farwarp.World
    monkeypatch.setattr(symm_groups, "World", lambda _group, **_options: slow(World, target="emu_sm90"))
    monkeypatch.setattr(symm_groups, "process_group", lambda name: name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(call, range(2))
    symm_mem.close("threads")
    assert made == [World, Sum]
    assert first[0] is second[0] and first[1] is second[1]


def test_two_ranks():
    """Each function, whose shapes come again, in a group that gets its World at its first call."""
    printed = outputs(SYMM_MEM + SYMM_MEM_END, ranks=2)
    assert printed[0] == printed[1]
    assert int(printed[0]) <= 17  # of the products 11, of two all-reduces three types


def test_opcheck_and_one_graph(group):
    A, B, x = numbers(8, 64), numbers(16, 64, seed=1).t(), numbers(4, 32, seed=2)
    ops, out = torch.ops.farwarp, torch.zeros(4, 32, dtype=BF16)
    torch.library.opcheck(ops.symm_mem_all_gather_matmul.default, (A, [B, B], 0, group, True))
    torch.library.opcheck(ops.symm_mem_all_gather_matmul.default, (A, [B], 0, group, False))
    torch.library.opcheck(ops.symm_mem_matmul_reduce_scatter.default, (A, B, "sum", 0, group))
    torch.library.opcheck(ops.symm_mem_all_reduce.default, (x, "sum", group, "one_shot"))
    torch.library.opcheck(ops.symm_mem_all_reduce_out.default, (x, "sum", group, "two_shot", out))
    torch.library.opcheck(ops.symm_mem_all_reduce_.default, (x.clone(), "sum", group, "two_shot"))

    @torch.compile(fullgraph=True)
    def layer(A, B, x):
        gathered, (y,) = symm_mem.fused_all_gather_matmul(A * 1, [B], 0, group)
        z = symm_mem.fused_matmul_reduce_scatter(gathered * 1, B, "sum", 0, group)
        total = symm_mem.one_shot_all_reduce(x * 2, "sum", group)
        return y + z, symm_mem.two_shot_all_reduce_(total + 1, "sum", group) + 1

    products, sums = layer(A, B, x)
    torch.testing.assert_close(products.float(), 2 * A.float() @ B.float(), rtol=2e-2, atol=2e-2)
    assert torch.equal(sums, 2 * x + 1 + 1)


def test_what_is_refused(group):
    A, w, x = numbers(8, 64), numbers(16, 64), numbers(4, 32)
    gather, scatter = symm_mem.fused_all_gather_matmul, symm_mem.fused_matmul_reduce_scatter
    for call, message in (
        (
            lambda: gather(A, [w.t().contiguous()], 0, group),
            r"Bs\[0\] has strides \(16, 1\) for shape \(64, 16\); allowed: \(1, 64\)",
        ),
        (lambda: gather(A, [w.t(), w], 0, group), r"Bs\[1\] has shape \(16, 64\); allowed: \[64, N\]"),
        (lambda: gather(A, [], 0, group), "Bs is empty; allowed: one matrix or more"),
        (
            lambda: gather(A, [w.t()], 1, group),
            r"gather_dim is 1 for A of shape \(8, 64\); allowed: the first dimension that is not 1",
        ),
        (lambda: gather(A.view(2, 4, 64), [w.t()], 1, group), r"gather_dim is 1 for A of shape \(2, 4, 64\)"),
        (
            lambda: gather(A.float(), [w.float().t()], 0, group),
            r"^A_shard has shape \(8, 64\), Bs has shape \[\(64, 16\)\]: "
            r"rank \d: dtype is float32; allowed: bfloat16, float16",
        ),
        (
            lambda: scatter(A[:, :60].contiguous(), w[:, :60].contiguous().t(), "sum", 0, group),
            r"^A has shape \(8, 60\), B has shape \(60, 16\): ",
        ),
        (
            lambda: symm_mem.two_shot_all_reduce_(torch.empty(2**28 + 1), "sum", group),
            "input has 268435457 elements of float32; allowed: up to 268435456",
        ),
        (
            lambda: gather(A.t(), [w.t()], 0, group),
            r"A has strides \(1, 64\) for shape \(64, 8\); allowed: a contiguous tensor",
        ),
        (lambda: scatter(A, w.t(), "avg", 0, group), "reduce_op is 'avg'; allowed: sum"),
        (lambda: scatter(A, w.t(), "sum", 2, group), "scatter_dim is 2 for A of shape"),
        (lambda: symm_mem.one_shot_all_reduce(x, "max", group), "reduce_op is 'max'; allowed: sum"),
        (
            lambda: symm_mem.two_shot_all_reduce_(x.int(), "sum", group),
            "dtype is int32; allowed: bfloat16, float16, float32",
        ),
        (lambda: symm_mem.one_shot_all_reduce_out(x, "sum", group, torch.empty(2, 2)), r"out has shape \(2, 2\)"),
        (
            lambda: symm_mem.one_shot_all_reduce(x, "sum", "nobody"),
            "group_name is 'nobody' .*; allowed: the group_name of a ProcessGroup",
        ),
        (
            lambda: symm_mem.enable_symm_mem_for_group("other", world=1, heap_bytes=2),
            "world is given, and heap_bytes; allowed: one of them",
        ),
    ):
        with pytest.raises(farwarp.InvalidArgumentError, match=message):
            call()
    with pytest.raises(farwarp.MisuseError, match="group_name is 'alone', which has a World"):
        symm_mem.enable_symm_mem_for_group(group)
    with pytest.raises(
        AttributeError,
        match="has no fused_scaled_matmul_reduce_scatter: farwarp has no parallel products of fp8; allowed: close, ",
    ):
        _ = symm_mem.fused_scaled_matmul_reduce_scatter
    assert not hasattr(symm_mem, "multimem_all_reduce_") and not hasattr(symm_mem, "anything")


def test_operators_are_kept_and_closed(group):
    operators, w = symm_groups.groups[group].operators, numbers(16, 64)
    operators._most = 3
    for rows in (8, 16, 24, 8, 32):
        symm_mem.fused_matmul_reduce_scatter(numbers(rows, 64), w.t(), "sum", 0, group)
    assert [key[1][0] for key in operators] == [24, 8, 32]  # the one used last is last
    first = next(iter(operators._kept.values()))[0]
    operators._captured.add(next(iter(operators)))  # as a CUDA graph has it
    symm_mem.fused_matmul_reduce_scatter(numbers(40, 64), w.t(), "sum", 0, group)
    assert [key[1][0] for key in operators] == [24, 32, 40] and first.handle is not None
    for size in (1, 3, 4096, 4097):
        x = numbers(size)
        assert torch.equal(symm_mem.one_shot_all_reduce(x, "sum", group), x)
    assert [key[1][0] for key in operators if key[0] is farwarp.AllReduce] == [4096, 8192]
    symm_mem.close(group)
    assert first.handle is None and not operators
    symm_mem.close(group)


def test_a_heap_without_room_for_all():
    """Operators that were used before make room, on all ranks."""

    def reduce(world):
        name = f"rank {world.rank}"  # ranks are threads here: each has its own group name
        symm_mem.enable_symm_mem_for_group(name, world=world)
        kept = symm_groups.groups[name].operators
        for elements in (1 << 19, 1 << 18, 1 << 19, 1 << 20):
            x = numbers(elements)
            assert torch.equal(symm_mem.one_shot_all_reduce(x, "sum", name), x + x)
        assert [key[1][0] for key in kept][-1] == 1 << 20 and len(kept) < 3
        with pytest.raises(farwarp.OutOfMemoryError):
            symm_mem.one_shot_all_reduce(numbers(1 << 23), "sum", name)
        with pytest.raises(
            farwarp.InvalidArgumentError,
            match="input has 8912896 elements of bfloat16; allowed: up to 8388608 for one_shot",
        ):
            symm_mem.one_shot_all_reduce(numbers(17 << 19), "sum", name)  # 17 MiB
        symm_mem.close(name)

    farwarp.run(reduce, ranks=2, heap_bytes=10 << 20)
