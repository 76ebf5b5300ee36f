"""Cases of random_calls.py: operators with random shapes, their calls' tensors, and exact results in plain torch."""

from __future__ import annotations

import random
from typing import Any, Callable, NamedTuple

import torch

import farwarp
from farwarp import torch_ops

OPS = torch.ops.farwarp


class Place:
    """Where a rank's numbers are made. All ranks make the same ones."""

    def __init__(self, world: farwarp.World, seed: int) -> None:
        self.small = world.emulated
        self.device = torch.device("cpu" if world.emulated else f"cuda:{world.device}")
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.choose = random.Random(seed)

    def size(self, most: int, step: int = 1) -> int:
        """A multiple of step, up to step * most."""
        return step * self.choose.randint(1, min(most, 4) if self.small else most)

    def uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape, device=self.device, generator=self.generator)

    def numbers(self, *shape: int) -> torch.Tensor:
        """-1 to 1."""
        return (self.uniform(*shape) * 2 - 1).bfloat16()

    def integers(self, values: Any) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def permuted(self, count: int) -> torch.Tensor:
        return torch.randperm(count, device=self.device, generator=self.generator).int()


class Case(NamedTuple):
    operator: farwarp.operator.Operator
    draw: Callable[[], tuple[tuple, tuple]]
    """() -> tensors of a call, each time others, and the exact results"""
    by_class: Callable[..., Any]
    by_op: Callable[..., Any] | None
    """(name, tensors...); None: torch has no op for it"""


def gemm(world, place):
    m, n, k, bias = place.size(600), place.size(128, 8), place.size(128, 8), place.choose.random() < 0.5
    operator = farwarp.Gemm(world, m, n, k, bias=bias)

    def draw():
        x, w, b = place.numbers(m, k), place.numbers(n, k), place.numbers(n) if bias else None
        exact = x.float() @ w.float().T
        return (x, w, b), (exact + b.float() if bias else exact,)

    return Case(operator, draw, operator, OPS.gemm)


