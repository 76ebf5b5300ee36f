#!/usr/bin/env python3
"""What a call of an operator costs the host: from C, and from Python.

    python_call_cost.py [--target auto] [--calls 20] [--rounds 30]

Needs the package (pip install .). On a GPU tensors are torch's, if it is installed; on the emulator they are farwarp's.
Prints medians over rounds of the time of a call that only enqueues, of one rank:

  C       the function of c.h, with tensors that are ready, less what ctypes takes to call a function of as many parameters
  Python  the operator's class, with out=
"""

import argparse
import ctypes
import statistics
import time

import farwarp
from farwarp import _c


def nothing(parameters):
    """A function of c.h that does nothing, called with that many parameters, which it ignores."""
    function = ctypes.CDLL(_c.lib.path).farwarp_c_version
    function.argtypes, function.restype = [ctypes.c_void_p] * parameters, ctypes.c_int32
    return function


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


def measure(world, arguments, name, function, run):
    """`run(record)` makes the class's call; the addresses that it gives to the function of c.h are recorded for the
    bare call."""
    recorded = []
    original = getattr(_c.lib, function)

    def spy(*addresses):
        recorded[:] = addresses
        return original(*addresses)

    setattr(_c.lib, function, spy)
    run()
    setattr(_c.lib, function, original)
    world.synchronize()
    empty = nothing(len(recorded))
    bare = median_us(world, arguments.calls, arguments.rounds, lambda: original(*recorded))
    ctypes_cost = median_us(world, arguments.calls, arguments.rounds, lambda: empty(*recorded))
    python = median_us(world, arguments.calls, arguments.rounds, run)
    c_cost = bare - ctypes_cost
    tensors = sum(address is not None for address in recorded[1:-1])
    print(f"{name:12} {tensors:7} {c_cost:8.2f} {python:8.2f} {python - c_cost:10.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="auto")
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    with farwarp.World(target=arguments.target) as world:
        make = Tensors(world)
        print(
            f"{world.target}, tensors of {'farwarp' if make.torch is None else 'torch ' + make.torch.__version__}; us of the host for a call"
        )
        print(f"{'operator':12} {'tensors':>7} {'C':>8} {'Python':>8} {'difference':>10}")
        m, n, k = 8, 64, 64
        x, w, y = (make.zeros(shape, "bfloat16") for shape in ((m, k), (n, k), (m, n)))
        gemm = farwarp.Gemm(world, m, n, k)
        measure(world, arguments, "gemm", "gemm_call", lambda: gemm(x, w, out=y))
        product = farwarp.GemmAllReduce(world, m, n, k, path="own")
        measure(world, arguments, "gemm-ar", "product_call", lambda: product(x, w, out=y))
        q, cache = make.zeros((4, 1, 8, 64), "bfloat16"), make.zeros((16, 16, 2, 64), "bfloat16")
        table, lengths, out = make.zeros((4, 4), "int32"), make.zeros((4,), "int32"), make.zeros((4, 1, 8, 64), "bfloat16")
        decode = farwarp.FlashDecode(world, 4, 8, 2, 64, pages=16, max_pages=4)
        measure(world, arguments, "flash-decode", "decode_call", lambda: decode(q, cache, cache, table, lengths, out=out))


if __name__ == "__main__":
    main()
