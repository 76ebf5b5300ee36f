#!/usr/bin/env python3
"""Times of a Qwen3 token with PyTorch, for comparison with `farwarp bench qwen3`.

    qwen3_pytorch.py [--model 8b] [--ranks 1,2] [--batch 1,8,32] [--context 512] [--linears-only] [--compile]
    qwen3_pytorch.py --self-test

Random bf16 weights. Two rows for each number of ranks and sequences, each a CUDA graph of one token:

- "linear layers": a rank's matrix products alone, by cuBLAS: q, k, v together, gate and up together. They are all that
  --linears-only times.
- "decoder": all of a token. Tensor parallel as Megatron splits it: an all-reduce by NCCL after attention's output and
  after down, and the best logit of each rank's part of the vocabulary is gathered. Norms, rotations and activations are
  PyTorch's own kernels. Keys and values are static and contiguous; attention reads exactly `context` + 1 of them, by
  PyTorch's flash backend and by cuDNN, of which the faster one is shown.

A time is the median of --samples replays, each of the slowest rank. Each rank is a process with a GPU of its own.
Weights are read once for each token and are far larger than the L2. Each replay repeats the same position.

--compile, one rank: also transformers' Qwen3, a static cache, its decoding step compiled by torch.compile, median of 5
differences of two lengths.
--self-test needs no GPU: two ranks (gloo, fp32) decode a tiny model; logits and tokens are compared with transformers'
Qwen3. Exit status: 0; 1 if the self-test fails; 2 for bad usage; 3 without PyTorch (and transformers, where needed) or
enough GPUs.
"""

import argparse
import functools
import math
import statistics
import sys
import time

from pytorch_timing import capture, fail, median_us, spawn

SIZES = {  # hidden, layers, query heads, KV heads, intermediate
    "0.6b": (1024, 28, 16, 8, 3072),
    "1.7b": (2048, 28, 16, 8, 6144),
    "4b": (2560, 36, 32, 8, 9728),
    "8b": (4096, 36, 32, 8, 12288),
    "14b": (5120, 40, 40, 8, 17408),
    "32b": (5120, 64, 64, 8, 25600),
}
HEAD_DIM, VOCABULARY = 128, 151936
EPSILON, THETA = 1e-6, 1e6
HOLD_CYCLES = 10_000_000  # about 5 ms: the host enqueues a replay meanwhile
TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 100,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
}


