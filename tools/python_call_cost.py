#!/usr/bin/env python3
"""What a call of an operator costs the host: from C, from Python by its class, and by torch.ops.

    python_call_cost.py [--target auto] [--calls 20] [--rounds 30]

Needs the package (pip install .). On a GPU tensors are torch's, if it is installed; on the emulator they are farwarp's.
Prints medians over rounds of the time of a call that only enqueues, of one rank:

  C          the function of c.h, with tensors that are ready, less what ctypes takes to call a function of as many
             parameters that does nothing
  class      the operator's class, with out=
  torch.ops  the same by torch.ops.farwarp.NAME.out; not on the emulator, where it copies
  +          what each takes more than C
"""

import argparse
import ctypes
import statistics
import time

import farwarp
from farwarp import _c


def median_us(world, calls, rounds, call):
    """Each round begins on an idle device."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls * 1e6)
        world.synchronize()
    return statistics.median(times)


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
    world = make.world

    def median(call):
        return median_us(world, options.calls, options.rounds, call)

    def by_class():
        operator(*inputs, out=out)

    function, given = arguments_of(operator, by_class)
    nothing = ctypes.CDLL(_c.lib.path)["farwarp_environment_has_ranks"]
    c_cost = median(lambda: function(*given)) - median(lambda: nothing(*given))
    costs = [median(by_class)]
    if make.torch is not None:
        from farwarp import torch_ops

        op, handle = getattr(make.torch.ops.farwarp, name).out, torch_ops.register(operator)
        costs.append(median(lambda: op(handle, *inputs, out=out)))
    tensors = sum(argument is not None for argument in given[1:-1])
    print(f"{name:12} {tensors:7} {c_cost:8.2f}" + "".join(f" {cost:10.2f} {cost - c_cost:7.2f}" for cost in costs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="auto")
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with farwarp.World(target=options.target) as world:
        make = Tensors(world)
        zeros = make.zeros
        print(
            f"{world.target}, tensors of {'farwarp' if make.torch is None else 'torch ' + make.torch.__version__}; us of the host for a call"
        )
        columns = ("class",) if make.torch is None else ("class", "torch.ops")
        print(f"{'operator':12} {'tensors':>7} {'C':>8}" + "".join(f" {column:>10} {'+':>7}" for column in columns))
        m, n, k = 8, 64, 64
        x, w, y = (zeros(shape, "bfloat16") for shape in ((m, k), (n, k), (m, n)))
        measure(make, options, "gemm", farwarp.Gemm(world, m, n, k), (x, w), y)
        measure(make, options, "gemm_ar", farwarp.GemmAllReduce(world, m, n, k, path="own"), (x, w), y)
        measure(make, options, "all_reduce", farwarp.AllReduce(world, m * k), (x,), y)
        q, key = zeros((1, 64, 4, 64), "bfloat16"), zeros((1, 64, 2, 64), "bfloat16")
        measure(make, options, "attention", farwarp.Attention(world, 1, 4, 2, 64, 64, 64), (q, key, key), zeros(q.shape, "bfloat16"))
        q, cache = zeros((4, 1, 8, 64), "bfloat16"), zeros((16, 16, 2, 64), "bfloat16")
        decode = farwarp.FlashDecode(world, 4, 8, 2, 64, pages=16, max_pages=4)
        inputs = q, cache, cache, zeros((4, 4), "int32"), zeros((4,), "int32")
        measure(make, options, "flash_decode", decode, inputs, zeros(q.shape, "bfloat16"))


if __name__ == "__main__":
    main()
