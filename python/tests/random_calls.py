#!/usr/bin/env python3
"""Calls of every operator with random shapes and numbers, in each way of programs, against plain torch in fp32.

    torchrun --nproc-per-node 2 python/tests/random_calls.py [--shapes 200] [--compiled 20] [--routings 2000]
        [--operators gemm ag-gemm ...]
    python python/tests/random_calls.py --threads 2 ...     ranks that are threads of one process

--target emu_sm90: small shapes.

Prints for each operator and way the largest error as a share of what is allowed: 2^-7 of the exact number and of the
largest one, which is what two roundings to bfloat16, and partial sums that are rounded on their way, need. An error
above that ends the program. --compiled: so many shapes are compiled, too, which takes a second each. --routings: so
many more calls of one MoeAllToAll, each with other experts.

eager: on the current stream. side: on another one. graph: captured, then replayed twice with other numbers. compiled:
torch.ops under torch.compile with fullgraph; not in threads, as torch ends with a segmentation fault when several
compile.
"""

import argparse

import torch

import farwarp
from farwarp import torch_ops
from random_cases import CASES, Place, moe

ALLOWED = 2**-7


# ---- ways


def several(results):
    results = torch_ops.in_torch(results)
    return results if isinstance(results, tuple) else (results,)


def error_of(results, exact):
    """The largest, as a share of what is allowed; fails above 1."""
    assert len(results) == len(exact)
    shares = []
    for got, wanted in zip(results, exact):
        assert got.shape == wanted.shape, (got.shape, wanted.shape)
        if wanted.numel():
            allowed = ALLOWED * (wanted.abs() + wanted.abs().max()) + 1e-30
            shares.append(((got.float() - wanted).abs() / allowed).nan_to_num(nan=float("inf")).max().item())
    worst = max(shares, default=0.0)
    assert worst <= 1, f"an error is {worst:.3g} of what is allowed"
    return worst


def eager(case):
    tensors, exact = case.draw()
    return error_of(several(case.by_class(*tensors)), exact)


def side(case):
    tensors, exact = case.draw()
    current, other = torch.cuda.current_stream(), torch.cuda.Stream()
    other.wait_stream(current)
    with torch.cuda.stream(other):
        results = several(case.by_class(*tensors))
    current.wait_stream(other)
    return error_of(results, exact)


def graph(case):
    static, _ = case.draw()
    captured, other = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(other):
        captured.capture_begin(capture_error_mode="thread_local")  # ranks may be threads
        results = several(case.by_class(*static))
        captured.capture_end()
    worst = 0.0
    for _ in range(2):
        tensors, exact = case.draw()
        for to, tensor in zip(static, tensors):
            if to is not None:
                to.copy_(tensor)
        captured.replay()
        worst = max(worst, error_of(results, exact))
    torch.cuda.synchronize()
    return worst


def compiled(case):
    name = torch_ops.register(case.operator)
    torch._dynamo.reset()  # one graph for each shape: more than torch keeps of a function

    @torch.compile(fullgraph=True, dynamic=False)
    def call(*tensors):
        return case.by_op(name, *tensors)

    worst = 0.0
    for _ in range(2):
        tensors, exact = case.draw()
        worst = max(worst, error_of(several(call(*tensors)), exact))
    return worst


WAYS = {"eager": eager, "side": side, "graph": graph, "compiled": compiled}


def calls(world, name, shapes):
    """shapes: of each way, how many. The largest error of each, as a share of what is allowed. Collective."""
    worst = dict.fromkeys(shapes, 0.0)
    for seed in range(max(shapes.values())):
        place = Place(world, 1000 * list(CASES).index(name) + seed)
        case = CASES[name](world, place)
        with case.operator:
            for way in (way for way in shapes if seed < shapes[way] and (way != "compiled" or case.by_op)):
                try:
                    worst[way] = max(worst[way], WAYS[way](case))
                except AssertionError as error:
                    raise AssertionError(f"{name}, {way}, shape {seed}, rank {world.rank}: {error}") from error
            world.check()
    return worst


def routings(world, count):
    """Calls of one operator with fresh routing. Collective."""
    place, worst = Place(world, 1), 0.0
    case = moe(world, place, (16, 4, 64, 8) if place.small else (16, 4, 512, 64))
    with case.operator:
        for _ in range(count):
            worst = max(worst, eager(case))
        world.check()
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=200)
    parser.add_argument("--compiled", type=int, default=20)
    parser.add_argument("--routings", type=int, default=2000)
    parser.add_argument("--operators", nargs="+", choices=CASES, default=list(CASES), help="all")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--target", default="cuda", choices=("cuda", "emu_sm90"))
    options = parser.parse_args()
    on_gpus = options.target == "cuda"
    ways = ("eager", "side", "graph") if on_gpus else ("eager",)
    shapes = {**dict.fromkeys(ways, options.shapes), **({} if options.threads else {"compiled": options.compiled})}

    def body(world):
        if on_gpus:
            torch.cuda.set_device(world.device)
        if world.rank == 0:
            print(
                f"{world.size} ranks {'in one process' if options.threads else 'as processes'}: "
                "the largest error of what is allowed"
            )
            print(f"{'shapes':20}" + "".join(f" {way:>9}{count:5}" for way, count in shapes.items()))
        for name in options.operators:
            worst = calls(world, name, shapes)
            if world.rank == 0:
                print(f"{name:20}" + "".join(f" {worst[way]:14.2f}" for way in shapes), flush=True)
        worst = routings(world, options.routings)
        if world.rank == 0:
            print(f"{f'moe, {options.routings} routings':20} {worst:14.2f}", flush=True)

    if options.threads:
        farwarp.run(body, ranks=options.threads, target=options.target)
    else:
        with farwarp.World(target=options.target) as world:
            body(world)


if __name__ == "__main__":
    main()