def rank_shapes(sizes, ranks: int) -> dict:
    """Of a rank's matrices of a layer: [rows, columns]."""
    hidden, _, heads, kv_heads, intermediate = sizes
    return {
        "qkv": ((heads + 2 * kv_heads) // ranks * HEAD_DIM, hidden),
        "out": (hidden, heads // ranks * HEAD_DIM),
        "gate_up": (2 * intermediate // ranks, hidden),
        "down": (hidden, intermediate // ranks),
    }


def random_weights(torch, sizes, ranks: int) -> dict:
    """A rank's. The norms' weights are ones, those of q and k [q heads + KV heads of the rank][head dim]."""

    def matrix(rows, columns):
        return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) / math.sqrt(columns)

    def ones(*shape):
        return torch.ones(shape, device="cuda", dtype=torch.bfloat16)

    hidden, layers, heads, kv_heads, _ = sizes
    return {
        "layers": [
            {name: matrix(*shape) for name, shape in rank_shapes(sizes, ranks).items()}
            | {
                "input_norm": ones(hidden),
                "qk_norm": ones((heads + kv_heads) // ranks, HEAD_DIM),
                "middle_norm": ones(hidden),
            }
            for _ in range(layers)
        ],
        "embedding": matrix(VOCABULARY, hidden),
        "norm": ones(hidden),
        "head": matrix(VOCABULARY // ranks, hidden),
    }


def sharded_weights(torch, state: dict, config, rank: int, ranks: int) -> dict:
    """Rank `rank`'s share of a transformers model."""

    def rows(tensor):
        return tensor.chunk(ranks, dim=0)[rank]

    def columns(tensor):
        return tensor.chunk(ranks, dim=1)[rank].contiguous()

    layers = []
    for i in range(config.num_hidden_layers):

        def of(name, prefix=f"model.layers.{i}."):
            return state[prefix + name + ".weight"]

        norms = [
            of("self_attn.q_norm").expand(config.num_attention_heads // ranks, -1),
            of("self_attn.k_norm").expand(config.num_key_value_heads // ranks, -1),
        ]
        layers.append(
            {
                "qkv": torch.cat([rows(of(f"self_attn.{name}_proj")) for name in "qkv"]),
                "out": columns(of("self_attn.o_proj")),
                "gate_up": torch.cat([rows(of("mlp.gate_proj")), rows(of("mlp.up_proj"))]),
                "down": columns(of("mlp.down_proj")),
                "input_norm": of("input_layernorm"),
                "qk_norm": torch.cat(norms),
                "middle_norm": of("post_attention_layernorm"),
            }
        )
    return {
        "layers": layers,
        "embedding": state["model.embed_tokens.weight"],
        "norm": state["model.norm.weight"],
        "head": rows(state["lm_head.weight"]),
    }


def attention(torch, backend: str, q, k, v):
    """q [batch, heads, 1, head dim], k and v [batch, KV heads, keys, head dim]."""
    if backend == "flash":
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False, return_debug_mask=False)[0]
    if backend == "cudnn":
        return torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, False, 0.0, False, False)[0]
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


class Decoder:
    """One rank's share of a Qwen3, with a cache of `positions` positions of `batch` sequences."""

    def __init__(self, torch, weights: dict, rank: int, ranks: int, batch: int, positions: int):
        self.torch, self.weights, self.rank, self.ranks = torch, weights, rank, ranks
        layer, embedding = weights["layers"][0], weights["embedding"]
        self.head_dim = layer["qk_norm"].shape[1]
        self.heads = layer["out"].shape[1] // self.head_dim
        self.kv_heads = layer["qk_norm"].shape[0] - self.heads
        options = {"device": embedding.device, "dtype": embedding.dtype}
        self.tokens = torch.zeros(batch, dtype=torch.long, device=embedding.device)  # the next inputs
        self.cache = [
            torch.zeros(2, batch, self.kv_heads, positions, self.head_dim, **options) for _ in weights["layers"]
        ]
        angles = torch.outer(
            torch.arange(positions, dtype=torch.float64),
            THETA ** (-torch.arange(0, 1, 2 / self.head_dim, dtype=torch.float64)),
        )
        self.cosines, self.sines = (
            torch.cat([part, part], dim=1).to(**options) for part in (angles.cos(), angles.sin())
        )
        self.best = torch.zeros(ranks * batch, 2, device=embedding.device)  # of each rank: logit, token

    def all_reduce(self, x):
        if self.ranks > 1:
            self.torch.distributed.all_reduce(x)
        return x

    def norm(self, x, weight):
        return self.torch.nn.functional.rms_norm(x, weight.shape[-1:], weight, EPSILON)

    def step(self, position: int, backend: str):
        """Decodes self.tokens at `position`; self.tokens are then the best ones. Returns the rank's logits."""
        torch, linear = self.torch, self.torch.nn.functional.linear
        x = torch.nn.functional.embedding(self.tokens, self.weights["embedding"])
        batch, turning = x.shape[0], self.heads + self.kv_heads
        for layer, cache in zip(self.weights["layers"], self.cache):
            qkv = linear(self.norm(x, layer["input_norm"]), layer["qkv"]).view(
                batch, turning + self.kv_heads, self.head_dim
            )
            qk = torch.nn.functional.rms_norm(qkv[:, :turning], (self.head_dim,), None, EPSILON) * layer["qk_norm"]
            halves = torch.cat([-qk[..., self.head_dim // 2 :], qk[..., : self.head_dim // 2]], dim=-1)
            qk = qk * self.cosines[position] + halves * self.sines[position]
            cache[0, :, :, position] = qk[:, self.heads :]
            cache[1, :, :, position] = qkv[:, turning:]
            attended = attention(
                torch,
                backend,
                qk[:, : self.heads].unsqueeze(2),
                cache[0, :, :, : position + 1],
                cache[1, :, :, : position + 1],
            )
            x = x + self.all_reduce(linear(attended.reshape(batch, -1), layer["out"]))
            gate, up = linear(self.norm(x, layer["middle_norm"]), layer["gate_up"]).chunk(2, dim=1)
            x = x + self.all_reduce(linear(torch.nn.functional.silu(gate) * up, layer["down"]))
        logits = linear(self.norm(x, self.weights["norm"]), self.weights["head"])
        best = torch.stack([part.float() for part in logits.max(dim=1)], dim=1)  # tokens are exact in fp32
        best[:, 1] += self.rank * logits.shape[1]
        if self.ranks > 1:
            torch.distributed.all_gather_into_tensor(self.best, best)
        else:
            self.best.copy_(best)
        highest, tokens = self.best.view(self.ranks, batch, 2).unbind(dim=2)
        self.tokens.copy_(tokens.gather(0, highest.argmax(dim=0)[None])[0])
        return logits


def time_graph(torch, work, ranks: int, samples: int) -> float:
    return median_us(torch, capture(torch, [work]), ranks, samples, HOLD_CYCLES)


def time_linears(torch, weights: dict, batch: int, ranks: int, samples: int) -> float:
    matrices = [layer[name] for layer in weights["layers"] for name in ("qkv", "out", "gate_up", "down")] + [
        weights["head"]
    ]
    inputs = {
        columns: torch.randn(batch, columns, device="cuda", dtype=torch.bfloat16)
        for columns in {matrix.shape[1] for matrix in matrices}
    }

    def work():
        for matrix in matrices:
            torch.nn.functional.linear(inputs[matrix.shape[1]], matrix)

    return time_graph(torch, work, ranks, samples)


def time_decoder(torch, weights: dict, batch: int, rank: int, ranks: int, arguments) -> str:
    decoder, times = Decoder(torch, weights, rank, ranks, batch, arguments.context + 1), {}
    for layer in decoder.cache:
        layer.normal_()
    for backend in ("flash", "cudnn"):
        try:
            times[backend] = time_graph(
                torch, functools.partial(decoder.step, arguments.context, backend), ranks, arguments.samples
            )
        except RuntimeError as error:  # the same on all ranks: the backend does not take the shape
            print(f"{backend}: {str(error).strip().splitlines()[0][:200]}", file=sys.stderr)
    if not times:
        fail("neither the flash backend nor cuDNN takes this shape", 1)
    fastest = min(times, key=times.get)
    others = "".join(f"; {name} {us:.0f}" for name, us in times.items() if name != fastest)
    return f"{times[fastest]:.0f} ({fastest}{others})"


def run_rank(rank: int, ranks: int, arguments) -> None:
    import torch

    torch.cuda.set_device(rank)
    if ranks > 1:
        torch.distributed.init_process_group("nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    torch.manual_seed(rank)
    weights = random_weights(torch, SIZES[arguments.model], ranks)
    with torch.no_grad():
        for batch in arguments.batch:
            cells = [
                f"{ranks} ranks",
                f"{batch} sequences",
                f"linear layers {time_linears(torch, weights, batch, ranks, arguments.samples):.0f}",
            ]
            if not arguments.linears_only:
                cells.append(f"decoder {time_decoder(torch, weights, batch, rank, ranks, arguments)}")
            if rank == 0:
                print(", ".join(cells), flush=True)
    if ranks > 1:
        torch.distributed.destroy_process_group()


def compiled(torch, sizes, batch: int, context: int) -> float:
    import transformers

    hidden, layers, heads, kv_heads, intermediate = sizes
    config = transformers.Qwen3Config(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=HEAD_DIM,
        intermediate_size=intermediate,
        vocab_size=VOCABULARY,
        tie_word_embeddings=False,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.Qwen3ForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    ids = torch.randint(VOCABULARY, (batch, context), device="cuda")

    def generate(tokens: int) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.no_grad():
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                cache_implementation="static",
                do_sample=False,
                min_new_tokens=tokens,
                max_new_tokens=tokens,
                pad_token_id=0,
            )
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    few, many = 16, 80
    for tokens in (few, many, few, many):
        generate(tokens)
    return statistics.median((generate(many) - generate(few)) / (many - few) for _ in range(5)) * 1e6


def test_rank(rank: int, ranks: int, batch: int, positions: int) -> None:
    """Each rank makes the same model, and compares its part of the logits."""
    import torch
    import transformers

    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(5)
    config = transformers.Qwen3Config(**TINY)
    model = transformers.Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            values = torch.randn(tensor.shape)
            tensor.copy_(1 + 0.2 * values if tensor.dim() == 1 else values / math.sqrt(tensor.shape[1]))
        weights = sharded_weights(torch, model.state_dict(), config, rank, ranks)
        decoder = Decoder(torch, weights, rank, ranks, batch, positions)
        decoder.tokens.copy_(torch.arange(batch) + 3)
        inputs, ours = [], []
        for position in range(positions):
            inputs.append(decoder.tokens.clone())
            ours.append(decoder.step(position, "sdpa"))
        exact = model(torch.stack(inputs, dim=1)).logits  # [batch][positions][vocabulary]
    error = float((torch.stack(ours, dim=1) - exact.chunk(ranks, dim=2)[rank]).abs().max() / exact.abs().max())
    same = torch.equal(torch.stack(inputs[1:], dim=1), exact[:, :-1].argmax(dim=2))
    print(
        f"rank {rank} of {ranks}: {batch} sequences of {positions} positions: "
        f"largest error of its logits {error:.1e} of the largest logit "
        f"(allowed: 1e-5), tokens {'equal' if same else 'DIFFER'}",
        flush=True,
    )
    torch.distributed.destroy_process_group()
    if not (error <= 1e-5 and same):
        sys.exit(1)


def numbers(text: str) -> list:
    values = [int(word) for word in text.split(",")]
    if min(values) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': allowed are numbers of 1 or more")
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="8b")
    parser.add_argument("--ranks", type=numbers, default=[1], help="one or more, each a divisor of the KV heads (1)")
    parser.add_argument("--batch", type=numbers, default=[1, 8, 32])
    parser.add_argument("--context", type=int, default=512, help="keys before the token")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--linears-only", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    kv_heads = SIZES[arguments.model][3]
    for ranks in arguments.ranks:
        if kv_heads % ranks != 0:
            fail(f"--ranks is {ranks}; allowed is a divisor of the KV heads, {kv_heads}")
    for name in ("context", "samples"):
        if getattr(arguments, name) < 1:
            fail(f"--{name} is {getattr(arguments, name)}; allowed is 1 or more")
    try:
        import torch

        if arguments.compile or arguments.self_test:
            import transformers  # noqa: F401
    except ImportError as error:
        fail(f"a package is missing: {error}", 3)
    if arguments.self_test:
        for ranks, batch in ((1, 2), (2, 3)):
            spawn(torch, test_rank, ranks, ranks, batch, 12)
        return
    if torch.cuda.device_count() < max(arguments.ranks):
        fail(f"{torch.cuda.device_count()} GPUs; needed are {max(arguments.ranks)}", 3)
    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, Qwen3-{arguments.model}, "
        f"context {arguments.context}; us of a token, median of {arguments.samples}, slowest rank",
        flush=True,
    )
    for ranks in arguments.ranks:
        spawn(torch, run_rank, ranks, ranks, arguments)
    if arguments.compile:
        for batch in arguments.batch:
            us = compiled(torch, SIZES[arguments.model], batch, arguments.context)
            print(f"1 rank, {batch} sequences, transformers with torch.compile {us:.0f}", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
