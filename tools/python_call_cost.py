#!/usr/bin/env python3
"""What a call of an operator costs the host: from C, from Python by its class, and by torch.ops.

    python_call_cost.py [--target auto] [--calls 100] [--blocks 200]

Needs the package (pip install .). On a GPU tensors are torch's, if it is installed; on the emulator they are farwarp's.
The ways take turns in every block, on one CPU, and each block begins on an idle device. A call only enqueues, of one
rank. Prints medians over blocks, and quartiles, in us:

  C          the function of c.h, with tensors that are ready, less what ctypes takes to call a function of as many
             parameters that does nothing
  class      what the operator's class, with out=, takes more than C in the same block
  torch.ops  the same by torch.ops.farwarp.NAME.out; not on the emulator, where it copies
"""

import argparse
import ctypes
import gc
import os
import statistics
import time

import farwarp


def blocks_of(world, options, ways):
    """For each way, what a call takes in each block, in us."""
    times = {name: [] for name in ways}
    order = list(ways)
    for block in range(options.blocks + 1):
        order.append(order.pop(0))
        for name in order:
            call = ways[name]
            start = time.perf_counter_ns()
            for _ in range(options.calls):
                call()
            taken = (time.perf_counter_ns() - start) / options.calls / 1e3
            world.synchronize()
            if block > 0:
                times[name].append(taken)
    return times


def quartiles(numbers):
    low, middle, high = statistics.quantiles(numbers, n=4)
    return f" {middle:7.2f} ({low:5.2f} {high:6.2f})"


class Tensors:
    """Of torch on the device, or of farwarp."""

    def __init__(self, world):
        self.world = world
        try:
            import torch
        except ImportError:
            torch = None
        self.torch = None if world.emulated else torch

    def zeros(self, shape, dtype):
        if self.torch is None:
            return self.world.zeros(shape, dtype)
        return self.torch.zeros(shape, dtype=getattr(self.torch, dtype), device=self.world.device)


def arguments_of(operator, run):
    """What `run` gives to the function of c.h, and that function."""
    recorded, call = [], operator._call
    function = call._function

    def spy(*given):
        recorded[:] = given
        return function(*given)

    call._function = spy
    run()
    call._function = function
    return function, tuple(recorded)


def measure(make, options, name, operator, inputs, out):
    def by_class():
        operator(*inputs, out=out)

    function, given = arguments_of(operator, by_class)
    nothing = ctypes.CDLL(None)["abs"]  # looks at the first of its arguments alone
    ways = {"nothing": lambda: nothing(*given), "C": lambda: function(*given), "class": by_class}
    if make.torch is not None:
        from farwarp import torch_ops

        op, handle = getattr(make.torch.ops.farwarp, name).out, torch_ops.register(operator)
        ways["torch.ops"] = lambda: op(handle, *inputs, out=out)
    times = blocks_of(make.world, options, ways)
    costs = [call - empty for call, empty in zip(times["C"], times["nothing"])]
    more = [[taken - cost for taken, cost in zip(times[way], costs)] for way in ("class", "torch.ops") if way in times]
    tensors = sum(argument is not None for argument in given[1:-1])
    print(f"{name:12} {tensors:7}" + "".join(map(quartiles, (costs, *more))), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="auto")
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--blocks", type=int, default=200)
    options = parser.parse_args()
    with farwarp.World(target=options.target) as world:
        make = Tensors(world)
        zeros = make.zeros
        torch = make.torch
        print(
            f"{world.target}, tensors of {'torch ' + torch.__version__ if torch else 'farwarp'}; "
            "us of the host for a call: median (quartiles)"
        )
        print(
            f"{'operator':12} {'tensors':>7}"
            + "".join(f"{column:>23}" for column in ("C", "class: more", "torch.ops: more")[: 3 if torch else 2])
        )
        cpu = max(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpu})  # this thread alone: those of the driver have begun
        gc.disable()
        m, n, k = 8, 64, 64
        x, w, y = (zeros(shape, "bfloat16") for shape in ((m, k), (n, k), (m, n)))
        measure(make, options, "gemm", farwarp.Gemm(world, m, n, k), (x, w), y)
        measure(make, options, "gemm_ar", farwarp.GemmAllReduce(world, m, n, k, path="own"), (x, w), y)
        measure(make, options, "all_reduce", farwarp.AllReduce(world, m * k), (x,), y)
        q, key = zeros((1, 64, 4, 64), "bfloat16"), zeros((1, 64, 2, 64), "bfloat16")
        measure(
            make,
            options,
            "attention",
            farwarp.Attention(world, 1, 4, 2, 64, 64, 64),
            (q, key, key),
            zeros(q.shape, "bfloat16"),
        )
        q, cache = zeros((4, 1, 8, 64), "bfloat16"), zeros((16, 16, 2, 64), "bfloat16")
        decode = farwarp.FlashDecode(world, 4, 8, 2, 64, pages=16, max_pages=4)
        inputs = q, cache, cache, zeros((4, 4), "int32"), zeros((4,), "int32")
        measure(make, options, "flash_decode", decode, inputs, zeros(q.shape, "bfloat16"))


if __name__ == "__main__":
    main()