def fp8_gemm(world, place):
    m, n, k, bias = place.size(600), place.size(128, 8), place.size(128, 16), place.choose.random() < 0.5
    scaling = place.choose.choice(("blocks", "rows", "tensor"))
    operator = farwarp.Fp8Gemm(world, m, n, k, scaling=scaling, bias=bias)
    steps = -(-k // 128)
    shapes = {"blocks": ((m, steps), (-(-n // 128), steps)), "rows": ((m,), (n,)), "tensor": ((1,), (1,))}[scaling]

    def draw():
        x, w = (place.numbers(rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
        scales, b = [place.uniform(*shape) + 0.5 for shape in shapes], place.numbers(n) if bias else None
        of_x, of_w = scales
        if scaling == "blocks":
            of_x, of_w = of_x.repeat_interleave(128, 1)[:, :k], of_w.repeat_interleave(128, 1)[:, :k]
            of_w = of_w.repeat_interleave(128, 0)[:n]
        else:
            of_x, of_w = of_x[:, None], of_w[:, None]
        exact = (x.float() * of_x) @ (w.float() * of_w).T
        codes = x.view(torch.uint8), w.view(torch.uint8)
        return (*codes, *scales, b), (exact + b.float() if bias else exact,)

    return Case(operator, draw, operator, OPS.fp8_gemm)


def grouped_gemm(world, place):
    groups, rows, k = place.size(8), place.size(600), place.size(64, 16)
    n, scaled = place.size(8, 64), place.choose.random() < 0.5
    activation = place.choose.choice(("none", "swiglu"))
    parts, steps = 1 if activation == "none" else 2, -(-k // 128)
    scaling = "blocks" if scaled else "none"
    operator = farwarp.GroupedGemm(world, groups, rows, n, k, activation=activation, scaling=scaling)

    def draw():
        x, w = place.numbers(rows, k), place.numbers(groups, parts * n, k)
        ends = sorted(place.choose.randint(0, rows) for _ in range(groups - 1))
        offsets = [0, *ends, rows]
        scales, of_x, of_w = (), x.float(), w.float()
        if scaled:
            x, w = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
            scales = place.uniform(rows, steps) + 0.5, place.uniform(groups, parts * -(-n // 128), steps) + 0.5
            wide = [scale.repeat_interleave(128, -1)[..., :k] for scale in scales]
            of_columns = [part.repeat_interleave(128, 1)[:, :n] for part in wide[1].chunk(parts, 1)]
            of_x, of_w = x.float() * wide[0], w.float() * torch.cat(of_columns, 1)
            x, w = x.view(torch.uint8), w.view(torch.uint8)
        exact = torch.cat([of_x[a:b] @ of_w[g].T for g, (a, b) in enumerate(zip(offsets, offsets[1:]))])
        if parts == 2:
            gate, up = exact.chunk(2, 1)
            exact = torch.nn.functional.silu(gate) * up
        return (x, w, place.integers(offsets), *scales), (exact,)

    return Case(operator, draw, operator, OPS.grouped_gemm)


def product(kind, op):
    def make(world, place):
        rank, ranks = world.rank, world.size
        m, n, k = place.size(300, ranks), place.size(64, 8 * ranks), place.size(64, 8 * ranks)
        operator = kind(world, m, n, k, path="own")

        def part(tensor, dimension):
            return tensor.chunk(ranks, dimension)[rank].clone(memory_format=torch.contiguous_format)

        def draw():
            x, w = place.numbers(m, k), place.numbers(n, k)
            exact = x.float() @ w.float().T
            if kind is farwarp.AllGatherGemm:
                return (part(x, 0), part(w, 0)), (part(exact, 1),)
            return (part(x, 1), part(w, 1)), (part(exact, 0) if kind is farwarp.GemmReduceScatter else exact,)

        return Case(operator, draw, operator, op)

    return make


def all_reduce(world, place):
    operator = farwarp.AllReduce(
        world, place.size(1 << 17, 8), mode=place.choose.choice(("auto", "one_shot", "two_shot"))
    )
    elements = place.choose.randint(1, operator.max_elements)

    def draw():
        x = place.numbers(world.size, elements)
        return (x[world.rank].clone(),), (x.float().sum(0),)

    return Case(operator, draw, operator, OPS.all_reduce)


def plain_attention(q, k, v, causal=False):
    """q [queries, heads, d], k and v [keys, kv_heads, d] -> out, logarithms of the denominators [heads, queries].

    A query without keys gets zeros.
    """
    groups = q.shape[1] // k.shape[1]
    q, k, v = (
        tensor.float().transpose(0, 1) for tensor in (q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1))
    )
    scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
    if causal:
        after = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).triu(
            1 + scores.shape[2] - scores.shape[1]
        )
        scores = scores.masked_fill(after, float("-inf"))
    lse = torch.logsumexp(scores, -1)
    return (torch.softmax(scores, -1).nan_to_num() @ v).transpose(0, 1), lse


def attention(world, place):
    choose = place.choose
    batch, kv_heads, dim = choose.randint(1, 3), choose.randint(1, 4), choose.choice((64, 128))
    heads, queries, causal = kv_heads * choose.choice((1, 2, 4)), place.size(300), choose.random() < 0.5
    keys = queries + place.size(300) if causal else place.size(300)
    operator = farwarp.Attention(world, batch, heads, kv_heads, dim, queries, keys, causal=causal, lse=True)

    def draw():
        q, k, v = (
            place.numbers(batch, queries, heads, dim),
            *(place.numbers(batch, keys, kv_heads, dim) for _ in range(2)),
        )
        outs, lses = zip(*(plain_attention(q[i], k[i], v[i], causal) for i in range(batch)))
        return (q, k, v), (torch.stack(outs), torch.stack(lses))

    return Case(operator, draw, operator, OPS.attention_lse)


def paged_attention(world, place):
    """Ragged queries, a paged cache, counts on the device, which change from call to call."""
    choose, page = place.choose, 16
    batch, kv_heads, queries, most = choose.randint(1, 3), choose.randint(1, 4), place.size(100), place.size(20, page)
    heads, total, columns = kv_heads * choose.choice((1, 2, 4)), batch * queries, most // page
    operator = farwarp.Attention(
        world,
        batch,
        heads,
        kv_heads,
        128,
        queries,
        most,
        causal=True,
        page_size=page,
        pages=batch * columns,
        total_queries=total,
    )

    def draw():
        q, k, v = (
            place.numbers(total, heads, 128),
            *(place.numbers(batch * columns, page, kv_heads, 128) for _ in range(2)),
        )
        table, counts = (
            place.permuted(batch * columns).reshape(batch, columns),
            [choose.randint(1, most) for _ in range(batch)],
        )
        starts = [i * queries for i in range(batch + 1)]
        exact = []
        for i, count in enumerate(counts):
            keys, values = (cache[table[i].long()].flatten(0, 1)[:count] for cache in (k, v))
            exact.append(plain_attention(q[starts[i] : starts[i + 1]], keys, values, causal=True)[0])
        return (q, k, v, None, place.integers(starts), None, place.integers(counts), table), (torch.cat(exact),)

    def by_class(q, k, v, sinks, starts, key_starts, counts, table):
        return operator(q, k, v, query_starts=starts, key_counts=counts, block_table=table)

    return Case(operator, draw, by_class, OPS.attention)


def flash_decode(shared):
    """shared: ranks share each sequence's keys."""

    def make(world, place):
        choose = place.choose
        batch, kv_heads, most = place.size(8), choose.randint(1, 4), place.size(20)
        heads, pages, shards = kv_heads * choose.choice((1, 2, 4, 8)), batch * most, world.size if shared else 1
        operator = farwarp.FlashDecode(
            world, batch, heads, kv_heads, 128, pages=pages, max_pages=most, kv_shards=shards, lse=True
        )

        def draw():
            q, k, v = (
                place.numbers(batch, 1, heads, 128),
                *(place.numbers(shards, pages, 16, kv_heads, 128) for _ in range(2)),
            )
            tables = torch.stack([place.permuted(pages).reshape(batch, most) for _ in range(shards)])
            lengths = [[choose.randint(1, 16 * most) for _ in range(batch)] for _ in range(shards)]

            def of(cache, i):
                return torch.cat([cache[s][tables[s, i].long()].flatten(0, 1)[: lengths[s][i]] for s in range(shards)])

            outs, lses = zip(*(plain_attention(q[i], of(k, i), of(v, i)) for i in range(batch)))
            mine = world.rank if shared else 0
            tensors = q, k[mine].clone(), v[mine].clone(), tables[mine].clone(), place.integers(lengths[mine])
            return tensors, (torch.stack(outs), torch.stack(lses).transpose(1, 2))

        return Case(operator, draw, operator, OPS.flash_decode_lse)

    return make


def routed(world, place, experts, top_k, hidden, most):
    """Tokens of this rank, each with top_k experts, some of them -1."""
    everyone = []
    for _ in range(world.size):
        x, weights = place.numbers(most, hidden), place.uniform(most, top_k)
        indices = place.uniform(most, experts).topk(top_k).indices.int()
        indices[place.uniform(most, top_k) < 0.1] = -1
        everyone.append((x, indices, weights))
    return everyone[world.rank]


def scaled(x, indices, weights, factors):
    """What combine gives of experts that multiply by their factor."""
    return x.float() * torch.where(indices >= 0, weights * factors[indices.clamp(min=0).long()], 0).sum(1, keepdim=True)


def moe_shape(world, place):
    choose = place.choose
    experts = world.size * choose.randint(1, 16)
    return experts, choose.randint(1, min(8, experts)), place.size(128, 8), place.size(64)


def moe(world, place, shape=None):
    """Dispatch, experts that multiply by a factor of their own, 1 to 16 in an order that is drawn, combine."""
    shape = shape or moe_shape(world, place)
    operator = farwarp.MoeAllToAll(world, *shape)
    factors = 1.0 + place.permuted(shape[0]) % 16
    mine = factors.chunk(world.size)[world.rank].bfloat16()
    row = torch.arange(operator.recv_rows, device=place.device)

    def draw():
        tensors = routed(world, place, *shape)
        return tensors, (scaled(*tensors, factors),)

    def experts(recv_x, offsets):
        expert = torch.searchsorted(offsets[1:].long(), row, right=True).clamp(max=len(mine) - 1)
        return recv_x * mine[expert][:, None]

    def by_class(x, indices, weights):
        received = operator.dispatch(x, indices, weights)
        return operator.combine(experts(torch_ops.in_torch(received.recv_x), torch_ops.in_torch(received.offsets)))

    def by_op(name, x, indices, weights):
        recv_x, _, offsets, _ = OPS.moe_dispatch(name, x, indices, weights)
        return OPS.moe_combine(name, experts(recv_x, offsets), indices)

    return Case(operator, draw, by_class, by_op)


def moe_fused(world, place):
    shape = moe_shape(world, place)
    operator = farwarp.MoeAllToAll(world, *shape)
    factors = (
        1.0 + torch.arange(shape[0], device=place.device) * world.size // shape[0]
    )  # an expert multiplies by 1 + its rank

    def draw():
        tensors = routed(world, place, *shape)
        return tensors, (scaled(*tensors, factors),)

    return Case(operator, draw, operator.fused, OPS.moe_fused)


def moe_rows(world, place):
    """The same of rows by tokens: an owner's experts are one factor for each row."""
    shape = moe_shape(world, place)
    operator = farwarp.MoeRowsAllToAll(world, *shape)
    factors = 1.0 + place.permuted(shape[0]) % 16
    mine = factors.chunk(world.size)[world.rank]

    def draw():
        tensors = routed(world, place, *shape)
        return tensors, (scaled(*tensors, factors),)

    def by_class(x, indices, weights):
        rows, experts, shares, _, _ = map(torch_ops.in_torch, operator.dispatch(x, indices, weights))
        return operator.combine(scaled(rows, experts, shares, mine).bfloat16())

    return Case(operator, draw, by_class, None)


def moe_layer(world, place):
    experts, top_k, hidden, most = moe_shape(world, place)
    inter, bias = place.size(64, 8), place.choose.random() < 0.5
    operator = farwarp.MoeLayer(world, experts, top_k, hidden, inter, most, bias=bias)

    def draw():
        x, indices, weights = routed(world, place, experts, top_k, hidden, most)
        w1, w2 = place.numbers(experts, 2 * inter, hidden), place.numbers(experts, hidden, inter)
        biases = [place.numbers(experts, 2 * inter), place.numbers(experts, hidden)] if bias else []
        exact = torch.zeros(most, hidden, device=place.device)
        for expert in range(experts):
            of_first, of_second = (b[expert].float() for b in biases) if bias else (0, 0)
            gate, up = (x.float() @ w1[expert].float().T + of_first).chunk(2, 1)
            h = (torch.nn.functional.silu(gate) * up).bfloat16().float()
            y = (h @ w2[expert].float().T + of_second).bfloat16().float()
            exact += torch.where(indices == expert, weights, 0).sum(1, keepdim=True) * y
        mine = [tensor.chunk(world.size)[world.rank].clone() for tensor in (w1, w2, *biases)]
        return (x, indices, weights, *mine), (exact,)

    return Case(operator, draw, operator, OPS.moe_layer)


CASES = {
    "gemm": gemm,
    "fp8-gemm": fp8_gemm,
    "grouped-gemm": grouped_gemm,
    "ag-gemm": product(farwarp.AllGatherGemm, OPS.ag_gemm),
    "gemm-rs": product(farwarp.GemmReduceScatter, OPS.gemm_rs),
    "gemm-ar": product(farwarp.GemmAllReduce, OPS.gemm_ar),
    "all-reduce": all_reduce,
    "moe": moe,
    "moe fused": moe_fused,
    "moe layer": moe_layer,
    "attention": attention,
    "attention paged": paged_attention,
    "flash-decode": flash_decode(False),
    "flash-decode shared": flash_decode(True),
    "moe rows": moe_rows,
}
