#!/usr/bin/env python3
"""Device times of operators called from Python beside those of `farwarp bench`, on GPUs, in one run.

    python_device_times.py [--ranks 2] [--samples 40] [--turns 2] [--program FARWARP] [--only gemm ...]

Needs torch and the package; --program: another command line program than the package's. The two take turns: the
program, then Python, --turns times. Both time a call as src/farwarp/harness/timing.h says (here device_timing.py); the
slowest rank of each sample; medians. launched: the call itself. graph: a CUDA graph of one call. Inputs have the same
distribution, because it sets the clocks. Prints the medians of the turns, how far the program's turns are apart
(largest by smallest), and Python's time divided by the program's.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

import torch

import device_timing
import farwarp
from farwarp import __main__ as package

WAYS = ("launched", "graph")


def normal(*shape):
    return torch.randn(shape, device="cuda").bfloat16()


def uniform(*shape):
    return (torch.rand(shape, device="cuda") * 2 - 1).bfloat16()


# Of each operator: what `farwarp bench` is asked for, and a function that gives a call from Python.


def gemm(world, m, n, k):
    operator, x, w, out = farwarp.Gemm(world, m, n, k), normal(m, k), normal(n, k), normal(m, n)
    return lambda: operator(x, w, out=out)


def ag_gemm(world, m, n, k):
    r, operator = world.size, farwarp.AllGatherGemm(world, m, n, k, path="own")
    x, w, out = uniform(m // r, k), uniform(n // r, k), uniform(m, n // r)
    return lambda: operator(x, w, out=out)


def reducing(kind, rows_of):
    def make(world, m, n, k):
        operator = kind(world, m, n, k, path="own")
        x, w, out = uniform(m, k // world.size), uniform(n, k // world.size), uniform(rows_of(m, world.size), n)
        return lambda: operator(x, w, out=out)

    return make


def all_reduce(world, elements):
    operator, x, out = farwarp.AllReduce(world, elements), uniform(elements), uniform(elements)
    return lambda: operator(x, out=out)


def moe(world, num_experts, experts_per_token, hidden_dim, max_num_tokens):
    operator = farwarp.MoeAllToAll(world, num_experts, experts_per_token, hidden_dim, max_num_tokens)
    x, out = normal(max_num_tokens, hidden_dim), normal(max_num_tokens, hidden_dim)
    indices = torch.rand(max_num_tokens, num_experts, device="cuda").topk(experts_per_token).indices.int()
    weights = torch.rand(max_num_tokens, experts_per_token, device="cuda")
    return lambda: operator.fused(x, indices, weights, out=out)


def attention(world, batch, heads, kv_heads, head_dim, queries):
    operator = farwarp.Attention(world, batch, heads, kv_heads, head_dim, queries, queries, lse=True)
    q, out = (normal(batch, queries, heads, head_dim) for _ in range(2))
    k, v = (normal(batch, queries, kv_heads, head_dim) for _ in range(2))
    lse = torch.empty(batch, heads, queries, device="cuda")
    return lambda: operator(q, k, v, out=out, lse=lse)


def flash_decode(world, batch, query_heads, kv_heads, head_dim, max_keys):
    columns = max_keys // 16
    pages = batch * columns + min(batch, 3)
    operator = farwarp.FlashDecode(
        world, batch, query_heads, kv_heads, head_dim, pages=pages, max_pages=columns, lse=True
    )
    q, out = (normal(batch, 1, query_heads, head_dim) for _ in range(2))
    k, v = (normal(pages, 16, kv_heads, head_dim) for _ in range(2))
    table = torch.randperm(pages, device="cuda")[: batch * columns].int().reshape(batch, columns)
    lengths, lse = (
        torch.full((batch,), max_keys, dtype=torch.int32, device="cuda"),
        torch.empty(batch, 1, query_heads, device="cuda"),
    )
    return lambda: operator(q, k, v, table, lengths, out=out, lse=lse)


SHAPES = (
    ("gemm", gemm, {"m": 4096, "n": 4096, "k": 4096}, {}),
    ("ag-gemm", ag_gemm, {"m": 2048, "n": 8192, "k": 4096}, {}),
    (
        "gemm-rs",
        reducing(farwarp.GemmReduceScatter, lambda m, ranks: m // ranks),
        {"m": 2048, "n": 4096, "k": 8192},
        {},
    ),
    ("gemm-ar", reducing(farwarp.GemmAllReduce, lambda m, ranks: m), {"m": 64, "n": 4096, "k": 8192}, {}),
    ("all-reduce", all_reduce, {"elements": 4096}, {}),
    ("all-reduce", all_reduce, {"elements": 8388608}, {}),
    (
        "moe-a2a",
        moe,
        {"num_experts": 128, "experts_per_token": 4, "hidden_dim": 2880, "max_num_tokens": 128},
        {"dtype": "bf16"},
    ),
    ("attention", attention, {"batch": 1, "heads": 32, "kv_heads": 8, "head_dim": 128, "queries": 4096}, {}),
    (
        "flash-decode",
        flash_decode,
        {"batch": 32, "query_heads": 32, "kv_heads": 8, "head_dim": 128, "max_keys": 4096},
        {"lengths": "full"},
    ),
)


class Ranks:
    """What the ranks, which are threads, share."""

    def __init__(self, size):
        self.barrier = threading.Barrier(size)
        self.times = [None] * size

    def meet(self):
        self.barrier.wait(60)


def median(stream, ranks, call, samples):
    """Collective: of the slowest ranks."""
    ranks.times[stream.world.rank] = [stream.sample(number, [call]) for number in range(samples + 3)][3:]
    ranks.meet()
    (of_call,) = device_timing.slowest(ranks.times)
    ranks.meet()
    return of_call


def from_python(make, shape, options):
    ranks = Ranks(options.ranks)

    def body(world):
        torch.cuda.set_device(world.device)
        stream, call = device_timing.HeldStream(world, ranks.meet), make(world, **shape)
        call()
        torch.cuda.synchronize()
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.stream(side):
            graph.capture_begin(capture_error_mode="thread_local")
            call()
            graph.capture_end()
        ranks.meet()
        medians = [median(stream, ranks, step, options.samples) for step in (call, graph.replay)]
        world.check()
        return medians

    return farwarp.run(body, ranks=options.ranks, target="cuda", heap_bytes=1 << 30)[0]


def from_program(operator, shape, more, options):
    setting = ",".join(f"{name}={value}" for name, value in {**shape, **more}.items())
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder, "results.json")
        command = [
            options.program,
            "bench",
            operator,
            "--ranks",
            options.ranks,
            "--target",
            "cuda",
            "--samples",
            options.samples,
        ]
        command += ["--no-baselines", "--set", setting, "--json", results]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
        measurements = json.loads(results.read_text())["cases"][0]["measurements"]
    # The operator alone; of moe-a2a its form in one launch.
    measured = measurements.get("fused") or next(one for one in measurements.values() if "graph_us" in one)
    return [measured["time_us"]["median"], measured["graph_us"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--program", type=pathlib.Path, default=package.path())
    parser.add_argument("--only", nargs="+", choices=sorted({shape[0] for shape in SHAPES}))
    options = parser.parse_args()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.ranks} ranks; "
        f"us, median of {options.samples} samples in each turn"
    )
    print(
        f"{'operator':12}"
        + "".join(f" {'bench, ' + way:>15} {'turns':>6} {'Python':>9} {'ratio':>6}" for way in WAYS)
        + "  shape"
    )
    for operator, make, shape, more in SHAPES:
        if options.only and operator not in options.only:
            continue
        turns = [
            (from_program(operator, shape, more, options), from_python(make, shape, options))
            for _ in range(options.turns)
        ]
        line = f"{operator:12}"
        for way in range(len(WAYS)):
            theirs, ours = ([turn[side][way] for turn in turns] for side in (0, 1))
            program, python = statistics.median(theirs), statistics.median(ours)
            line += f" {program:15.2f} {max(theirs) / min(theirs):6.3f} {python:9.2f} {python / program:6.3f}"
        print(line, "", " ".join(f"{name}={value}" for name, value in shape.items()), flush=True)


if __name__ == "__main__":
    main()
